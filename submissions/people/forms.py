"""Forms of the account page."""

from __future__ import annotations

from django import forms


class ProfileForm(forms.Form):
    """How the person, and their team, are shown."""

    name = forms.CharField(
        label="Your name",
        max_length=150,
        required=False,
        help_text="Shown to your team. Your e-mail address is never shown to anyone.",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    team = forms.CharField(
        label="Team name", max_length=120, help_text="Shown on boards beside your systems."
    )


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        label="What is it for?",
        max_length=80,
        help_text="A name you will recognise in this list, such as “laptop” or “cluster”.",
    )
