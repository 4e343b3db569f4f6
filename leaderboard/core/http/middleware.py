"""Request middleware: ids and logging, security headers, rejected requests, and internal faults."""

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
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, JsonResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.cache import patch_vary_headers

from leaderboard.core.http import errors
from leaderboard.core.logging import request_context, view_name

#: Browser features that no page uses, disabled for scripts.
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
#: Valid request ids from a proxy. Other values could forge log lines.
_VALID_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
#: Allowed methods of pages; each view decides whether it accepts POST.
PAGE_METHODS = ("GET", "HEAD", "POST")


class Middleware:
    """Base class of middleware that inspects a request or its response."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)


class HeadersMiddleware(Middleware):
    """Middleware that restricts browser features and cross-origin use, and sets the caching of API responses.

    API responses vary by user, and responses to authenticated users are not stored. Responses to anonymous users keep
    the headers of their view: boards may be cached and revalidated.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Add the headers that the view did not set itself (badges are meant for other sites)."""
        response = self.get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if request.path.startswith("/api/"):
            patch_vary_headers(response, ["Authorization", "Cookie"])
            is_identified = "Authorization" in request.headers or settings.SESSION_COOKIE_NAME in request.COOKIES
            if is_identified and "no-store" not in response.headers.get("Cache-Control", ""):
                response.headers["Cache-Control"] = "private, no-store"
        return response


class NullCharacterMiddleware(Middleware):
    """Middleware that rejects URLs with a NUL character, which no stored text contains and PostgreSQL rejects."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return status 400 if the URL contains a NUL character: JSON for API and `.json` URLs, otherwise text."""
        if "\0" not in request.path_info and "%00" not in request.META.get("QUERY_STRING", ""):
            return self.get_response(request)
        detail = "The URL contains a NUL character (%00). Remove it."
        if request.path.startswith("/api/") or request.path.endswith(".json"):
            return JsonResponse({"code": "bad-address", "detail": detail, "problems": []}, status=400)
        return HttpResponse(f"{detail}\n", content_type="text/plain; charset=utf-8", status=400)


class FaultMiddleware(Middleware):
    """Middleware that logs unexpected exceptions of views under an id and shows visitors only the id.

    Exceptions of other middleware are handled by `leaderboard.core.http.errors.server_error`, the error handler of
    `leaderboard.urls`.
    """

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Log an unexpected error and return its response, or None for errors that Django answers, such as Http404.

        The status is 503 if the database is unavailable or a disk is full, 408 for a slow request, and otherwise 500.
        """
        if isinstance(error, (Http404, PermissionDenied, SuspiciousOperation, BadRequest)):
            return None
        return errors.error_response(request, error)


class MethodsMiddleware(Middleware):
    """Middleware that returns 405 for unsupported methods before the view runs.

    Pages of the frameworks (admin, accounts) treat PUT as POST, and other methods as GET.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Any
    ) -> HttpResponseBase | None:
        """Return 405, or None if the method is allowed."""
        if request.method in PAGE_METHODS or request.path_info.startswith("/api/"):
            return None
        return HttpResponseNotAllowed(PAGE_METHODS)


class RequestIdMiddleware(Middleware):
    """Middleware that assigns an id to each request and logs it in one line.

    The line contains the name of the view instead of the URL, which may contain invitations and password reset keys.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Handle the request under its id, which the response repeats, and log it in one line, except for static files.

        The id is that of the proxy if there is one and its id is valid.
        """
        proxy_id = request.headers.get(REQUEST_ID_HEADER, "") if settings.BEHIND_PROXY else ""
        identifier = proxy_id if _VALID_ID.fullmatch(proxy_id) else secrets.token_hex(8)
        began = time.perf_counter()
        with request_context(identifier):
            response = self.get_response(request)
            response.headers[REQUEST_ID_HEADER] = identifier
            if not request.path.startswith(settings.STATIC_URL):
                fields = {
                    "method": request.method,
                    "view": view_name(request),
                    "status": response.status_code,
                    "milliseconds": round((time.perf_counter() - began) * 1000, 1),
                }
                logger.info("%s %s %s %s ms", *fields.values(), extra=fields)
        return response


@functools.cache
def policy_headers() -> dict[str, str]:
    """Return the headers that middleware adds, for the few responses that bypass it."""

    def empty(request: HttpRequest) -> HttpResponse:
        response = HttpResponse()
        del response.headers["Content-Type"]
        return response

    handle: Callable[[Any], Any] = empty
    for middleware in (XFrameOptionsMiddleware, HeadersMiddleware, CSPMiddleware, SecurityMiddleware):
        handle = middleware(handle)
    environ = {"REQUEST_METHOD": "GET", "wsgi.url_scheme": "https", "wsgi.input": io.BytesIO()}
    return dict(handle(WSGIRequest(environ)).items())
