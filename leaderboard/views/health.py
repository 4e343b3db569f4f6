"""Whether the site can work, for supervisors, load balancers and people with `curl`."""

from __future__ import annotations

import functools
import logging

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)

#: How long the broker may take to answer, in seconds.
BROKER_PATIENCE = 2.0
#: The same where its answer decides nothing, so that who asks, with little time itself, is not kept waiting.
BROKER_GLANCE = 0.3


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """200 with {"status": "ok", …} when database and broker answer; else 503, naming which does not."""
    parts = {"database": _database_answers(), "broker": broker_answers()}
    body = {"status": "ok" if all(parts.values()) else "unavailable"}
    body |= {name: "ok" if answers else "unavailable" for name, answers in parts.items()}
    return JsonResponse(body, status=200 if all(parts.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        logger.error("The database does not answer: %s", error)
        return False
    return True


def broker_answers(patience: float = BROKER_PATIENCE) -> bool:
    """Whether the broker answers in time; the log says why not."""
    try:
        _broker(settings.REDIS_URL, patience).ping()
    except redis.RedisError as error:
        logger.error("The broker does not answer: %s", error)
        return False
    return True


@functools.cache
def _broker(url: str, patience: float) -> redis.Redis:
    """A client that is kept: a check should cost no new connection."""
    address = url.replace("redis+socket://", "unix://", 1)  # kombu's name for it, and redis-py's
    return redis.Redis.from_url(address, socket_timeout=patience, socket_connect_timeout=patience)
