"""`Authorization: Bearer <token>`: whose token it is, whether it is good now, and whether it may be used for this.

A call says in `required_scope` what a token needs for it: one scope, or one for each method. Without a word no token
is taken, so that a call whose author forgot is closed to tokens, not open to all.
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
from leaderboard.models import User
from submissions.models import ApiToken, Scope

MISSING_SCOPE = ProblemCode("missing_scope", "The token may not be used for this call.", "Make one with the scope "
    "that the message names, on your account page.")  # fmt: skip
MEMBERS_ONLY = ProblemCode(
    "members_only", "The site is for its members.", "Sign in, or send a token of yours."
)
NO_TOKENS = ProblemCode("no_tokens", "The call takes no tokens.", "Use it signed in.")


class TokenAuthentication(KnoxTokenAuthentication):
    """Our check of a token, noting to the minute when it was last used."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return the person and the token, None where none is sent.

        Raises AuthenticationFailed for one that is not good, ApiError (403) for one that is not good for this call.
        """
        credentials: tuple[Any, Any] | None = super().authenticate(request)
        if credentials is None:
            return None
        token = credentials[1]
        if request.method != "OPTIONS":
            check_scope(token, self.scope or scope_of(request))
        now = timezone.now()
        if token.last_used_at is None or (now - token.last_used_at).total_seconds() > 60:
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return credentials

    def authenticate_credentials(self, token: bytes) -> tuple[User, ApiToken]:
        """Return the token's person, who has here no rights of staff: a token shows no second factor."""
        text = token.decode("ascii", errors="replace")
        row = ApiToken.objects.select_related("user").filter(digest=hash_token(text)).first()
        if row is None:
            raise AuthenticationFailed("There is no such token: it was revoked, or is not written as it was.")
        if row.expiry is not None and row.expiry < timezone.now():
            raise AuthenticationFailed(
                f"This token expired on {row.expiry:%-d %B %Y}. Make a new one on the account page."
            )
        person: User = row.user
        if not person.is_active:
            raise AuthenticationFailed("The account of this token is closed.")
        if not has_good_address(person):
            raise AuthenticationFailed(
                "Verify the e-mail address of your account first: sign in to have mail sent."
            )
        person.restrained = settings.STAFF_MFA_REQUIRED
        return person, row


def has_good_address(person: User) -> bool:
    """Return whether the person verified an address, where the site can send mail to have one verified."""
    if settings.ACCOUNT_EMAIL_VERIFICATION != "mandatory":
        return True
    return EmailAddress.objects.filter(user=person, verified=True).exists()


def own_addresses(person: User) -> set[str]:
    """Return a person's addresses in lower case: verified ones, and the account's own if the site sends no mail."""
    addresses = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    own = {address.lower() for address in addresses}
    return own if settings.ACCOUNT_EMAIL_VERIFICATION == "mandatory" else {person.email.lower(), *own}


def is_good_token(request: HttpRequest) -> bool:
    """Return whether the request brings a token that is good for anything."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        return False
    try:
        TokenAuthentication().authenticate_credentials(token.strip().encode())
    except AuthenticationFailed:
        return False
    return True


def scope_of(request: Request) -> Scope | None:
    """What the call that is asked needs a token to have; None where it says nothing."""
    view = request.parser_context.get("view") if request.parser_context else None
    declared = getattr(view, "required_scope", None)
    if isinstance(declared, Mapping):
        declared = declared.get("GET" if request.method == "HEAD" else request.method)
    return Scope(declared) if declared else None


def check_scope(token: ApiToken, scope: Scope | None) -> None:
    """Raise ApiError (403) where the token may not be used for this."""
    if scope is None:
        raise ApiError(
            NO_TOKENS, "This call takes no tokens: use it signed in.", status_code=status.HTTP_403_FORBIDDEN
        )
    if scope in token.scopes:
        return
    message = f"This token lacks the scope “{scope.value}” ({scope.label})."
    held = ", ".join(token.scopes) or "none"
    hint = f"It has: {held}. Create token with “{scope.value}” on the account page."
    raise ApiError(
        MISSING_SCOPE,
        message,
        status_code=status.HTTP_403_FORBIDDEN,
        problems=[problem(MISSING_SCOPE, message, hint)],
        extra={"required_scope": scope.value},
    )


def takes_tokens(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a page that scripts may read as well: a token that may read counts as its person's session.

    One that is not good is answered 401, one that may not read 403. Only for views that change nothing, for a token is
    asked for no CSRF token.
    """

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
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
