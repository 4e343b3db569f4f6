"""Signing in with another service: the same rules for new accounts as at the site's own form.

Nobody comes into an account that is here by an address that a service names, unless the operator's provider is the way
in (`SIGN_IN`). An address that the service has not verified is verified by mail, and the second factor and the approval
of accounts are stages of every sign-in (`submissions.accounts.adapter`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.forms import SignupForm
from allauth.socialaccount.models import SocialApp, SocialLogin
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase

from leaderboard.models import User
from submissions.accounts.forms import SiteLabels, check_domain
from submissions.accounts.teams import personal_team


class ElsewhereAdapter(DefaultSocialAccountAdapter):
    """allauth's handling, with this site's rules for who may sign up."""

    error_messages = DefaultSocialAccountAdapter.error_messages | {
        "email_taken": "An account has this e-mail address. Sign in to it, then connect your %s account on its page.",
        "no_password": "Set a password first: this is the only way in that the account has.",
        "no_verified_email": "Verify an e-mail address first.",
    }

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whether nothing is asked: the service names an address that may sign up here."""
        addresses = sociallogin.email_addresses
        try:
            check_domain(addresses[0].email if addresses else "")
        except ValidationError:
            return False
        return bool(super().is_auto_signup_allowed(request, sociallogin))

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Store the new account and its team. Where curators approve accounts it waits for one."""
        person = sociallogin.user
        assert isinstance(person, User)
        person.name = ""  # what the service calls somebody is not theirs to show here before they say so
        person.approval_awaited = settings.SIGNUP == "approval"
        saved: User = super().save_user(request, sociallogin, form)
        personal_team(saved)
        return saved


class ElsewhereSignupForm(SiteLabels, SignupForm):
    """The address of a new account, where the service names none that may sign up."""

    def clean_email(self) -> str:
        """The address. Its domain is asked before anybody looks whether it has an account."""
        check_domain(self.cleaned_data["email"])
        address: str = super().clean_email()
        return address


def where_configured(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """allauth's view of another service: nothing is there but for services that have keys."""

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        if not settings.SOCIALACCOUNT_PROVIDERS:
            raise Http404
        try:
            return view(request, *arguments, **options)
        except SocialApp.DoesNotExist as error:
            raise Http404 from error

    return answer


def where_passwords(view: Callable[..., HttpResponseBase], *methods: str) -> Callable[..., HttpResponseBase]:
    """allauth's view of passwords: where services alone sign in nothing is there, or nothing by these methods."""

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        if settings.SIGN_IN == "services" and (not methods or request.method in methods):
            raise Http404
        return view(request, *arguments, **options)

    return answer
