"""Whether this process should be sent requests: for load balancers, and for what replaces one version by the next."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from leaderboard.core.schema_version import mismatch
from leaderboard.core.storage.disk import DiskFull, require_room
from leaderboard.views.health import broker_answers

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when this process can serve readers: the database answers and has the tables of this version; else 503.

    A full disk makes it `degraded` and no more: it refuses uploads alone, and all processes have the same one, so that
    sending nobody here would take the pages away too. A broker that is away is told: pages are then computed.
    """
    broker = "ok" if broker_answers() else "unavailable"
    parts = {"database": _database(), "disk": _disk(), "broker": broker}
    ready = parts["database"] == "ok"
    status = "unavailable" if not ready else "ok" if parts["disk"] == "ok" else "degraded"
    return JsonResponse({"status": status, **parts}, status=200 if ready else 503)


def _database() -> str:
    try:
        difference = mismatch()
    except DatabaseError as error:
        logger.error("The database does not answer: %s", error)
        return "unavailable"
    if difference:
        logger.error("Not ready: %s", difference)
        return "another version"
    return "ok"


def _disk() -> str:
    try:
        require_room(settings.VAR, 0)
    except DiskFull:
        return "full"
    return "ok"
