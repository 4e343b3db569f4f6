"""What happens when someone signs up or in, beyond what allauth does."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context as allauth_context
from allauth.core import ratelimit
from allauth.core.exceptions import ImmediateHttpResponse
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.sites.shortcuts import get_current_site
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from leaderboard.models import User
from submissions.notices.account_mail import write_account_mail
from submissions.people.teams import personal_team


class AccountAdapter(DefaultAccountAdapter):
    """allauth's account handling, giving everyone a team of one, and a plain 429 to who fails too often."""

    def save_user(
        self, request: HttpRequest, user: AbstractBaseUser, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """Store the new account and its team."""
        saved = super().save_user(request, user, form, commit)
        if commit and isinstance(saved, User):
            personal_team(saved)
        return saved

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Write the mail down; the notifier sends it, so that nobody waits for a mail server or fails by one."""
        request = allauth_context.request
        whole = {"request": request, "email": email, "current_site": get_current_site(request), **context}
        write_account_mail(self.render_mail(template_prefix, email, whole))

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt. Raises ImmediateHttpResponse (429) where there were too many."""
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise ImmediateHttpResponse(ratelimit.respond_429(request)) from error
