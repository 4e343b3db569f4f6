"""Middleware for members-only sites, staff rights, session lists, and Retry-After headers."""

import logging
from collections.abc import Callable
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject

from leaderboard.models import User
from submissions.accounts.access import session_has_second_factor
from submissions.accounts.authentication import MEMBERS_ONLY, is_good_token

logger = logging.getLogger(__name__)

#: Maximum age in seconds of a session's address and time in the list.
SEEN_SECONDS = 300


#: URL names that members-only sites serve to everyone, for monitors, browsers, and security researchers.
_PUBLIC_NAMES = {"healthz", "readyz", "metrics", "security-txt", "robots-txt", "favicon", "site-css", "site-logo"}
#: Prefixes of URL names needed to sign in: allauth's and those of other providers.
_SIGN_IN_PREFIXES = (
    "account_login", "account_logout", "account_signup", "account_reset", "account_confirm",
    "account_inactive", "account_email_verification", "mfa_authenticate", "mfa_login", "socialaccount_", "github_",
    "openid_connect_",
)  # fmt: skip


class MembersMiddleware(MiddlewareMixin):
    """Middleware that requires sign-in for every page, file, feed, and API call if ACCESS=members.

    A valid token is sufficient here; views check its scopes. Responses are not cached for other users.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Any
    ) -> HttpResponseBase | None:
        """Return None to serve the request, or a response that asks the visitor to sign in.

        Visitors without a session or valid token can use only a few public pages and the pages for signing in. The API
        answers with 401.
        """
        if settings.ACCESS == "public" or request.user.is_authenticated or is_good_token(request):
            return None
        name = (request.resolver_match.url_name if request.resolver_match else None) or ""
        if name in _PUBLIC_NAMES or name.startswith(_SIGN_IN_PREFIXES):
            return None
        if request.path.startswith("/api/"):
            error = {"code": MEMBERS_ONLY, "detail": f"{MEMBERS_ONLY.meaning} {MEMBERS_ONLY.remedy}", "problems": []}
            return JsonResponse(error, status=401, headers={"WWW-Authenticate": "Bearer"})
        answer = redirect_to_login(request.get_full_path())
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Redirect": answer.url})
        return answer

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Prevent shared caches from storing responses of members-only sites."""
        if settings.ACCESS == "members" and "no-store" not in response.headers.get("Cache-Control", ""):
            response.headers["Cache-Control"] = "private, no-cache"
        return response


class PersonMiddleware(MiddlewareMixin):
    """Middleware that suspends staff rights without a second factor, tracks sessions, and sets Retry-After."""

    def process_request(self, request: HttpRequest) -> None:
        if settings.STAFF_MFA_REQUIRED:
            person = request.user
            request.user = SimpleLazyObject(lambda: _mark_restrained(request, person))  # type: ignore[assignment]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Record the session if it was used, and set Retry-After on 429 responses."""
        if request.session.accessed and not request.session.is_empty() and request.session.session_key:
            _record_session(request)
        if response.status_code == 429 and "Retry-After" not in response.headers:
            response.headers["Retry-After"] = str(getattr(request, "retry_after", 60))
        return response


def _mark_restrained(request: HttpRequest, person: object) -> object:
    if isinstance(person, User) and (person.is_staff or person.is_superuser):
        person.restrained = not session_has_second_factor(request, person)
    return person


def _record_session(request: HttpRequest) -> None:
    """Add the signed-in user's session to the list of sessions, at most every `SEEN_SECONDS`.

    Does nothing without a working cache, because every request would then write to the database.
    """
    key = f"seen:{request.session.session_key}"
    if cache.get(key) or not request.user.is_authenticated:
        return
    cache.set(key, True, SEEN_SECONDS)
    if not cache.get(key):
        return
    try:
        UserSession.objects.create_from_request(request)
    except PermissionDenied:  # the request has no address, for example over a Unix socket without a proxy
        logger.warning("session not recorded: the request has no client address")
