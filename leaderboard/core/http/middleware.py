"""The middleware of requests: an id and a line of the log, headers of every answer, refusals, and faults of ours."""

import functools
import io
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.wsgi import WSGIRequest
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.cache import patch_vary_headers

from leaderboard.core.http import errors
from leaderboard.core.logging import request_context, view_of

#: Browser features that no page uses, switched off for scripts.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "autoplay", "browsing-topics", "camera", "display-capture",
        "encrypted-media", "fullscreen", "gamepad", "geolocation", "gyroscope", "hid",
        "identity-credentials-get", "idle-detection", "local-fonts", "magnetometer", "microphone", "midi",
        "payment", "picture-in-picture", "screen-wake-lock", "serial", "storage-access", "usb",
        "xr-spatial-tracking",
    )
)  # fmt: skip
logger = logging.getLogger("runboard.requests")

GetResponse = Callable[[HttpRequest], HttpResponseBase]
REQUEST_ID_HEADER = "X-Request-ID"
#: What is taken from a proxy: anything else could forge lines of the log.
_ACCEPTABLE = re.compile(r"[A-Za-z0-9-]{8,64}")
#: What a page may be asked by; whether it takes POST, it says itself.
PAGE_METHODS = ("GET", "HEAD", "POST")


class Middleware:
    """Passes requests on: the base of those that look at a request or at its answer."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self.get_response(request)


class HeadersMiddleware(Middleware):
    """Says which of a browser's features no page here uses, that other sites show nothing of this one, and who may keep
    an answer of the API.

    Every answer of the API depends on who asks, and of those to somebody nobody keeps one. What is public and asked for
    by nobody in particular keeps what its view says: boards may be kept, and asked again.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Add the headers; a view may have said otherwise (badges are made to be shown elsewhere)."""
        response = self.get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if request.path.startswith("/api/"):
            patch_vary_headers(response, ["Authorization", "Cookie"])
            to_somebody = (
                "Authorization" in request.headers or settings.SESSION_COOKIE_NAME in request.COOKIES
            )
            if to_somebody and "no-store" not in response.headers.get("Cache-Control", ""):
                response.headers["Cache-Control"] = "private, no-store"
        return response


class NullCharacterMiddleware(Middleware):
    """Refuses addresses with a character 0: no text kept here has one, and PostgreSQL takes none in a question."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """400 for it, in the kind of answer that the address has."""
        if "\0" not in request.path_info and "%00" not in request.META.get("QUERY_STRING", ""):
            return self.get_response(request)
        detail = "The address has a character 0 (%00) in it. Leave it out."
        if request.path.startswith("/api/") or request.path.endswith(".json"):
            return JsonResponse({"code": "bad-address", "detail": detail, "problems": []}, status=400)
        return HttpResponse(f"{detail}\n", content_type="text/plain; charset=utf-8", status=400)


class FaultMiddleware(Middleware):
    """Logs an unexpected exception of a view under an id, and shows the visitor the id and no more.

    What middleware raises comes to `leaderboard.core.http.errors.server_error`, which `leaderboard.urls` names as the
    handler of errors.
    """

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer 500, or 503 when the database is away or a disk is full."""
        if isinstance(error, (Http404, PermissionDenied, SuspiciousOperation, BadRequest)):
            return None
        return errors.error_response(request, error)


class MethodsMiddleware(Middleware):
    """Answers 405 for a page that is asked by any other method, before anything of the page runs.

    The frameworks' own pages (the admin's, the account's) take PUT for POST, and anything else for GET.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Any
    ) -> HttpResponseBase | None:
        """None where the view may be asked so."""
        if request.method in PAGE_METHODS or request.path_info.startswith("/api/"):
            return None
        return HttpResponseNotAllowed(PAGE_METHODS)


class RequestIdMiddleware(Middleware):
    """Names the request and, once it is answered, writes one line about it.

    The line has the name of the view, never the address: addresses carry invitations and keys to reset passwords.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, and name it in the answer."""
        sent = request.headers.get(REQUEST_ID_HEADER, "") if settings.BEHIND_PROXY else ""
        identifier = sent if _ACCEPTABLE.fullmatch(sent) else secrets.token_hex(8)
        began = time.perf_counter()
        with request_context(identifier):
            response = self.get_response(request)
            response.headers[REQUEST_ID_HEADER] = identifier
            if not request.path.startswith(settings.STATIC_URL):
                fields = {
                    "method": request.method,
                    "view": view_of(request),
                    "status": response.status_code,
                    "milliseconds": round((time.perf_counter() - began) * 1000, 1),
                }
                logger.info("%s %s %s %s ms", *fields.values(), extra=fields)
        return response


@functools.cache
def policy_headers() -> dict[str, str]:
    """The headers that the middleware adds to every answer, for the few answers that do not pass it."""

    def empty(request: HttpRequest) -> HttpResponse:
        response = HttpResponse()
        del response.headers["Content-Type"]
        return response

    handle: Callable[[Any], Any] = empty
    for middleware in (XFrameOptionsMiddleware, HeadersMiddleware, CSPMiddleware, SecurityMiddleware):
        handle = middleware(handle)
    environ = {"REQUEST_METHOD": "GET", "wsgi.url_scheme": "https", "wsgi.input": io.BytesIO()}
    return dict(handle(WSGIRequest(environ)).items())
