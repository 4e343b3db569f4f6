"""Template context processors."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from leaderboard.core.logging import request_id


def site(request: HttpRequest) -> dict[str, Any]:
    """Return the site's name, branding and sign-in settings for page templates.

    `site_address` is empty unless it is configured, so that pages can be cached for all visitors.
    """
    return {
        "site_name": settings.SITE_NAME,
        "has_logo": settings.SITE_LOGO is not None,
        "accent": settings.ACCENT,
        "site_address": settings.SITE_ADDRESS,
        "site_pages": list(settings.SITE_PAGES),
        "request_id": request_id(),
        "embedded": settings.EMBEDDED,
        "passwords": settings.SIGN_IN == "all",
        "signup_closed": settings.SIGNUP == "closed" or settings.SIGN_IN != "all",
    }
