"""Checks of a site on the internet, for `manage.py check --deploy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Warning


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
