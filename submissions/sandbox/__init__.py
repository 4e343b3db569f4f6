"""Where models run: a child process that sees its model, the corpus and the queries, and nothing else of ours."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from submissions.sandbox.backends import Backend, SandboxLimits, SandboxUnavailable, UnprotectedBackend
from submissions.sandbox.bubblewrap import Bubblewrap
from submissions.sandbox.docker import Docker
from submissions.sandbox.running import SandboxOutcome, run_job

__all__ = ["Backend", "SandboxLimits", "SandboxOutcome", "SandboxUnavailable", "backend", "run_job"]

_ISOLATING: tuple[type[Backend], ...] = (Bubblewrap, Docker)
_NAMED: dict[str, type[Backend]] = {"bwrap": Bubblewrap, "docker": Docker, "none": UnprotectedBackend}


@cache
def backend() -> Backend:
    """What SANDBOX names; with "auto" the first that works, never "none". Tried once in each process.

    Where nothing works the answer says why (`reason`) and what would help (`remedy`), and runs nothing.
    """
    if settings.SANDBOX != "auto":
        if settings.SANDBOX not in _NAMED:
            raise ImproperlyConfigured(f"SANDBOX is auto, {', '.join(_NAMED)}; not {settings.SANDBOX!r}.")
        return _NAMED[settings.SANDBOX]()
    candidates = [kind() for kind in _ISOLATING]
    return next((candidate for candidate in candidates if candidate.available), candidates[0])
