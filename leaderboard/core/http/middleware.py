"""Headers for every answer, and faults of ours told apart from everything else."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.cache import patch_vary_headers

from leaderboard.core.http import errors

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class PolicyMiddleware:
    """Says which of a browser's features no page here uses, and that other sites show nothing of this one."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Add the headers; a view may have said otherwise (badges are made to be shown elsewhere)."""
        response = self.get_response(request)
        response.headers.setdefault("Permissions-Policy", settings.PERMISSIONS_POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


class ApiCachingMiddleware:
    """Says of every answer of the API that it depends on who asks, and of those to somebody that nobody keeps them.

    What is public and asked for by nobody in particular keeps what its view says: boards may be kept, and asked again.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Add the headers."""
        response = self.get_response(request)
        if request.path.startswith("/api/"):
            patch_vary_headers(response, ["Authorization", "Cookie"])
            to_somebody = (
                "Authorization" in request.headers or settings.SESSION_COOKIE_NAME in request.COOKIES
            )
            if to_somebody and "no-store" not in response.headers.get("Cache-Control", ""):
                response.headers["Cache-Control"] = "private, no-store"
        return response


class NullCharacterMiddleware:
    """Refuses addresses with a character 0: no text kept here has one, and PostgreSQL takes none in a question."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """400 for it, in the kind of answer that the address has."""
        if "\0" not in request.path_info and "%00" not in request.META.get("QUERY_STRING", ""):
            return self.get_response(request)
        detail = "The address has a character 0 (%00) in it. Leave it out."
        if request.path.startswith("/api/") or request.path.endswith(".json"):
            return JsonResponse({"code": "bad-address", "detail": detail, "problems": []}, status=400)
        return HttpResponse(f"{detail}\n", content_type="text/plain; charset=utf-8", status=400)


class FaultMiddleware:
    """Logs an unexpected exception of a view under an id, and shows the visitor the id and no more.

    What middleware raises comes to `leaderboard.core.http.errors.server_error`, which `leaderboard.urls` names as the
    handler of errors.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer 500, or 503 when the database is away or a disk is full."""
        if isinstance(error, (Http404, PermissionDenied, SuspiciousOperation, BadRequest)):
            return None
        return errors.answer(request, error)
