"""Absolute URLs of the site, for feeds, exports, badges and commands to copy."""

import os

from django.conf import settings
from django.http import HttpRequest


def site_address(request: HttpRequest) -> str:
    """Return `https://host` without a slash: `SITE_ADDRESS` if configured, else the address of the request."""
    configured: str = settings.SITE_ADDRESS
    return configured or f"{request.scheme}://{request.get_host()}"


def absolute(request: HttpRequest, path: str) -> str:
    return site_address(request) + path


def is_own_address(request: HttpRequest) -> bool:
    """Return whether the address is configured, or has no port that the visitor could have made up."""
    _, colon, port = request.get_host().rpartition(":")
    has_port = colon and port.isdigit()
    return bool(settings.SITE_ADDRESS) or not has_port or port == request.META.get("SERVER_PORT")


def default_site_address() -> str:
    """Return the site's address outside of requests, as in mail: `SITE_ADDRESS`, else the first allowed host."""
    if settings.SITE_ADDRESS:
        return str(settings.SITE_ADDRESS)
    if settings.EMBEDDED:
        return f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
    hosts = (host for host in settings.ALLOWED_HOSTS if host and host[0] not in "*.")
    return f"{'https' if settings.HTTPS else 'http'}://{next(hosts, 'localhost')}"
