"""Form fields for public names and texts, and the reserved name of the site."""

import unicodedata
from typing import Any

from django import forms
from django.conf import settings

from leaderboard.core.text.names import validate_name, validate_text


def is_site_name(text: str) -> bool:
    """Return whether a name reads like the site's own, which is reserved for results that the site produces."""
    return _casefold_name(text) == _casefold_name(settings.SITE_NAME)


def _casefold_name(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split()).casefold()


class NameField(forms.CharField):
    """Form field for one line of public text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators = [validate_name, *self.validators]


class TextField(forms.CharField):
    """Form field for several lines of public text."""

    def __init__(self, *, rows: int, **options: Any) -> None:
        super().__init__(widget=forms.Textarea(attrs={"rows": rows}), **options)
        self.validators = [validate_text, *self.validators]
