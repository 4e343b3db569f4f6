"""What happens around each request of somebody signed in: rights of staff rest, sessions are seen, waits are said."""

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

#: A session's place and time in the list are at most so many seconds old.
SEEN_SECONDS = 300


#: What a site for members alone answers to everybody: to a monitor, a browser and a finder of faults …
_OPEN = {"healthz", "readyz", "metrics", "security-txt", "robots-txt", "favicon", "site-css", "site-logo"}
#: … and to who signs in, by the beginnings of names: allauth's, and those of other providers.
_SIGNING_IN = (
    "account_login", "account_logout", "account_signup", "account_reset", "account_confirm",
    "account_inactive", "account_email_verification", "mfa_authenticate", "socialaccount_", "github_",
    "openid_connect_",
)  # fmt: skip


class MembersMiddleware(MiddlewareMixin):
    """With ACCESS=members, asks whoever is not signed in to sign in: every page, file, feed and call of the API.

    A good token is as good here; what it may be used for, the view asks. No cache keeps an answer for others.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, options: Any
    ) -> HttpResponseBase | None:
        """None for whoever is a member, and for what everybody may ask for."""
        if settings.ACCESS == "public" or request.user.is_authenticated or is_good_token(request):
            return None
        name = (request.resolver_match.url_name if request.resolver_match else None) or ""
        if name in _OPEN or name.startswith(_SIGNING_IN):
            return None
        if request.path.startswith("/api/"):
            told = {
                "code": MEMBERS_ONLY,
                "detail": f"{MEMBERS_ONLY.meaning} {MEMBERS_ONLY.remedy}",
                "problems": [],
            }
            return JsonResponse(told, status=401, headers={"WWW-Authenticate": "Bearer"})
        answer = redirect_to_login(request.get_full_path())
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Redirect": answer.url})
        return answer

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Keep what members are answered out of caches that others ask."""
        if settings.ACCESS == "members" and "no-store" not in response.headers.get("Cache-Control", ""):
            response.headers["Cache-Control"] = "private, no-cache"
        return response


class PersonMiddleware(MiddlewareMixin):
    """Lets the rights of staff rest in a session that has not shown their second factor, notes for its owner's list
    from where and when a session was used, and says in a header of every 429 after how long the same may be asked.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Mark the person where their rights rest: before anybody can ask what they may, so that no page has to."""
        if settings.STAFF_MFA_REQUIRED:
            person = request.user
            request.user = SimpleLazyObject(lambda: _mark_restrained(request, person))  # type: ignore[assignment]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Note the session, only where the answer itself looked at who asks; say how long to wait, as what counted the
        request has left it."""
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
    """Once in `SEEN_SECONDS` a session; without a cache not at all, or every page would write."""
    key = f"seen:{request.session.session_key}"
    if cache.get(key) or not request.user.is_authenticated:
        return
    cache.set(key, True, SEEN_SECONDS)
    if not cache.get(key):
        return
    try:
        UserSession.objects.create_from_request(request)
    except PermissionDenied:  # no address, as over a socket without a proxy
        logger.warning("a session is not in its list: the request has no address")
