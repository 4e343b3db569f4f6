"""What the head of every page says of notices."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from leaderboard.models import User
from submissions.notifications.inbox import unread_count


def unread(request: HttpRequest) -> dict[str, Any]:
    """How many notices wait, asked when a template of a signed-in person's page first says it."""

    def count() -> int:
        return unread_count(request.user) if isinstance(request.user, User) else 0

    return {"unread_notices": SimpleLazyObject(count)}
