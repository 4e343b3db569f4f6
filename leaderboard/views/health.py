"""Whether the site can work, and whether this process should be sent requests: for supervisors and load balancers."""

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
from leaderboard.core.schema_version import mismatch
from leaderboard.core.storage.disk import DiskFull, require_free_space

logger = logging.getLogger(__name__)

#: How long the broker may take to answer, and how long its answer counts, in seconds: anybody may ask, and many who
#: ask while it hangs must not hold the threads that pages need.
BROKER_PATIENCE, BROKER_MEMORY = 0.3, 3.0
#: Seconds between two lines in the log that say the same.
SAYING_AGAIN = 60.0


@require_safe
@never_cache
@reads("*")
def healthz(request: HttpRequest) -> JsonResponse:
    """200 with {"status": "ok", …} when database and broker answer; else 503, naming which does not."""
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
    """200 when this process can serve readers: the database answers and has the tables of this version; else 503.

    A full disk makes it `degraded` and no more: it refuses uploads alone, and all processes have the same one, so that
    sending nobody here would take the pages away too. A broker that is away is told: pages are then computed.
    """
    broker = "ok" if broker_answers() else "unavailable"
    parts = {"database": _schema(), "disk": disk_state(), "broker": broker}
    ready = parts["database"] == "ok"
    status = "unavailable" if not ready else "ok" if parts["disk"] == "ok" else "degraded"
    return JsonResponse({"status": status, **parts}, status=200 if ready else 503)


def _schema() -> str:
    try:
        difference = mismatch()
    except DatabaseError as error:
        logger.error("The database does not answer: %s", error)
        return "unavailable"
    if difference:
        logger.error("Not ready: %s", difference)
        return "another version"
    return "ok"


def disk_state() -> str:
    """Return `full` if uploads are refused for lack of disk space, or else `ok`."""
    try:
        require_free_space(settings.VAR, 0)
    except DiskFull:
        return "full"
    return "ok"


def broker_answers() -> bool:
    """Whether the broker answers in time, or did a few seconds ago; the log says why not, once a minute."""
    with _making:  # several who ask first would make one each
        broker = _broker(settings.REDIS_URL)
    return broker.answers()


class _Broker:
    """The broker, asked by one thread of this process at a time; the others have what it answered last."""

    def __init__(self, url: str) -> None:
        address = url.replace("redis+socket://", "unix://", 1)  # kombu's name for it, and redis-py's
        # A client that is kept: a check should cost no new connection. One that broke meanwhile is made anew, once; who
        # does not answer in time is not asked again.
        self._client = redis.Redis.from_url(
            address,
            socket_timeout=BROKER_PATIENCE,
            socket_connect_timeout=BROKER_PATIENCE,
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),
        )
        self._asking = Lock()
        self._answered: bool | None = None
        self._ask_at = self._say_at = 0.0

    def answers(self) -> bool:
        """Whether it did when it was asked last, in time and not long ago."""
        # Whoever else asks now is waited for only where nobody knows yet.
        if monotonic() >= self._ask_at and self._asking.acquire(blocking=self._answered is None):
            try:
                if monotonic() >= self._ask_at:
                    self._answered = self._ask()
                    self._ask_at = monotonic() + BROKER_MEMORY
            finally:
                self._asking.release()
        return bool(self._answered)

    def _ask(self) -> bool:
        try:
            self._client.ping()
        except redis.RedisError as error:
            if monotonic() >= self._say_at:
                self._say_at = monotonic() + SAYING_AGAIN
                logger.error("The broker does not answer: %s", error)
            return False
        self._say_at = 0.0
        return True


_making = Lock()
_broker = functools.cache(_Broker)
