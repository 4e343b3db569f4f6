"""allauth's forms in the site's words: labels as elsewhere on the site, no placeholder that repeats a label."""

from __future__ import annotations

from typing import Any

from allauth.account import forms as account
from allauth.mfa.base import forms as second_factor
from allauth.mfa.totp import forms as totp
from django import forms
from django.core.validators import EmailValidator

_LABELS = {
    "email": "E-mail address",
    "login": "E-mail address",
    "remember": "Stay signed in here for two weeks",
    "oldpassword": "Present password",
}
_LABELS_WHERE_CHANGED = {"password1": "New password", "password2": "New password again"}
_LABELS_WHERE_FIRST = {"password1": "Password", "password2": "Password again"}


def check_address(text: str) -> None:
    """Raises ValidationError for what is no e-mail address."""
    EmailValidator(message="This is not an e-mail address. One looks like name@example.org.")(text)


class _Worded:
    """Part of a form, whose fields it calls as the site calls them."""

    labels: dict[str, str] = {}
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


class LoginForm(_Worded, account.LoginForm):
    """Signing in."""


class SignupForm(_Worded, account.SignupForm):
    """Signing up."""

    labels = _LABELS_WHERE_FIRST


class AddEmailForm(_Worded, account.AddEmailForm):
    """A further address."""


class ChangePasswordForm(_Worded, account.ChangePasswordForm):
    """Another password, for who knows the present one."""

    labels = _LABELS_WHERE_CHANGED


class SetPasswordForm(_Worded, account.SetPasswordForm):
    """A password for an account without one."""

    labels = _LABELS_WHERE_FIRST


class ResetPasswordForm(_Worded, account.ResetPasswordForm):
    """Asking for the link."""


class ResetPasswordKeyForm(_Worded, account.ResetPasswordKeyForm):
    """Another password, for who has the link."""

    labels = _LABELS_WHERE_CHANGED


class ReauthenticateForm(_Worded, account.ReauthenticateForm):
    """The password once more."""


class AuthenticateCodeForm(_Worded, second_factor.AuthenticateForm):
    """A code, when signing in."""

    labels = {"code": "Code"}


class ReauthenticateCodeForm(_Worded, second_factor.ReauthenticateForm):
    """A code once more."""

    labels = {"code": "Code"}


class ActivateCodeForm(_Worded, totp.ActivateTOTPForm):
    """The first code of an authenticator app."""

    labels = {"code": "Code that the app shows"}
