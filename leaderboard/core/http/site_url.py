"""How the site is called from elsewhere: in feeds, exports, badges and commands to copy."""

import os

from django.conf import settings
from django.http import HttpRequest


def site_address(request: HttpRequest) -> str:
    """`https://host`, without a slash: the one of `SITE_ADDRESS`, else the one by which the visitor came."""
    configured: str = settings.SITE_ADDRESS
    return configured or f"{request.scheme}://{request.get_host()}"


def absolute(request: HttpRequest, path: str) -> str:
    """The whole address of a path of ours, which begins with a slash."""
    return site_address(request) + path


def is_own_address(request: HttpRequest) -> bool:
    """Whether the address is the site's own: configured, or without a port that the visitor may have made up."""
    _, colon, port = request.get_host().rpartition(":")
    has_port = colon and port.isdigit()
    return bool(settings.SITE_ADDRESS) or not has_port or port == request.META.get("SERVER_PORT")


def own_address() -> str:
    """The same where nobody asks, as in mail: `SITE_ADDRESS`, else the first host that the site answers to."""
    if settings.SITE_ADDRESS:
        return str(settings.SITE_ADDRESS)
    if settings.EMBEDDED:
        return f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
    named = (host for host in settings.ALLOWED_HOSTS if host and host[0] not in "*.")
    return f"{'https' if settings.HTTPS else 'http'}://{next(named, 'localhost')}"
