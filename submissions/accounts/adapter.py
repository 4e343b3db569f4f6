"""Signup and sign-in on the site and through external services, extending allauth.

An address from an external service never gives access to an existing account, unless the operator's provider is the
only way to sign in (SIGN_IN). Addresses that the service has not verified are verified by email. The second factor
and the approval of accounts are stages of every sign-in.
"""

import time
from collections.abc import Callable
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
    """allauth account adapter that creates personal teams and responds with 429 to too many failed attempts."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "account_inactive": "This account is closed.",
        "cannot_remove_primary_email": "This is your primary address. Make another one primary first.",
        "duplicate_email": "This address is already in your list.",
        "email_password_mismatch": "No account has this email address and password.",
        "email_taken": "Another account uses this email address.",
        "enter_current_password": "This is not your current password.",
        "incorrect_code": "This code is wrong, already used, or expired. Enter the code that the app shows now.",
        "incorrect_password": "This is not your password.",
        "invalid_password_reset": "This link has expired. Request a new one.",
        "max_email_addresses": "An account can have at most %d email addresses. Remove one first.",
        "rate_limited": "Too many attempts in a short time. Wait a few minutes.",
        "too_many_login_attempts": "Too many failed attempts. Wait a few minutes.",
        "too_many_codes": "Too many wrong codes for this account. Wait an hour, or a day after 50 wrong "
        "codes in one day.",
        "unknown_email": "No account has this email address.",
        "unverified_primary_email": "Verify an address before you make it primary.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return whether the site accepts new accounts. An invitation to a team does not override this."""
        return settings.SIGNUP != "closed"

    def get_login_stages(self) -> list[str]:
        stages: list[str] = super().get_login_stages()
        position = stages.index("allauth.account.stages.EmailVerificationStage") + 1
        return [*stages[:position], "submissions.accounts.approval.ApprovalStage", *stages[position:]]

    def save_user(
        self, request: HttpRequest, user: AbstractBaseUser, form: Any, commit: bool = True
    ) -> AbstractBaseUser:
        """Store the new account and a team with the name from the form. If required, mark it as awaiting approval."""
        if isinstance(user, User):
            user.approval_awaited = settings.SIGNUP == "approval"
        stored_user = super().save_user(request, user, form, commit)
        if commit and isinstance(stored_user, User):
            personal_team(stored_user, form.cleaned_data.get("team_name", ""))
        return stored_user

    def format_email_subject(self, subject: str) -> str:
        """Return the subject of an email unchanged, because subjects contain the site's name."""
        return subject

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Render the email from templates and queue it.

        The notifier sends it, so that requests do not need a mail server. Text from users or browsers is reduced to one
        line, and links use the site's own address.
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
        """Return how users confirm their identity: only with the second factor if they have one.

        Otherwise, someone with a stolen session and the password could confirm, although they could not sign in.
        """
        descriptions = {
            "reauthenticate": _("Use your password"),
            "mfa_reauthenticate": _("Use a code"),
            "mfa_reauthenticate:webauthn": _("Use a passkey"),
        }
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        methods = [{**method, "description": descriptions[method["id"]]} for method in methods]
        # The first one is the default: a passkey if the user has one.
        second_factor_methods = [method for method in reversed(methods) if method["id"] != "reauthenticate"]
        return second_factor_methods or methods

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        """Return whether users must confirm their identity with a password or a code.

        Accounts that only use external services have neither, so allauth never asks them. If their sign-in is older
        than `ACCOUNT_REAUTHENTICATION_TIMEOUT`, this method signs them out and raises ImmediateHttpResponse, which
        redirects to the sign-in page.
        """
        is_required = bool(super().is_reauthentication_required(app=app, **options))
        request: HttpRequest = allauth_context.request
        person = request.user
        if not is_required or not isinstance(person, User):
            return is_required
        # The account can sign in through services, but has neither a password nor a second factor.
        if not get_reauthentication_flows(person) and SocialAccount.objects.filter(user=person).exists():
            records = get_authentication_records(request, person)
            if not records or time.time() - records[-1]["at"] > app_settings.REAUTHENTICATION_TIMEOUT:
                return_address = request.get_full_path() if request.method == "GET" else reverse("account")
                logout(request)
                messages.info(request, _("Sign in again with your service to continue."))
                raise ImmediateHttpResponse(redirect_to_login(return_address))
        return is_required

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt to sign in. Raises ImmediateHttpResponse (429) after too many attempts."""
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError as error:
            raise ImmediateHttpResponse(ratelimit.respond_429(request)) from error


# --- external services


class ElsewhereAdapter(DefaultSocialAccountAdapter):
    """allauth adapter for external services that applies this site's signup rules."""

    error_messages = DefaultSocialAccountAdapter.error_messages | {
        "email_taken": "An account with this email address exists. Sign in to it, then connect your %s "
        "account on the account page.",
        "no_password": "Set a password first, because this service is the only way to sign in to your account.",
        "no_verified_email": "Verify an email address first.",
    }

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Limit a new account to the verified addresses that may sign up, or else to one unverified address.

        The first one, preferably the service's primary address, becomes the account's primary address.
        allauth would choose the primary address among all verified ones, regardless of which one was checked, and would
        also store unverified ones, which may belong to someone else.
        """
        if sociallogin.is_existing:
            return
        rows = sociallogin.email_addresses
        addresses = [row for row in rows if valid_email_or_none(row.email) and _may_sign_up(row.email)]
        for address in addresses:
            address.verified = _is_verified(address)
        addresses.sort(key=lambda address: (address.verified, address.primary), reverse=True)
        sociallogin.email_addresses = [address for address in addresses if address.verified] or addresses[:1]
        assert isinstance(sociallogin.user, User)
        user_email(sociallogin.user, sociallogin.email_addresses[0].email if sociallogin.email_addresses else "")

    def can_authenticate_by_email(self, login: SocialLogin, email: str) -> bool:
        """Return whether the operator's provider has verified this address of an existing account."""
        verified_emails = {address.email for address in login.email_addresses if _is_verified(address)}
        return email in verified_emails and bool(super().can_authenticate_by_email(login, email))

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Return whether signup needs no form, because the service provides an allowed address."""
        return bool(sociallogin.email_addresses and super().is_auto_signup_allowed(request, sociallogin))

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Store the new account and its team; if curators approve accounts, it waits for approval.

        Raises PermissionDenied before storing the account if its primary address may not sign up.
        """
        person = sociallogin.user
        assert isinstance(person, User)
        person.name = ""  # users decide whether this site shows the name from the service
        person.approval_awaited = settings.SIGNUP == "approval"
        stored_user: User = super().save_user(request, sociallogin, form)
        if not _may_sign_up(stored_user.email):
            raise PermissionDenied
        personal_team(stored_user)
        return stored_user


def _is_verified(address: EmailAddress) -> bool:
    """Return the `email_verified` claim, which some OpenID Connect providers send as “true” or “false”."""
    return str(address.verified).lower() == "true"


def _may_sign_up(address: str) -> bool:
    """Return whether the domain of the address is allowed."""
    try:
        check_domain(address)
    except ValidationError:
        return False
    return True


class ElsewhereSignupForm(AllowedDomain, SiteLabels, SignupForm):
    """Form for the address of a new account if the service provides no allowed one."""


def serve_if(is_available: Callable[[HttpRequest], bool], view: Callable[..., HttpResponseBase]) -> Callable[..., Any]:
    """Return allauth's view with status 404 if `is_available(request)` is false or the external service has no keys."""

    @wraps(view)
    def answer(request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        """Call the view, or raise Http404."""
        if not is_available(request):
            raise Http404
        try:
            return view(request, *arguments, **options)
        except SocialApp.DoesNotExist as error:
            raise Http404 from error

    return answer


def has_services(request: HttpRequest) -> bool:
    return bool(settings.SOCIALACCOUNT_PROVIDERS)


def has_passwords(request: HttpRequest) -> bool:
    return settings.SIGN_IN != "services"
