"""An id for every request: in the answer's header, in every log line about it, and where it comes from a proxy, its."""

from __future__ import annotations

import logging
import re
import secrets
import time

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from leaderboard.core.http.middleware import GetResponse
from leaderboard.core.logging.context import of_request
from leaderboard.core.logging.filters import view_of

logger = logging.getLogger("runboard.requests")

HEADER = "X-Request-ID"
#: What is taken from a proxy: anything else could forge lines of the log.
_ACCEPTABLE = re.compile(r"[A-Za-z0-9-]{8,64}")


class RequestIdMiddleware:
    """Names the request and, once it is answered, writes one line about it.

    The line has the name of the view, never the address: addresses carry invitations and keys to reset passwords.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, and name it in the answer."""
        identifier = _identifier(request)
        began = time.perf_counter()
        with of_request(identifier):
            response = self.get_response(request)
            response.headers[HEADER] = identifier
            if not request.path.startswith(settings.STATIC_URL):
                _write_line(request, response, time.perf_counter() - began)
        return response


def _identifier(request: HttpRequest) -> str:
    told = request.headers.get(HEADER, "") if settings.BEHIND_PROXY else ""
    return told if _ACCEPTABLE.fullmatch(told) else secrets.token_hex(8)


def _write_line(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    view = view_of(request)
    milliseconds = round(seconds * 1000, 1)
    logger.info(
        "%s %s %s %s ms",
        request.method,
        view,
        response.status_code,
        milliseconds,
        extra={
            "method": request.method,
            "view": view,
            "status": response.status_code,
            "milliseconds": milliseconds,
        },
    )
