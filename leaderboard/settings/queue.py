"""The broker, the cache, and how long work may take."""

from __future__ import annotations

from leaderboard.settings.site import VAR, env


def broker_url() -> str:
    """`REDIS_URL`, else the server that a running `manage.py runboard` wrote down, else one that fails fast."""
    if url := env.str("REDIS_URL", default=""):
        return url
    written = VAR / "run" / "redis-url"
    return written.read_text().strip() if written.exists() else "redis://127.0.0.1:1/0"


def cache_location(url: str) -> str:
    """The same server as a Django cache names it: kombu says `redis+socket:///path`, redis-py `unix:///path`."""
    return url.replace("redis+socket://", "unix://", 1)


REDIS_URL = broker_url()
CACHES = {
    "default": {
        "BACKEND": "leaderboard.cache.ForgivingRedisCache",
        "LOCATION": cache_location(REDIS_URL),
        "KEY_PREFIX": "runboard",
        "TIMEOUT": 3600,
    }
}
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 24 * 3600,
    "unacked_restore_interval": 5,
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    # A bell that cannot be rung is not waited for: without this, six seconds whenever the broker is away.
    "max_retries": 0,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "dispatch"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A new pool process compiles the kernels before it says that it is there; the default of 4 s would kill it.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 120.0
CELERY_TIMEZONE = "UTC"

#: Every time of the queue (leases, heartbeats, backoff, how often somebody looks) times this. Below 1 for tests that
#: kill workers by the hundred; production leaves it alone.
QUEUE_TIME_SCALE = env.float("QUEUE_TIME_SCALE", default=1.0)
#: The longest a job may run, in seconds.
JOB_WALL_CLOCK_SECONDS = env.int("JOB_WALL_CLOCK_SECONDS", default=6 * 3600)
#: How long, in seconds, a worker may be silent before its job is given to another.
LEASE_SECONDS = env.int("LEASE_SECONDS", default=60)

CELERY_BEAT_SCHEDULE = {
    "dispatch": {"task": "runboard.dispatch", "schedule": 5.0, "options": {"expires": 5.0}},
    "sweep": {"task": "runboard.sweep", "schedule": 3600.0, "options": {"expires": 3600.0}},
}
