"""Checks of a site on the internet, for `manage.py check --deploy`, and of its database, for `--database default`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.db import connections


def check_mail(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Whether a public site can have addresses confirmed."""
    if settings.EMBEDDED or settings.ACCOUNT_EMAIL_VERIFICATION == "mandatory":
        return []
    return [
        Warning(
            "This site has no mail server, so anyone can sign up under any e-mail address, unconfirmed.",
            hint="Set EMAIL_URL, such as smtp+tls://USER:PASSWORD@HOST:587.",
            id="leaderboard.W001",
        )
    ]


def check_durability(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Whether PostgreSQL has on disk what it says is committed: an upload is acknowledged on its word."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        if connections[alias].vendor != "postgresql":
            continue
        with connections[alias].cursor() as cursor:
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                cursor.execute(f"SHOW {name}")
                if cursor.fetchone()[0] == "off":
                    found.append(_not_durable(name))
    return found


def _not_durable(name: str) -> Warning:
    return Warning(
        f"PostgreSQL runs with {name}=off: a crash may lose submissions that were acknowledged.",
        hint=f"Set {name} = on in postgresql.conf, or remove it where it was set for the role or the database.",
        id="leaderboard.W002",
    )
