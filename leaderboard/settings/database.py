"""The database: SQLite in the folder of state, or the server that `DATABASE_URL` names."""

from __future__ import annotations

import os
from typing import Any

from leaderboard.settings.site import VAR, env


def databases() -> dict[str, dict[str, Any]]:
    """SQLite tuned so that web and workers write side by side, or the server that `DATABASE_URL` names."""
    if "DATABASE_URL" in os.environ:
        database = env.db_url("DATABASE_URL")
        database.setdefault("CONN_MAX_AGE", 60)
        database["CONN_HEALTH_CHECKS"] = True
        return {"default": database}
    return {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": VAR / "db.sqlite3",
            "CONN_MAX_AGE": 60,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
            },
        }
    }


DATABASES = databases()
# knox would make a table for its own token model, which ours replaces: unused, but in the way of every TRUNCATE.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
