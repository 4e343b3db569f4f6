"""Signing in with another service: the same rules for new accounts as at the site's own form.

Nobody comes into an account that is here by an address that a service names, unless the operator's provider is the way
in (`SIGN_IN`). An address that the service has not verified is verified by mail, and the second factor and the approval
of accounts are stages of every sign-in (`submissions.accounts.adapter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from allauth.account.internal.emailkit import valid_email_or_none
from allauth.account.models import EmailAddress
from allauth.account.utils import user_email
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.forms import SignupForm
from allauth.socialaccount.models import SocialApp, SocialLogin
from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase

from leaderboard.models import User
from submissions.accounts.forms import AllowedDomain, SiteLabels, check_domain
from submissions.accounts.teams import personal_team


class ElsewhereAdapter(DefaultSocialAccountAdapter):
    """allauth's handling, with this site's rules for who may sign up."""

    error_messages = DefaultSocialAccountAdapter.error_messages | {
        "email_taken": "An account has this e-mail address. Sign in to it, then connect your %s account on its page.",
        "no_password": "Set a password first: this is the only way in that the account has.",
        "no_verified_email": "Verify an e-mail address first.",
    }

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Limit a new account to permitted addresses; the first becomes its primary address.

        allauth would choose the primary address among all verified ones, regardless of which one was checked, and would
        also store unverified ones, which may belong to someone else.
        """
        if sociallogin.is_existing:
            return
        sociallogin.email_addresses = _allowed_addresses(sociallogin.email_addresses)
        assert isinstance(sociallogin.user, User)
        user_email(
            sociallogin.user, sociallogin.email_addresses[0].email if sociallogin.email_addresses else ""
        )

    def can_authenticate_by_email(self, login: SocialLogin, email: str) -> bool:
        """Return whether the operator's provider has verified this address of an account here."""
        verified = {each.email for each in login.email_addresses if _is_verified(each)}
        return email in verified and bool(super().can_authenticate_by_email(login, email))

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whether nothing is asked: the service names an address that may sign up here."""
        return bool(sociallogin.email_addresses and super().is_auto_signup_allowed(request, sociallogin))

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Store the new account and its team; if curators approve accounts, it waits for approval.

        Raises PermissionDenied, and stores nothing, if its primary address may not sign up.
        """
        person = sociallogin.user
        assert isinstance(person, User)
        person.name = ""  # what the service calls somebody is not theirs to show here before they say so
        person.approval_awaited = settings.SIGNUP == "approval"
        saved: User = super().save_user(request, sociallogin, form)
        if not _may_sign_up(saved.email):
            raise PermissionDenied
        personal_team(saved)
        return saved


def _allowed_addresses(addresses: Iterable[EmailAddress]) -> list[EmailAddress]:
    """Return the valid addresses at allowed domains: verified ones, or else the first unverified one; primary first."""
    allowed = [each for each in addresses if valid_email_or_none(each.email) and _may_sign_up(each.email)]
    for each in allowed:
        each.verified = _is_verified(each)
    allowed.sort(key=lambda each: (each.verified, each.primary), reverse=True)
    verified = [each for each in allowed if each.verified]
    return verified or allowed[:1]


def _is_verified(address: EmailAddress) -> bool:
    """Read the claim `email_verified`, which some OpenID Connect providers send as text, “false” included."""
    return str(address.verified).lower() == "true"


def _may_sign_up(address: str) -> bool:
    try:
        check_domain(address)
    except ValidationError:
        return False
    return True


class ElsewhereSignupForm(AllowedDomain, SiteLabels, SignupForm):
    """Form for the address of a new account if the service names none that may sign up."""


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
