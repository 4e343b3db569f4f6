"""Where models run: a child process that sees its model, the corpus and the queries, and nothing else of ours."""

from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from submissions.sandbox.backends import Backend, SandboxLimits, SandboxUnavailable, UnprotectedBackend
from submissions.sandbox.bubblewrap import Bubblewrap
from submissions.sandbox.running import SandboxOutcome, run_job

__all__ = ["Backend", "SandboxLimits", "SandboxOutcome", "SandboxUnavailable", "backend", "run_job"]

_BACKENDS: dict[str, type[Backend]] = {"auto": Bubblewrap, "bwrap": Bubblewrap, "none": UnprotectedBackend}


@cache
def backend() -> Backend:
    """Return the backend that SANDBOX names, tested once in each process. `auto` never selects `none`.

    A backend that does not work gives the reason (`reason`) and the solution (`remedy`), and runs nothing.
    """
    if settings.SANDBOX not in _BACKENDS:
        raise ImproperlyConfigured(f"SANDBOX is {', '.join(_BACKENDS)}; not {settings.SANDBOX!r}.")
    return _BACKENDS[settings.SANDBOX]()
