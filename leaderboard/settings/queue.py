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
        # A page is sooner computed than waited for; `leaderboard.cache` then leaves the server alone for a while.
        "OPTIONS": {"socket_timeout": 1.0, "socket_connect_timeout": 1.0},
    }
}
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# For ever: a worker without a broker still works, since it looks into the database.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# What runs was acknowledged when it came: a lost connection says nothing about it.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
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
#: kill workers by the hundred; production leaves it alone. Not the wall clock of a job, which is about the work.
QUEUE_TIME_SCALE = env.float("QUEUE_TIME_SCALE", default=1.0)
#: The longest a job may run, in seconds.
JOB_WALL_CLOCK_SECONDS = env.int("JOB_WALL_CLOCK_SECONDS", default=6 * 3600)
#: How long, in seconds, a worker may be silent before its job is given to another.
LEASE_SECONDS = env.float("LEASE_SECONDS", default=60.0) * QUEUE_TIME_SCALE
#: Seconds between two signs of life of a claim, which also look for a wish to cancel; a lease is thirty times as long.
LEASE_LOOK_SECONDS = 2.0 * QUEUE_TIME_SCALE
#: Seconds after which a process is ended whose work does not stop when it must.
UNHEARD_SECONDS = 30.0 * QUEUE_TIME_SCALE
#: Seconds between two signs of life of a worker, and how long it may be silent before it counts as dead.
HEARTBEAT_SECONDS = 10.0 * QUEUE_TIME_SCALE
WORKER_SILENCE_SECONDS = 30.0 * QUEUE_TIME_SCALE
#: A file that a worker touches at each sign of life, for checks of containers; empty: none.
HEARTBEAT_FILE = env.str("HEARTBEAT_FILE", default="")
#: Seconds a job waits before its next attempt, by how many were made.
BACKOFF_SECONDS = tuple(seconds * QUEUE_TIME_SCALE for seconds in (0.0, 60.0))
#: Seconds between two turns of the dispatcher.
DISPATCH_SECONDS = 5.0 * QUEUE_TIME_SCALE
#: Seconds between two looks of an idle worker into the database, for bells that it did not hear.
IDLE_POLL_SECONDS = 10.0 * QUEUE_TIME_SCALE

CELERY_BEAT_SCHEDULE = {
    "dispatch": {
        "task": "runboard.dispatch",
        "schedule": DISPATCH_SECONDS,
        "options": {"expires": DISPATCH_SECONDS},
    },
    "sweep": {"task": "runboard.sweep", "schedule": 3600.0, "options": {"expires": 3600.0}},
}
