"""Health and readiness checks for supervisors and load balancers."""

import functools
import logging
from threading import Lock
from time import monotonic

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.backoff import NoBackoff
from redis.retry import Retry

from leaderboard.core.http.query_parameters import reads
from leaderboard.core.schema_version import describe_mismatch
from leaderboard.core.storage.disk import DiskFull, require_free_space

logger = logging.getLogger(__name__)

#: Timeout of the broker, and lifetime of its answer, in seconds. The checks are public, and requests
#: during an outage must not occupy the threads that pages need.
BROKER_PATIENCE, BROKER_MEMORY = 0.3, 3.0
#: Seconds between identical log lines.
LOG_INTERVAL = 60.0


@require_safe
@never_cache
@reads("*")
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 with {"status": "ok", …} if database and broker respond, else 503 with the state of each."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
        database = True
    except DatabaseError as error:
        logger.error("The database does not answer: %s", error)
        database = False
    parts = {"database": database, "broker": broker_answers()}
    body = {"status": "ok" if all(parts.values()) else "unavailable"}
    body |= {name: "ok" if answers else "unavailable" for name, answers in parts.items()}
    return JsonResponse(body, status=200 if all(parts.values()) else 503)


@require_safe
@never_cache
@reads("*")
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if this process can serve pages, with a reachable database of this version, else 503.

    A full disk only sets the status to `degraded`: it prevents only uploads, and all processes share the disk, so
    removing this process would also remove the pages. Pages do not need the broker, whose state is only reported.
    """
    broker = "ok" if broker_answers() else "unavailable"
    database = "ok"
    try:
        if difference := describe_mismatch():
            logger.error("Not ready: %s", difference)
            database = "another version"
    except DatabaseError as error:
        logger.error("The database does not answer: %s", error)
        database = "unavailable"
    parts = {"database": database, "disk": disk_state(), "broker": broker}
    ready = parts["database"] == "ok"
    status = "unavailable" if not ready else "ok" if parts["disk"] == "ok" else "degraded"
    return JsonResponse({"status": status, **parts}, status=200 if ready else 503)


def disk_state() -> str:
    """Return `full` if uploads are rejected for lack of disk space, else `ok`."""
    try:
        require_free_space(settings.VAR, 0)
    except DiskFull:
        return "full"
    return "ok"


def broker_answers() -> bool:
    """Return whether the broker responds in time, or did so a few seconds ago; failures are logged once a minute."""
    with _creation_lock:  # Prevents simultaneous first requests from creating a client each.
        broker = _broker(settings.REDIS_URL)
    return broker.answers()


class _Broker:
    """Client of the broker, used by one thread at a time; other threads get the latest result."""

    def __init__(self, url: str) -> None:
        address = url.replace("redis+socket://", "unix://", 1)  # Kombu's notation, and that of redis-py.
        # A persistent client, so that checks need no new connections. A broken connection is reopened once;
        # timeouts are not retried.
        self._client = redis.Redis.from_url(
            address,
            socket_timeout=BROKER_PATIENCE,
            socket_connect_timeout=BROKER_PATIENCE,
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),
        )
        self._ping_lock = Lock()
        self._last_answer: bool | None = None
        self._ping_at = self._log_at = 0.0

    def answers(self) -> bool:
        """Return whether the broker responds, as of the last check; one older than `BROKER_MEMORY` is repeated."""
        # Wait for a check in progress only if there is no result yet.
        if monotonic() >= self._ping_at and self._ping_lock.acquire(blocking=self._last_answer is None):
            try:
                if monotonic() >= self._ping_at:
                    self._last_answer = self._ping()
                    self._ping_at = monotonic() + BROKER_MEMORY
            finally:
                self._ping_lock.release()
        return bool(self._last_answer)

    def _ping(self) -> bool:
        """Return whether the broker responds to a ping; failures are logged once per `LOG_INTERVAL`."""
        try:
            self._client.ping()
        except redis.RedisError as error:
            if monotonic() >= self._log_at:
                self._log_at = monotonic() + LOG_INTERVAL
                logger.error("The broker does not answer: %s", error)
            return False
        self._log_at = 0.0
        return True


_creation_lock = Lock()
_broker = functools.cache(_Broker)
