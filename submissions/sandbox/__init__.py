"""Where models run: a child process that sees its model, the corpus and the queries, and nothing else of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from evaluation.execution.job import ExecutionJob
from submissions.sandbox.backends import Backend, SandboxUnavailable
from submissions.sandbox.bubblewrap import Bubblewrap
from submissions.sandbox.docker import Docker
from submissions.sandbox.limits import Limits
from submissions.sandbox.plain import Plain
from submissions.sandbox.running import Outcome, run_job

__all__ = ["Backend", "Limits", "Outcome", "SandboxUnavailable", "backend", "run_in_sandbox"]

_ISOLATING: tuple[type[Backend], ...] = (Bubblewrap, Docker)
_NAMED: dict[str, type[Backend]] = {"bwrap": Bubblewrap, "docker": Docker, "none": Plain}


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


def run_in_sandbox(
    job: ExecutionJob,
    *,
    limits: Limits | None = None,
    on_progress: Callable[[str, float, str], None],
) -> Outcome:
    """Do the job (its paths are those of this machine) in a child process, and say how it ended.

    `job.out` is an empty folder, or is made; afterwards it holds what the child left, plain files alone, still to be
    validated as a stranger's. `on_progress` is told stage, share and a note several times a second, also while nothing
    changes; what it raises ends the child with everything it started, and goes on. The machine's lock is shared
    meanwhile, and had alone while the child measures. Raises SandboxUnavailable, which is no fault of the model.
    """
    return run_job(backend(), job, limits or Limits.from_settings(), on_progress)
