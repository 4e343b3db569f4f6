"""What happens when someone signs up."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest

from leaderboard.models import User
from submissions.people.teams import personal_team


class AccountAdapter(DefaultAccountAdapter):
    """allauth's account handling, giving everyone a team of one."""

    def save_user(
        self, request: HttpRequest, user: AbstractBaseUser, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """Store the new account and its team."""
        saved = super().save_user(request, user, form, commit)
        if commit and isinstance(saved, User):
            personal_team(saved)
        return saved
