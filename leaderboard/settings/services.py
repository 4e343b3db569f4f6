"""The database, the broker and the cache, how long work may take, and what models may use.

What is acknowledged is on disk (docs/decisions/0007): every commit is synced, on SQLite by `synchronous=FULL`, on
PostgreSQL by its own defaults, which `manage.py check --database default` looks at.
"""

import os
import tempfile
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from leaderboard.settings.environment import VAR, env, three_quarters_of_memory, usable_cores

# --- broker, cache and queue


def broker_url() -> str:
    """`REDIS_URL`, else the server that a running `manage.py runboard` wrote down, else one that fails fast."""
    if url := env.str("REDIS_URL", default=""):
        return url
    written = VAR / "run" / "redis-url"
    return written.read_text().strip() if written.exists() else "redis://127.0.0.1:1/0"


def cache_location(url: str) -> str:
    """The same server as a Django cache names it: kombu says `redis+socket:///path`, redis-py `unix:///path`."""
    return url.replace("redis+socket://", "unix://", 1)


def unacked_keys(url: str) -> dict[str, str]:
    """Where the broker keeps what a worker took and did not answer for: each of its users has keys of its own.

    Every worker puts back what it finds there, into whatever key an entry names, with its own user's rights. So a
    retriever, whose user may write to few keys, makes no entry that a process with more rights puts back.
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
        # A page is sooner computed than waited for; `leaderboard.core.cache.redis` then leaves the server alone.
        "OPTIONS": {"socket_timeout": 1.0, "socket_connect_timeout": 1.0},
    }
}
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# For ever: a worker without a broker still works, since it looks into the database.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# A worker reconnects after an error that the broker reports, such as WRONGTYPE, and not only after a lost connection.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
# What runs was acknowledged when it came: a lost connection says nothing about it.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    **unacked_keys(REDIS_URL),
    "visibility_timeout": 24 * 3600,
    "unacked_restore_interval": 5,
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    # A wakeup that cannot be sent is not waited for: without this, six seconds whenever the broker is away.
    "max_retries": 0,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "dispatch"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A new pool process compiles the kernels before it says that it is there; the default of 4 s would kill it.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 120.0
# Whoever reaches the broker could otherwise ask workers for their settings, and tell them to stop.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False


@dataclass(frozen=True)
class QueueTimes:
    """Times of the queue, in seconds. Tests that kill many workers shorten all of them."""

    lease: float = 60.0  # silence of a worker after which its job is given to another
    look: float = 2.0  # between two heartbeats of a claim, which also look for cancellations
    unheard: float = 30.0  # after which a process is killed whose work does not stop
    heartbeat: float = 10.0  # between two heartbeats of a worker
    worker_silence: float = 30.0  # after which a worker counts as dead
    retries: tuple[float, ...] = (0.0, 60.0)  # before the next attempt, by the number of attempts
    dispatch: float = 5.0  # between two turns of the dispatcher
    idle_poll: float = 10.0  # between two looks of an idle worker into the database, for lost wakeups


QUEUE_TIMES = QueueTimes()
#: The longest a job may run, in seconds.
JOB_WALL_CLOCK_SECONDS = env.int("JOB_WALL_CLOCK_SECONDS", default=6 * 3600)
#: A file that a worker touches at each heartbeat, for health checks of containers; empty: none.
HEARTBEAT_FILE = env.str("HEARTBEAT_FILE", default="")
#: Seconds without work after which a worker ends; 0: never. `manage.py worker --until-idle` sets it.
WORKER_UNTIL_IDLE = env.float("WORKER_UNTIL_IDLE", default=0.0)

CELERY_BEAT_SCHEDULE = {
    "dispatch": {
        "task": "runboard.dispatch",
        "schedule": QUEUE_TIMES.dispatch,
        "options": {"expires": QUEUE_TIMES.dispatch},
    },
    "sweep": {"task": "runboard.sweep", "schedule": 3600.0, "options": {"expires": 3600.0}},
}


# --- database

#: Seconds to wait for a server that does not answer at all: a page then says so, and hangs no longer.
_CONNECT_SECONDS = 5
#: A connection whose other end is gone without a word is given up after about half a minute.
_SERVER_OPTIONS = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
#: Seconds after which PostgreSQL ends an idle transaction, so that a frozen process or a suspended machine holds no
#: locks. None of our work computes for so long between two statements.
_IDLE_TRANSACTION_SECONDS = 60


def databases() -> dict[str, dict[str, Any]]:
    """SQLite tuned so that web and workers write side by side, or the server that `DATABASE_URL` names."""
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
                # Without recursive triggers a row that REPLACE takes away fires none: the audit log would not be kept.
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA recursive_triggers=ON; "
                "PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000;",
            },
        }
    }


DATABASES = databases()
# knox would make a table for its own token model, which ours replaces: unused, but in the way of every TRUNCATE.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
#: The folder of pg_dump and pg_restore, for backups; empty: those on PATH.
POSTGRESQL_BIN = env.str("POSTGRESQL_BIN", default="")


# --- models

#: Documents that are encoded as one piece of work; larger corpora are shared out between workers.
SHARD_SIZE = env.int("SHARD_SIZE", default=50_000)
#: The most bytes of embeddings on disk, and of BM25 indexes each; the least recently used go first.
EMBEDDINGS_CACHE_BYTES = env.int("EMBEDDINGS_CACHE_BYTES", default=50 * 2**30)
#: The same for the bucket of `EMBEDDINGS_STORAGE`; 0: as much as there is.
EMBEDDINGS_STORAGE_BYTES = env.int("EMBEDDINGS_STORAGE_BYTES", default=0)
#: What a host of workers alone may have of the store that `STORE_STORAGE` shares, in bytes; 0: everything stays.
STORE_COPIES_BYTES = env.int("STORE_COPIES_BYTES", default=0)

#: auto (bwrap), bwrap, or none (staff on this machine only).
SANDBOX = env.str("SANDBOX", default="auto")
#: A control group, version 2, whose children have memory.max and pids.max; empty: the worker's own.
SANDBOX_CGROUP = env.str("SANDBOX_CGROUP", default="")
#: What one model may use: memory, wall clock, bytes written (index and run), and cores.
MODEL_MEMORY_BYTES = env.int("MODEL_MEMORY_BYTES", default=three_quarters_of_memory())
MODEL_WALL_CLOCK_SECONDS = JOB_WALL_CLOCK_SECONDS * 9 // 10
MODEL_OUTPUT_BYTES = env.int("MODEL_OUTPUT_BYTES", default=64 * 1024**3)
MODEL_THREADS = env.int("MODEL_THREADS", default=usable_cores())
#: The lock of everybody who works or measures on this machine; containers on one machine must share it.
TIMING_LOCK = env.str("TIMING_LOCK", default=f"{tempfile.gettempdir()}/runboard-timing-{os.geteuid()}.lock")
