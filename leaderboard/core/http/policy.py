"""The headers of every answer, for the few that do not pass the middleware which adds them."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

from csp.middleware import CSPMiddleware
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware

from leaderboard.core.http.middleware import PolicyMiddleware


@functools.cache
def policy_headers() -> dict[str, str]:
    """What the middleware adds to an answer that says nothing of itself."""
    handle: Callable[[Any], Any] = _empty
    for middleware in (XFrameOptionsMiddleware, PolicyMiddleware, CSPMiddleware, SecurityMiddleware):
        handle = middleware(handle)
    environ = {"REQUEST_METHOD": "GET", "wsgi.url_scheme": "https", "wsgi.input": io.BytesIO()}
    return dict(handle(WSGIRequest(environ)).items())


def _empty(request: HttpRequest) -> HttpResponse:
    response = HttpResponse()
    del response.headers["Content-Type"]
    return response
