"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def site(request: HttpRequest) -> dict[str, Any]:
    """The site's name, whether it is the one-command default, and whether anybody may sign up."""
    return {
        "site_name": settings.SITE_NAME,
        "embedded": settings.EMBEDDED,
        "signup_closed": settings.SIGNUP == "closed",
    }
