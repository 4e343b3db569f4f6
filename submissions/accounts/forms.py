"""Forms of the account page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from leaderboard.boards.facets import ANONYMOUS, HOUSE
from submissions.accounts.tokens import LIFETIMES
from submissions.core.names import NameField, is_site_name
from submissions.models import Scope


class TeamNameField(NameField):
    """How a team is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(label="Team name", max_length=120, **options)

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

    name = TeamNameField(help_text="Shown on boards beside the team's systems.")


class InvitationForm(forms.Form):
    """Whom to let into the team."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        help_text="Who accepts must be signed in with this address.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    owner = forms.BooleanField(required=False, label="As an owner, who decides for the team as you do")


class ProfileForm(forms.Form):
    """How the person, and their team, are shown."""

    name = NameField(
        label="Your name",
        max_length=150,
        required=False,
        help_text="Shown to your team. Your e-mail address is never shown to anyone.",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    team = TeamNameField(help_text="Of your first team. Shown on boards beside its systems.")


class TokenForm(forms.Form):
    """A new API token."""

    name = NameField(
        label="What is it for?",
        max_length=80,
        help_text="A name you will recognise in this list, such as “laptop” or “cluster”.",
    )
    scopes = forms.MultipleChoiceField(
        label="What may it be used for?",
        choices=[(scope.value, f"{scope.value}: {scope.label}") for scope in Scope],
        initial=[Scope.READ, Scope.SUBMIT],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose what the token may be used for."},
    )
    days = forms.TypedChoiceField(
        label="For how long?",
        choices=[(days, f"{days} days") for days in LIFETIMES],
        initial=30,
        coerce=int,
    )
