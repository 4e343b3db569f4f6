"""Signup and sign-in beyond allauth's own handling, at the site and with other services, under the same rules.

No address that a service names leads into an existing account, unless the operator's provider is the way in (SIGN_IN).
An address that the service has not verified is verified by mail, and the second factor and the approval of accounts are
stages of every sign-in.
"""

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.emailkit import valid_email_or_none
from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.account.models import EmailAddress
from allauth.account.utils import user_email
from allauth.core import context as allauth_context
from allauth.core import ratelimit
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.forms import SignupForm
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _

from leaderboard.core.http.site_url import default_site_address, is_own_address, site_address
from leaderboard.models import User
from submissions.accounts.access import device_name
from submissions.accounts.forms import AllowedDomain, SiteLabels, check_domain
from submissions.accounts.outbox import one_line, queue_account_mail
from submissions.accounts.teams import personal_team

_DAY = 86400


class AccountAdapter(DefaultAccountAdapter):
    """allauth's account handling, giving everyone a team of one, and a plain 429 to who fails too often."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "account_inactive": "This account is closed.",
        "cannot_remove_primary_email": "This is your primary address. Make another one primary first.",
        "duplicate_email": "This address is in your list already.",
        "email_password_mismatch": "No account has this e-mail address and this password.",
        "email_taken": "Another account has this e-mail address.",
        "enter_current_password": "This is not your present password.",
        "incorrect_code": "This code is wrong, was used already, or is too old. Type the one that is shown now.",
        "incorrect_password": "This is not your password.",
        "invalid_password_reset": "This link has expired. Ask for another.",
        "max_email_addresses": "An account has %d e-mail addresses at most. Remove one first.",
        "rate_limited": "Too many attempts in a short time. Wait a few minutes.",
        "too_many_login_attempts": "Too many failed attempts. Wait a few minutes.",
        "too_many_codes": "Too many wrong codes for this account. Wait an hour; after 50 in a day, a day.",
        "unknown_email": "No account has this e-mail address.",
        "unverified_primary_email": "Verify an address before you make it primary.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return whether anybody may sign up: an invitation to a team opens no account where nobody may."""
        return settings.SIGNUP != "closed"

    def get_login_stages(self) -> list[str]:
        """allauth's, and after the verification of the address the approval of the account."""
        stages: list[str] = super().get_login_stages()
        place = stages.index("allauth.account.stages.EmailVerificationStage") + 1
        return [*stages[:place], "submissions.accounts.approval.ApprovalStage", *stages[place:]]

    def save_user(
        self, request: HttpRequest, user: AbstractBaseUser, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """Store the new account and its team. Where curators approve accounts it waits for one."""
        if isinstance(user, User):
            user.approval_awaited = settings.SIGNUP == "approval"
        saved = super().save_user(request, user, form, commit)
        if commit and isinstance(saved, User):
            personal_team(saved)
        return saved

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Write the mail down; the notifier sends it, so that nobody waits for a mail server or fails by one.

        What people typed or their browsers say is one line of text in it; its links lead to the site's own address.
        """
        request: HttpRequest = allauth_context.request
        address = site_address(request) if is_own_address(request) else default_site_address()
        values: dict[str, Any] = {
            "site_name": settings.SITE_NAME,
            "site_address": address,
            "email": email,
            "device": device_name(str(context.get("user_agent", "")), "an unknown program"),
            "confirmation_days": app_settings.EMAIL_CONFIRMATION_EXPIRE_DAYS,
            "reset_days": settings.PASSWORD_RESET_TIMEOUT // _DAY,
        }
        for name, value in context.items():
            if name.endswith("_url"):
                values[name] = address + urlsplit(str(value)).path
            else:
                values[name] = one_line(value) if isinstance(value, str) else value
        queue_account_mail(self.render_mail(template_prefix, email, values))

    def get_reauthentication_methods(self, user: AbstractBaseUser | AnonymousUser) -> list[dict[str, Any]]:
        """Return how the person shows again who they are: with the second factor where they have one, and by it alone.

        Who has stolen a session and the password would pass otherwise, as they cannot when signing in.
        """
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        stronger = [each for each in methods if each["id"] == "mfa_reauthenticate"]
        return stronger or methods

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        """Return whether users must confirm their identity: with a password or code, or else at their service.

        allauth requires nothing from accounts that only have services. Here such a session ends when it is older than
        `ACCOUNT_REAUTHENTICATION_TIMEOUT`, and the service decides. Raises ImmediateHttpResponse then.
        """
        required = bool(super().is_reauthentication_required(app=app, **options))
        request: HttpRequest = allauth_context.request
        person = request.user
        if not required or not isinstance(person, User):
            return required
        # Services to sign in with, but neither a password nor a second factor:
        if not get_reauthentication_flows(person) and SocialAccount.objects.filter(user=person).exists():
            records = get_authentication_records(request, person)
            if not records or time.time() - records[-1]["at"] > app_settings.REAUTHENTICATION_TIMEOUT:
                came_from = request.get_full_path() if request.method == "GET" else reverse("account")
                logout(request)
                messages.info(request, _("Sign in again with your service to continue."))
                raise ImmediateHttpResponse(redirect_to_login(came_from))
        return required

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt. Raises ImmediateHttpResponse (429) where there were too many."""
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise ImmediateHttpResponse(ratelimit.respond_429(request)) from error


# --- other services


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
        """Return whether nothing is asked: the service names an address that may sign up here."""
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


def hide_unless(
    possible: Callable[[HttpRequest], bool], view: Callable[..., HttpResponseBase]
) -> Callable[..., Any]:
    """Return allauth's view, with status 404 for impossible requests and for services that have no keys."""

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        if not possible(request):
            raise Http404
        try:
            return view(request, *arguments, **options)
        except SocialApp.DoesNotExist as error:
            raise Http404 from error

    return answer


def has_services(request: HttpRequest) -> bool:
    """Return whether other services sign people in."""
    return bool(settings.SOCIALACCOUNT_PROVIDERS)


def has_passwords(request: HttpRequest) -> bool:
    """Return whether passwords sign people in, too."""
    return settings.SIGN_IN != "services"
