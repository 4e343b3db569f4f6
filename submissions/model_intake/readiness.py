"""Whether models may be run here, and by whom: what the sandbox says, and what the operator set."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from leaderboard.models import User
from submissions import sandbox
from submissions.refusals import Refused


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this person's models run, else why not and what would help; `unprotected`: without a sandbox."""

    ready: bool
    reason: str = ""
    remedy: str = ""
    unprotected: bool = False


def readiness(person: User, *, local: bool) -> Readiness:
    """Whether the person may submit a model now; `local`: the request comes from this machine."""
    chosen = sandbox.backend()
    if not chosen.available:
        return Readiness(False, f"No sandbox works here: {chosen.reason}", chosen.remedy)
    if sandbox.allows(user_is_staff=person.is_staff, loopback=local):
        return Readiness(True, unprotected=not chosen.isolates)
    return Readiness(
        False,
        "Models run here without a sandbox (SANDBOX=none), which is for staff alone, on the machine itself.",
        "The operator sets SANDBOX=auto, with bubblewrap or docker installed.",
        unprotected=True,
    )


def refuse_unready(person: User, *, local: bool) -> None:
    """Raises Refused where models do not run, with the reason and what would help."""
    found = readiness(person, local=local)
    if not found.ready:
        raise Refused.of("sandbox_unavailable", found.reason, found.remedy)


def is_local(request: HttpRequest | Request) -> bool:
    """Whether the request comes from this very machine: over loopback, and not through a proxy."""
    if settings.BEHIND_PROXY or "HTTP_X_FORWARDED_FOR" in request.META:
        return False
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
