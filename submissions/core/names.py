"""Fields of forms for names and texts that others read, and the name that only the site itself has."""

import unicodedata
from typing import Any

from django import forms
from django.conf import settings

from leaderboard.core.text.names import validate_name, validate_text


def is_site_name(text: str) -> bool:
    """Return whether a name reads as the site's own, which stands beside what the site itself made."""
    return _casefold_name(text) == _casefold_name(settings.SITE_NAME)


def _casefold_name(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split()).casefold()


class NameField(forms.CharField):
    """A line of text that others see."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators = [validate_name, *self.validators]


class TextField(forms.CharField):
    """A text of several lines that others see."""

    def __init__(self, *, rows: int, **options: Any) -> None:
        super().__init__(widget=forms.Textarea(attrs={"rows": rows}), **options)
        self.validators = [validate_text, *self.validators]
