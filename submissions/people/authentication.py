"""`Authorization: Bearer <token>`."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
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
