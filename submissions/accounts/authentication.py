"""Authentication of API calls by `Authorization: Bearer <token>`, and checks of token scopes.

A view declares the required scope of tokens in `required_scope`: one scope, or one per method. Views without it
accept no tokens, so that a forgotten declaration denies access.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from knox.crypto import hash_token
from rest_framework import status
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.request import Request

from evaluation.core.problems import ProblemCode
from leaderboard.core.http.api_errors import ApiError, problem
from leaderboard.core.text.dates import format_day
from leaderboard.models import User
from submissions.models import ApiToken, Scope

MISSING_SCOPE = ProblemCode(
    "missing_scope",
    "The token lacks the scope for this call.",
    "Create a token with the scope that the message names on your account page.",
)
MEMBERS_ONLY = ProblemCode("members_only", "This site is for members only.", "Sign in, or send your API token.")
NO_TOKENS = ProblemCode("no_tokens", "The call does not accept tokens.", "Sign in and use the page instead.")


class TokenAuthentication(KnoxTokenAuthentication):
    """Token authentication that records the last use to the minute."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return the user and the token, or None if the request has no token. Record the token's use.

        Raises AuthenticationFailed for an invalid token and ApiError (403) if it lacks the scope for this call.
        """
        credentials: tuple[Any, Any] | None = super().authenticate(request)
        if credentials is None:
            return None
        token = credentials[1]
        if request.method != "OPTIONS":
            check_scope(token, self.scope or get_required_scope(request))
        now = timezone.now()
        if token.last_used_at is None or (now - token.last_used_at).total_seconds() > 60:
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return credentials

    def authenticate_credentials(self, token: bytes) -> tuple[User, ApiToken]:
        """Return the token's user and the token.

        The user has no staff rights if staff need a second factor, because tokens prove none. Raises
        AuthenticationFailed if the token is unknown or expired, the account is closed, or its address is not verified.
        """
        text = token.decode("ascii", errors="replace")
        row = ApiToken.objects.select_related("user").filter(digest=hash_token(text)).first()
        if row is None:
            raise AuthenticationFailed(
                "Unknown token. It was revoked or mistyped; create a new one on the account page."
            )
        if row.expiry is not None and row.expiry < timezone.now():
            raise AuthenticationFailed(
                f"This token expired on {format_day(row.expiry)}. Create a new one on the account page."
            )
        person: User = row.user
        if not person.is_active:
            raise AuthenticationFailed("The account of this token is closed.")
        if not has_good_address(person):
            raise AuthenticationFailed("Your email address is not verified. Sign in to receive a verification link.")
        person.restrained = settings.STAFF_MFA_REQUIRED
        return person, row


def has_good_address(person: User) -> bool:
    """Return whether the user has verified an address, or the site does not require it."""
    if settings.ACCOUNT_EMAIL_VERIFICATION != "mandatory":
        return True
    return EmailAddress.objects.filter(user=person, verified=True).exists()


def own_addresses(person: User) -> set[str]:
    """Return the user's verified addresses in lowercase.

    Without mandatory verification, they include the account's address.
    """
    addresses = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    own_address = () if settings.ACCOUNT_EMAIL_VERIFICATION == "mandatory" else (person.email,)
    return {address.lower() for address in (*addresses, *own_address)}


def is_good_token(request: HttpRequest) -> bool:
    """Return whether the request contains a valid token, regardless of its scopes."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        return False
    try:
        TokenAuthentication().authenticate_credentials(token.strip().encode())
    except AuthenticationFailed:
        return False
    return True


def get_required_scope(request: Request) -> Scope | None:
    """Return the scope that the requested view declares for the method, or None."""
    view = request.parser_context.get("view") if request.parser_context else None
    scope = getattr(view, "required_scope", None)
    if isinstance(scope, Mapping):
        scope = scope.get("GET" if request.method == "HEAD" else request.method)
    return Scope(scope) if scope else None


def check_scope(token: ApiToken, scope: Scope | None) -> None:
    """Raise ApiError (403) if the token lacks the scope, or if `scope` is None because the call accepts no tokens."""
    if scope is None:
        raise ApiError(
            NO_TOKENS,
            "This call does not accept tokens. Sign in and use the page instead.",
            status_code=status.HTTP_403_FORBIDDEN,
        )
    if scope in token.scopes:
        return
    message = f"This token lacks the scope “{scope.value}” ({scope.label})."
    token_scopes = ", ".join(token.scopes) or "none"
    hint = f"Its scopes: {token_scopes}. Create a token with “{scope.value}” on the account page."
    raise ApiError(
        MISSING_SCOPE,
        message,
        status_code=status.HTTP_403_FORBIDDEN,
        problems=[problem(MISSING_SCOPE, message, hint)],
        extra={"required_scope": scope.value},
    )


def takes_tokens(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a view that also accepts tokens with the scope `read` in place of a session.

    Invalid tokens get status 401, tokens without the scope 403. Only for views without side effects, because requests
    with a token need no CSRF token.
    """

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        """Sign in by the token, if there is one, and call the view, or return the token's error as text."""
        authentication = TokenAuthentication(Scope.READ)
        try:
            credentials = authentication.authenticate(Request(request))
        except APIException as error:
            response: HttpResponseBase = HttpResponse(
                f"{error.detail}\n", status=error.status_code, content_type="text/plain; charset=utf-8"
            )
            if isinstance(error, AuthenticationFailed):
                response.status_code = status.HTTP_401_UNAUTHORIZED
                response.headers["WWW-Authenticate"] = authentication.authenticate_header(request)
        else:
            if credentials is not None:
                request.user = credentials[0]
            response = view(request, *arguments, **options)
        patch_vary_headers(response, ["Authorization", "Cookie"])
        return response

    answer.required_scope = Scope.READ  # type: ignore[attr-defined]
    return answer
