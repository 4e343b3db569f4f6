"""Whether this process should be sent requests: for load balancers, and for what replaces one version by the next."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from leaderboard.disk import DiskFull, require_room
from leaderboard.schema_version import mismatch
from leaderboard.views.health import BROKER_GLANCE, broker_answers

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, its tables and the disk are as they should be, else 503; the body says what is not.

    A broker that is away is told and harms nobody: pages are then computed, and idle workers look into the database.
    """
    broker = "ok" if broker_answers(BROKER_GLANCE) else "unavailable"
    parts = {"database": _database(), "disk": _disk(), "broker": broker}
    ready = parts["database"] == parts["disk"] == "ok"
    return JsonResponse({"status": "ok" if ready else "unavailable", **parts}, status=200 if ready else 503)


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
