"""Sandbox for models: a child process that can access only its model, the corpus, and the queries."""

from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from submissions.sandbox.backends import Backend, SandboxLimits, SandboxUnavailable, UnprotectedBackend
from submissions.sandbox.bubblewrap import Bubblewrap

__all__ = ["Backend", "SandboxLimits", "SandboxUnavailable", "backend"]

_BACKENDS: dict[str, type[Backend]] = {"auto": Bubblewrap, "bwrap": Bubblewrap, "none": UnprotectedBackend}


@cache
def backend() -> Backend:
    """Return the backend set by SANDBOX, tested once per process. `auto` never selects `none`.

    An unavailable backend states the reason (`reason`) and the solution (`remedy`), and does not run programs.
    """
    if settings.SANDBOX not in _BACKENDS:
        raise ImproperlyConfigured(f"SANDBOX must be one of {', '.join(_BACKENDS)}, not {settings.SANDBOX!r}.")
    return _BACKENDS[settings.SANDBOX]()
