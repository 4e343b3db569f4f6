"""Forms of the account page."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError

from submissions.names import NameField, is_site_name


class ProfileForm(forms.Form):
    """How the person, and their team, are shown."""

    name = NameField(
        label="Your name",
        max_length=150,
        required=False,
        help_text="Shown to your team. Your e-mail address is never shown to anyone.",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    team = NameField(label="Team name", max_length=120, help_text="Shown on boards beside your systems.")

    def clean_team(self) -> str:
        """The team's name. Raises ValidationError for the site's own."""
        name: str = self.cleaned_data["team"]
        if is_site_name(name):
            raise ValidationError("This is the name of the site itself. Choose another.")
        return name


class TokenForm(forms.Form):
    """A new API token."""

    name = NameField(
        label="What is it for?",
        max_length=80,
        help_text="A name you will recognise in this list, such as “laptop” or “cluster”.",
    )
