"""Forms of accounts and teams: allauth's in the site's words, and the account page's own."""

from typing import Any

from allauth.account import forms as account
from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.core.internal import ratelimit
from allauth.mfa.base import forms as second_factor
from allauth.mfa.totp import forms as totp
from django import forms
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator
from django.http import HttpRequest
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.facets import ANONYMOUS, HOUSE
from submissions.accounts.access import LIFETIMES
from submissions.core.names import NameField, is_site_name
from submissions.models import Scope

_LABELS = {
    "email": _("E-mail address"),
    "login": _("E-mail address"),
    "remember": _("Stay signed in here for two weeks"),
    "oldpassword": _("Present password"),
    "password1": _("Password"),
    "password2": _("Password again"),
    "code": _("Code"),
}
_LABELS_WHERE_CHANGED = {"password1": _("New password"), "password2": _("New password again")}


check_address = EmailValidator(message=_("This is not an e-mail address. One looks like name@example.org."))


class SiteLabels:
    """Mixin of a form: its fields have the site's labels."""

    labels: dict[str, Any] = {}
    fields: dict[str, forms.Field]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        labels = _LABELS | self.labels
        for name, field in self.fields.items():
            field.label = labels.get(name, field.label)
            field.widget.attrs.pop("placeholder", None)
            if isinstance(field, forms.EmailField):
                others = [each for each in field.validators if not isinstance(each, EmailValidator)]
                field.validators = [check_address, *others]


class LoginForm(SiteLabels, account.LoginForm):
    """Signing in."""


def check_domain(address: str) -> None:
    """Raise ValidationError for an address whose domain is neither in `SIGNUP_DOMAINS` nor below one of these.

    A domain with non-ASCII characters is refused, because lowercasing and IDNA can turn it into another domain.
    """
    allowed: list[str] = settings.SIGNUP_DOMAINS
    domain = address.rpartition("@")[2]
    host = domain.lower()
    is_allowed = any(host == each or host.endswith(f".{each}") for each in allowed)
    if allowed and not (domain.isascii() and is_allowed):
        raise ValidationError(
            f"Accounts on this site require an address at {', '.join(allowed)}. Enter such an address, or ask the "
            "site's operators."
        )


class AllowedDomain:
    """Mixin for forms with an address of an account, whose domain must be allowed."""

    cleaned_data: dict[str, Any]

    def clean_email(self) -> str:
        """Return the address. Its domain is checked first, so that the answer does not reveal who has an account."""
        check_domain(self.cleaned_data["email"])
        address: str = super().clean_email()  # type: ignore[misc]  # of the form that this is part of
        return address


class SignupForm(AllowedDomain, SiteLabels, account.SignupForm):
    """Signing up."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        hints: list[Any] = []
        if settings.SIGNUP_DOMAINS:
            hints.append(_("An address at {domains}.").format(domains=", ".join(settings.SIGNUP_DOMAINS)))
        if settings.SIGNUP == "approval":
            hints.append(_("A curator approves each account before it can sign in. You are told by mail."))
        self.fields["email"].help_text = " ".join(map(str, hints))

    def try_save(self, request: HttpRequest) -> Any:
        """Return the account and an answer. For an address that has one as much is computed, and thrown away.

        Hashing the password takes most of the time: without it the time would tell who has an account.
        """
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        return super().try_save(request)


class AddEmailForm(AllowedDomain, SiteLabels, account.AddEmailForm):
    """A further address."""


class ChangePasswordForm(SiteLabels, account.ChangePasswordForm):
    """Another password, for who knows the present one."""

    labels = _LABELS_WHERE_CHANGED


class SetPasswordForm(SiteLabels, account.SetPasswordForm):
    """A password for an account without one."""


class ResetPasswordForm(SiteLabels, account.ResetPasswordForm):
    """Asking for the link."""


class ResetPasswordKeyForm(SiteLabels, account.ResetPasswordKeyForm):
    """Another password, for who has the link."""

    labels = _LABELS_WHERE_CHANGED


class ReauthenticateForm(SiteLabels, account.ReauthenticateForm):
    """The password once more."""


class _CountedCode:
    """Mixin of a form with a code: wrong ones are counted by the hour and the day too, for the account alone.

    Passwords are not, since strangers can send wrong ones; whoever comes here has shown the password.
    """

    user: Any

    def clean_code(self) -> str:
        """Return the right code. Raises ValidationError for a wrong one, and where there were too many."""
        limit: dict[str, Any] = {
            "app": "allauth.account",
            "action": "second_factor",
            "key": f"person {self.user.pk}",
        }
        usage = ratelimit.consume(context.request, **limit)
        if usage is None:
            raise get_adapter().validation_error("too_many_codes")
        try:
            code: str = super().clean_code()  # type: ignore[misc]  # of the form that this is part of
        except ValidationError as error:
            if error.code == "too_many_login_attempts":
                usage.rollback()  # the code was not looked at
            raise
        ratelimit.clear(context.request, **limit)
        return code


class AuthenticateCodeForm(_CountedCode, SiteLabels, second_factor.AuthenticateForm):
    """A code, when signing in."""


class ReauthenticateCodeForm(_CountedCode, SiteLabels, second_factor.ReauthenticateForm):
    """A code once more."""


class ActivateCodeForm(SiteLabels, totp.ActivateTOTPForm):
    """The first code of an authenticator app."""

    labels = {"code": _("Code that the app shows")}


class TeamNameField(NameField):
    """How a team is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(label=_("Team name"), max_length=120, **options)

    def clean(self, value: Any) -> str:
        """The name. Raises ValidationError for the site's own, and for what boards call teams that are kept back."""
        name: str = super().clean(value)
        if is_site_name(name):
            raise ValidationError("This is the name of the site itself. Choose another.")
        if name.casefold() in (ANONYMOUS, HOUSE):
            raise ValidationError(f"“{name}” stands on boards for something else. Choose another name.")
        return name


class TeamForm(forms.Form):
    """A new team, or a team's new name."""

    name = TeamNameField(help_text=_("Shown on boards beside the team's systems."))


class InvitationForm(forms.Form):
    """Whom to let into the team."""

    email = forms.EmailField(
        label=_("E-mail address"),
        max_length=254,
        help_text=_("Who accepts must be signed in with this address."),
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    owner = forms.BooleanField(required=False, label=_("As an owner, who decides for the team as you do"))


class ProfileForm(forms.Form):
    """How the person, and their team, are shown."""

    name = NameField(
        label=_("Your name"),
        max_length=150,
        required=False,
        help_text=_(
            "Shown to your team, and publicly on challenges. Your e-mail address is never shown to anyone."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    team = TeamNameField(help_text=_("Of your first team. Shown on boards beside its systems."))


class TokenForm(forms.Form):
    """A new API token."""

    name = NameField(
        label=_("What is it for?"),
        max_length=80,
        help_text=_("A name you will recognise in this list, such as “laptop” or “cluster”."),
    )
    scopes = forms.MultipleChoiceField(
        label=_("What may it be used for?"),
        choices=[(scope.value, f"{scope.value}: {scope.label}") for scope in Scope],
        initial=[Scope.READ, Scope.SUBMIT],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose what the token may be used for.")},
    )
    days = forms.TypedChoiceField(
        label=_("For how long?"),
        choices=[(days, format_lazy(_("{days} days"), days=days)) for days in LIFETIMES],
        initial=30,
        coerce=int,
    )
