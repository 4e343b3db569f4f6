"""Database, broker, cache, time limits, and resources of models.

Acknowledged data is on disk (docs/decisions/0007): every commit is synced, by `synchronous=FULL` on SQLite and by the
defaults of PostgreSQL, which `manage.py check --database default` verifies.
"""

import os
import tempfile
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from leaderboard.settings.environment import VAR, env, three_quarters_of_memory, usable_cores

# --- broker, cache and queue


def broker_url() -> str:
    """Return `REDIS_URL` or, if it is not set, the address written by a running `manage.py runboard`.

    If there is no such address either, return one that fails immediately.
    """
    if url := env.str("REDIS_URL", default=""):
        return url
    address_file = VAR / "run" / "redis-url"
    return address_file.read_text().strip() if address_file.exists() else "redis://127.0.0.1:1/0"


def cache_location(url: str) -> str:
    """Convert kombu's `redis+socket:///path` to redis-py's `unix:///path`."""
    return url.replace("redis+socket://", "unix://", 1)


def unacked_keys(url: str) -> dict[str, str]:
    """Return the broker keys for unacknowledged messages, which differ by broker user.

    Every worker restores messages that it finds there to the key that each message names, with its own user's rights.
    Separate keys ensure that a retriever, which may write few keys, cannot create entries that a process with more
    rights restores.
    """
    user = urlsplit(url).username
    names = ("unacked", "unacked_index", "unacked_mutex")
    return {f"{name}_key": f"{name}:{user}" if user else name for name in names}


REDIS_URL = broker_url()
CACHES = {
    "default": {
        "BACKEND": "leaderboard.core.cache.redis.ForgivingRedisCache",
        "LOCATION": cache_location(REDIS_URL),
        "KEY_PREFIX": "runboard",
        "TIMEOUT": 3600,
        # Computing a page is faster than waiting; `leaderboard.core.cache.redis` then pauses requests to the
        # server.
        "OPTIONS": {"socket_timeout": 1.0, "socket_connect_timeout": 1.0},
    }
}
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Retry forever: a worker without a broker still works, because it polls the database.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Workers also reconnect after errors that the broker reports, such as WRONGTYPE, not only after lost
# connections.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
# Running tasks were acknowledged on arrival, so a lost connection does not affect them.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    **unacked_keys(REDIS_URL),
    "visibility_timeout": 24 * 3600,
    "unacked_restore_interval": 5,
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    # Without this, wakeups that cannot be sent delay their sender by six seconds while the broker is
    # unavailable.
    "max_retries": 0,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "dispatch"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A new pool process compiles the kernels before it reports ready; the default of 4 s would kill it.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 120.0
# Otherwise anyone with access to the broker could read workers' settings and stop them.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False


@dataclass(frozen=True)
class QueueTimes:
    """Timings of the queue, in seconds. Tests that kill many workers shorten all of them."""

    lease: float = 60.0  # Silence of a worker after which its job is requeued.
    claim_interval: float = 2.0  # Interval of a claim's heartbeats, which also check for cancellations.
    cancellation_grace: float = 30.0  # Time after which a process that ignores a cancellation is killed.
    heartbeat: float = 15.0  # Interval of a worker's heartbeats.
    worker_silence: float = 45.0  # Silence after which a worker is considered dead.
    retries: tuple[float, ...] = (0.0, 60.0)  # Delay before the next attempt, by the number of attempts.
    dispatch: float = 10.0  # Interval of the dispatcher.
    idle_poll: float = 10.0  # Interval at which idle workers poll the database for lost wakeups.


QUEUE_TIMES = QueueTimes()
#: Maximum running time of a job, in seconds.
JOB_WALL_CLOCK_SECONDS = env.int("JOB_WALL_CLOCK_SECONDS", default=6 * 3600)
#: File that a worker touches at each heartbeat, for health checks of containers; empty for none.
HEARTBEAT_FILE = env.str("HEARTBEAT_FILE", default="")
#: Seconds without work after which a worker exits; 0 for never. `manage.py worker --until-idle` sets it.
WORKER_UNTIL_IDLE = env.float("WORKER_UNTIL_IDLE", default=0.0)

CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "dispatch": {
        "task": "runboard.dispatch",
        "schedule": QUEUE_TIMES.dispatch,
        "options": {"expires": QUEUE_TIMES.dispatch},
        "kwargs": {"urgent_only": True},
    },
    # Both schedules run the urgent steps.
    "dispatch-all": {"task": "runboard.dispatch", "schedule": 60.0, "options": {"expires": 60.0}},
    "sweep": {"task": "runboard.sweep", "schedule": 3600.0, "options": {"expires": 3600.0}},
}


# --- database

#: Seconds to wait for an unresponsive database server before a page reports the failure.
_CONNECT_SECONDS = 5
#: These options close a connection about half a minute after its other end disappears.
_SERVER_OPTIONS = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
#: Seconds after which PostgreSQL ends an idle transaction, so that frozen processes and suspended machines
#: do not hold locks. Our transactions never compute this long between two statements.
_IDLE_TRANSACTION_SECONDS = 60


def databases() -> dict[str, dict[str, Any]]:
    """Return the server of `DATABASE_URL`, or SQLite tuned for concurrent writes by web processes and workers."""
    if "DATABASE_URL" in os.environ:
        database = env.db_url("DATABASE_URL")
        database.setdefault("CONN_MAX_AGE", 60)
        database["CONN_HEALTH_CHECKS"] = True
        if "postgresql" in database["ENGINE"]:
            limit = f"-c idle_in_transaction_session_timeout={_IDLE_TRANSACTION_SECONDS * 1000}"
            database["OPTIONS"] = {**_SERVER_OPTIONS, "options": limit, **database.get("OPTIONS", {})}
        return {"default": database}
    return {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": VAR / "db.sqlite3",
            "CONN_MAX_AGE": 60,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                # Without recursive triggers, rows deleted by REPLACE fire none, so the audit log could be
                # overwritten.
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA recursive_triggers=ON; "
                "PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000;",
            },
        }
    }


DATABASES = databases()
# Our token model replaces that of knox. Migrations of knox would create an unused table that blocks every TRUNCATE.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
#: Folder of pg_dump and pg_restore, for backups; empty for PATH.
POSTGRESQL_BIN = env.str("POSTGRESQL_BIN", default="")


# --- models

#: Number of documents that are encoded as one unit of work; larger corpora are divided between workers.
SHARD_SIZE = env.int("SHARD_SIZE", default=50_000)
#: Maximum bytes of embeddings, and of BM25 indexes, on disk; the least recently used are deleted first.
EMBEDDINGS_CACHE_BYTES = env.int("EMBEDDINGS_CACHE_BYTES", default=50 * 2**30)
#: Maximum bytes of embeddings in the bucket of `EMBEDDINGS_STORAGE`; 0 for no limit.
EMBEDDINGS_STORAGE_BYTES = env.int("EMBEDDINGS_STORAGE_BYTES", default=0)
#: Maximum bytes of copies from `STORE_STORAGE` on a worker-only host; 0 for no limit.
STORE_COPIES_BYTES = env.int("STORE_COPIES_BYTES", default=0)

#: Isolation of models: auto (bwrap), bwrap, or none (staff on this machine only).
SANDBOX = env.str("SANDBOX", default="auto")
#: Control group (version 2) with memory.max and pids.max for its children; empty for the worker's own.
SANDBOX_CGROUP = env.str("SANDBOX_CGROUP", default="")
#: Resources of one model: memory, wall clock, bytes written (index and run), and cores.
MODEL_MEMORY_BYTES = env.int("MODEL_MEMORY_BYTES", default=three_quarters_of_memory())
MODEL_WALL_CLOCK_SECONDS = JOB_WALL_CLOCK_SECONDS * 9 // 10
MODEL_OUTPUT_BYTES = env.int("MODEL_OUTPUT_BYTES", default=64 * 1024**3)
MODEL_THREADS = env.int("MODEL_THREADS", default=usable_cores())
#: Lock of all processes that compute or measure on this machine; containers on one machine must share it.
TIMING_LOCK = env.str("TIMING_LOCK", default=f"{tempfile.gettempdir()}/runboard-timing-{os.geteuid()}.lock")
