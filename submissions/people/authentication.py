"""`Authorization: Bearer <token>`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from submissions.models import ApiToken


class TokenAuthentication(KnoxTokenAuthentication):
    """knox's check of a token, noting to the minute when it was last used."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """The person and the token, None where no token is sent; raises AuthenticationFailed for a wrong one."""
        found: tuple[Any, Any] | None = super().authenticate(request)
        if found is not None:
            token = found[1]
            now = timezone.now()
            if token.last_used_at is None or (now - token.last_used_at).total_seconds() > 60:
                ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return found


def takes_tokens(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A page that scripts may read as well: a token counts as its person's session, a wrong one is answered 401.

    Only for views that change nothing, for a token is asked for no CSRF token.
    """

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        authentication = TokenAuthentication()
        try:
            found = authentication.authenticate(Request(request))
        except AuthenticationFailed as error:
            response: HttpResponseBase = HttpResponse(
                f"{error.detail}\n", status=401, content_type="text/plain; charset=utf-8"
            )
            response.headers["WWW-Authenticate"] = authentication.authenticate_header(request)
        else:
            if found is not None:
                request.user = found[0]
            response = view(request, *arguments, **options)
        patch_vary_headers(response, ["Authorization", "Cookie"])
        return response

    return answer
