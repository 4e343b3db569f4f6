"""What happens when someone signs up."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest

from leaderboard.models import User
from submissions.people.teams import personal_team


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """allauth's account handling, giving everyone a team of one."""

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Store the new account and its team."""
        saved: User = super().save_user(request, user, form, commit)
        if commit:
            personal_team(saved)
        return saved
