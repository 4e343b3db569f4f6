"""The database: SQLite in the folder of state, or the server that `DATABASE_URL` names.

What is acknowledged is on disk (docs/decisions/0032): every commit is synced, on SQLite by `synchronous=FULL`, on
PostgreSQL by its own defaults, which `manage.py check --database default` looks at.
"""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from leaderboard.settings.queue import QUEUE_TIME_SCALE
from leaderboard.settings.site import VAR, env

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


#: Seconds that a transaction may stand still between two statements before the server ends it. A process that is
#: frozen, or a machine that is suspended, in the middle of one holds its locks no longer. No work of ours computes for
#: so long between two statements.
IDLE_TRANSACTION_SECONDS = env.float("IDLE_TRANSACTION_SECONDS", default=60.0) * QUEUE_TIME_SCALE


def _limits() -> str:
    """What each session asks of the server."""
    return f"-c idle_in_transaction_session_timeout={round(IDLE_TRANSACTION_SECONDS * 1000)}"


def databases() -> dict[str, dict[str, Any]]:
    """SQLite tuned so that web and workers write side by side, or the server that `DATABASE_URL` names."""
    if "DATABASE_URL" in os.environ:
        database = env.db_url("DATABASE_URL")
        database.setdefault("CONN_MAX_AGE", 60)
        database["CONN_HEALTH_CHECKS"] = True
        if "postgresql" in database["ENGINE"]:
            database["OPTIONS"] = {**_SERVER_OPTIONS, "options": _limits(), **database.get("OPTIONS", {})}
        return {"default": database}
    synchronous = env.str("SQLITE_SYNCHRONOUS", default="FULL")
    if synchronous not in ("FULL", "EXTRA", "NORMAL", "OFF"):
        raise ImproperlyConfigured("SQLITE_SYNCHRONOUS is to be FULL, EXTRA, NORMAL or OFF.")
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
                f"PRAGMA synchronous={synchronous}; PRAGMA busy_timeout=20000;",
            },
        }
    }


DATABASES = databases()
# knox would make a table for its own token model, which ours replaces: unused, but in the way of every TRUNCATE.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
#: The folder of pg_dump and pg_restore, for backups; empty: those on PATH.
POSTGRESQL_BIN = env.str("POSTGRESQL_BIN", default="")
