"""Forms of accounts and teams: allauth's forms with the site's labels, and forms of the account page."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from allauth.account import forms as account
from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import get_adapter as get_factor_adapter
from allauth.mfa.base import forms as second_factor
from allauth.mfa.models import Authenticator
from allauth.mfa.totp import forms as totp
from allauth.mfa.webauthn import forms as webauthn
from django import forms
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator
from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.state import ANONYMOUS, THIS_SITE_NAME
from submissions.accounts.access import LIFETIMES, MAX_PASSKEYS
from submissions.accounts.teams import find_invitation
from submissions.core.names import NameField, is_site_name
from submissions.models import Scope

_LABELS = {
    "email": _("Email address"),
    "login": _("Email address"),
    "remember": _("Keep me signed in for two weeks"),
    "oldpassword": _("Current password"),
    "password1": _("Password"),
    "password2": _("Password again"),
    "code": _("Code"),
}
_LABELS_WHERE_CHANGED = {"password1": _("New password"), "password2": _("New password again")}


check_address = EmailValidator(message=_("This is not an email address. Enter one like name@example.org."))


class SiteLabels:
    """Form mixin that applies the site's labels."""

    labels: dict[str, Any] = {}
    fields: dict[str, forms.Field]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Replace labels, remove placeholders, and validate addresses with the site's message."""
        super().__init__(*arguments, **options)
        labels = _LABELS | self.labels
        for name, field in self.fields.items():
            field.label = labels.get(name, field.label)
            field.widget.attrs.pop("placeholder", None)
            if isinstance(field, forms.EmailField):
                other_validators = [check for check in field.validators if not isinstance(check, EmailValidator)]
                field.validators = [check_address, *other_validators]


class LoginForm(SiteLabels, account.LoginForm):
    """Sign-in form."""


def check_domain(address: str) -> None:
    """Raise ValidationError unless the address's domain is one of `SIGNUP_DOMAINS` or a subdomain.

    Domains with non-ASCII characters are refused, because lowercasing and IDNA can turn them into other domains.
    """
    allowed_domains: list[str] = settings.SIGNUP_DOMAINS
    domain = address.rpartition("@")[2]
    host = domain.lower()
    is_allowed = any(host == allowed or host.endswith(f".{allowed}") for allowed in allowed_domains)
    if allowed_domains and not (domain.isascii() and is_allowed):
        raise ValidationError(
            f"Accounts on this site require an address at {', '.join(allowed_domains)}. Enter such an "
            "address, or ask the site's operators."
        )


class AllowedDomain:
    """Form mixin that restricts account addresses to allowed domains."""

    cleaned_data: dict[str, Any]

    def clean_email(self) -> str:
        """Return the address. Its domain is checked first, so that the response does not reveal existing accounts."""
        check_domain(self.cleaned_data["email"])
        address: str = super().clean_email()  # type: ignore[misc]  # defined by the form
        return address


class TeamNameField(NameField):
    """Form field for the name of a team."""

    def __init__(self, **options: Any) -> None:
        super().__init__(label=_("Team name"), max_length=120, **options)

    def clean(self, value: Any) -> str:
        """Return the name. Raises ValidationError for the site's own name and other reserved names."""
        name: str = super().clean(value)
        if is_site_name(name):
            raise ValidationError("This is the name of the site. Choose another name.")
        if name.casefold() in (ANONYMOUS, THIS_SITE_NAME):
            raise ValidationError(
                f"“{name}” is reserved, because boards use it with another meaning. Choose another name."
            )
        return name


class SignupForm(AllowedDomain, SiteLabels, account.SignupForm):
    """Signup form, which also asks for the name of the user's team."""

    team_name = TeamNameField(
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
        help_text=_("Shown next to your systems on boards. You can change it later."),
    )
    field_order = ("email", "team_name", "password1", "password2")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Add hints about allowed domains and account approval to the address field.

        Users who open the link of an invitation need not name a team of their own.
        """
        super().__init__(*arguments, **options)
        self.fields["team_name"].required = not _is_invited(context.request)
        hints: list[Any] = []
        if settings.SIGNUP_DOMAINS:
            hints.append(_("Enter an address at {domains}.").format(domains=", ".join(settings.SIGNUP_DOMAINS)))
        if settings.SIGNUP == "approval":
            hints.append(_("A curator approves each account before it can sign in. You will get an email."))
        self.fields["email"].help_text = " ".join(map(str, hints))

    def try_save(self, request: HttpRequest) -> Any:
        """Return the account and a response; for existing addresses, hash the password anyway.

        Hashing dominates the response time. Without it, the time would reveal which accounts exist.
        """
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        return super().try_save(request)


def _is_invited(request: HttpRequest) -> bool:
    """Return whether sign-up redirects to a valid invitation."""
    address = request.POST.get(REDIRECT_FIELD_NAME) or request.GET.get(REDIRECT_FIELD_NAME, "")
    with suppress(Resolver404, ValueError):
        match = resolve(urlsplit(address).path)
        return match.url_name == "invitation" and find_invitation(match.kwargs["secret"]) is not None
    return False


class AddEmailForm(AllowedDomain, SiteLabels, account.AddEmailForm):
    """Form that adds an address to an account."""


class ChangePasswordForm(SiteLabels, account.ChangePasswordForm):
    """Form that replaces the current password."""

    labels = _LABELS_WHERE_CHANGED


class SetPasswordForm(SiteLabels, account.SetPasswordForm):
    """Form that sets the first password of an account."""


class ResetPasswordForm(SiteLabels, account.ResetPasswordForm):
    """Form that requests a link to reset the password."""


class ResetPasswordKeyForm(SiteLabels, account.ResetPasswordKeyForm):
    """Form that sets a new password with the link."""

    labels = _LABELS_WHERE_CHANGED


class ReauthenticateForm(SiteLabels, account.ReauthenticateForm):
    """Form that confirms the user's identity by password."""


class _CountedCode:
    """Form mixin that also limits wrong codes per hour and day, for each account.

    Wrong passwords are not limited this way, because anyone can send them. Users who enter codes have already
    entered the password.
    """

    user: Any

    def clean_code(self) -> str:
        """Return the code if it is right. Raises ValidationError if it is wrong or after too many attempts.

        Only wrong codes count: a right code clears the count.
        """
        limit: dict[str, Any] = {"app": "allauth.account", "action": "second_factor", "key": f"person {self.user.pk}"}
        usage = ratelimit.consume(context.request, **limit)
        if usage is None:
            raise get_adapter().validation_error("too_many_codes")
        try:
            code: str = super().clean_code()  # type: ignore[misc]  # defined by the form
        except ValidationError as error:
            if error.code == "too_many_login_attempts":
                usage.rollback()  # the code was not checked
            raise
        ratelimit.clear(context.request, **limit)
        return code


class AuthenticateCodeForm(_CountedCode, SiteLabels, second_factor.AuthenticateForm):
    """Form for the code at sign-in."""


class ReauthenticateCodeForm(_CountedCode, SiteLabels, second_factor.ReauthenticateForm):
    """Form that confirms the user's identity by code."""


class ActivateCodeForm(SiteLabels, totp.ActivateTOTPForm):
    """Form for the first code of a new authenticator app."""

    labels = {"code": _("Code shown by the app")}


class _PasskeyErrors:
    """Form mixin that reports every unusable credential as an incorrect passkey."""

    def full_clean(self) -> None:
        """Validate the form. allauth and fido2 raise various errors for credentials that no browser sends."""
        try:
            super().full_clean()  # type: ignore[misc]  # defined by the form
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            self.add_error("credential", get_factor_adapter().validation_error("incorrect_passkey"))

    def add_error(self, field: str | None, error: Any) -> None:
        if field != "name" and getattr(error, "code", "") in ("incorrect_code", "invalid", "required"):
            error = get_factor_adapter().validation_error("incorrect_passkey")
        super().add_error(field, error)  # type: ignore[misc]  # defined by the form


class PasskeyNameField(NameField):
    """Form field for the name of a passkey."""

    def __init__(self, **options: Any) -> None:
        help_text = _("A name to recognize the passkey by, such as “laptop” or “YubiKey”.")
        super().__init__(label=_("Name"), max_length=80, help_text=help_text, **options)


class AddPasskeyForm(_PasskeyErrors, webauthn.AddWebAuthnForm):
    """Form for the name and the use of a new passkey."""

    name = PasskeyNameField(required=False)
    passwordless = forms.BooleanField(
        label=_("Sign in with this passkey instead of a password"),
        initial=True,
        required=False,
        help_text=_("Your device then asks for your fingerprint, face, or PIN."),
    )

    def clean(self) -> dict[str, Any]:
        """Return the values. Raises ValidationError if the user has the maximum number of passkeys."""
        if Authenticator.objects.filter(user=self.user, type=Authenticator.Type.WEBAUTHN).count() >= MAX_PASSKEYS:
            raise get_factor_adapter().validation_error("too_many_passkeys")
        return dict(super().clean())


class RenamePasskeyForm(webauthn.EditWebAuthnForm):
    """Form for the name of a passkey."""

    name = PasskeyNameField()


class LoginPasskeyForm(_PasskeyErrors, webauthn.LoginWebAuthnForm):
    """Form for sign-in with only a passkey."""


class AuthenticatePasskeyForm(_PasskeyErrors, webauthn.AuthenticateWebAuthnForm):
    """Form for a passkey as the second factor at sign-in."""


class ReauthenticatePasskeyForm(_PasskeyErrors, webauthn.ReauthenticateWebAuthnForm):
    """Form that confirms the user's identity by passkey."""


class TeamForm(forms.Form):
    """Form for the name of a team."""

    name = TeamNameField(help_text=_("Shown on boards next to the team's systems."))


class InvitationForm(forms.Form):
    """Form that invites an address to the team."""

    email = forms.EmailField(
        label=_("Email address"),
        max_length=254,
        help_text=_("The recipient must sign in with this address to accept."),
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    owner = forms.BooleanField(required=False, label=_("Invite as an owner with the same rights as you"))


class ProfileForm(forms.Form):
    """Form for the names of the user and their first team."""

    name = NameField(
        label=_("Your name"),
        max_length=150,
        required=False,
        help_text=_("Shown to your team and publicly on challenges. Your email address is never shown."),
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    team = TeamNameField(help_text=_("Name of your first team. Shown on boards next to your systems."))


class TokenForm(forms.Form):
    """Form that creates an API token."""

    name = NameField(
        label=_("Token name"),
        max_length=80,
        help_text=_("A name to recognize the token by, such as “laptop” or “cluster”."),
    )
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=[(scope.value, f"{scope.value}: {scope.label}") for scope in Scope],
        initial=[Scope.READ, Scope.SUBMIT],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one scope for the token.")},
    )
    days = forms.TypedChoiceField(
        label=_("Expires after"),
        choices=[(days, format_lazy(_("{days} days"), days=days)) for days in LIFETIMES],
        initial=30,
        coerce=int,
    )
