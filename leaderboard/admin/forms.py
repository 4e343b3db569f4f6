"""The form of every page that curators edit: why, and what the form was made from, so that two at once lose nothing.

A form carries a token in a hidden field: the newest row of the object's history, and a digest of what its fields and
inlines showed. Where the digest differs on saving, somebody saved meanwhile: the form then says what changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, QueryDict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from leaderboard.admin.locking import VersionToken, changes_since, read_token, token_of
from leaderboard.core.text.json import read_json
from leaderboard.datasets.terms import TERMS, terms_in_use

#: Fields of the form that are none of the model's.
OWN_FIELDS = ("why", "rendered_from")
#: The longest reason that is taken.
LONGEST_REASON = 300


class WhyField(forms.CharField):
    """A curator's reason, in a line."""

    def __init__(self, **options: Any) -> None:
        defaults = {
            "label": "Why",
            "max_length": LONGEST_REASON,
            "help_text": "Kept with your name in the history and in the audit record.",
            "widget": forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
            "error_messages": {"required": "Say why in a few words: the record keeps it."},
        }
        super().__init__(**{**defaults, **options})


class StrictJSONField(forms.JSONField):
    """JSON that every database keeps. Left empty, it is what the model starts with."""

    def to_python(self, value: Any) -> Any:
        """The value. Raises ValidationError with what is wrong."""
        if value in self.empty_values and callable(self.initial):
            return self.initial()
        if isinstance(value, str) and value not in self.empty_values:
            try:
                return read_json(value)
            except ValueError as error:
                raise ValidationError(f"This is not JSON that can be kept: {error}.") from None
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What is shown again: as it was typed, where it cannot be read."""
        try:
            return None if data is None else read_json(data)
        except ValueError:
            return InvalidJSONInput(data)


#: The form fields of columns: as the admin's own, but for these.
FORM_FIELDS: dict[type[models.Field[Any, Any]], dict[str, Any]] = {
    models.URLField: {"assume_scheme": "https"},
    models.JSONField: {"form_class": StrictJSONField},
}


class TermInput(forms.TextInput):
    """Text input that suggests the values in use."""

    def __init__(self, model: type[models.Model], field: str, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.model, self.term = model, field

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Render the field and its list of suggestions."""
        listed = f"known-{name}"
        options = format_html_join("", '<option value="{}"></option>', ((each,) for each in self._values()))
        field = super().render(name, value, {**(attrs or {}), "list": listed}, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, listed, options)

    def _values(self) -> Iterable[str]:
        return terms_in_use(self.model, self.term)


class CurationForm(forms.ModelForm):
    """What `CurationAdmin` makes its forms from. A form of your own inherits from it."""

    why = WhyField()
    rendered_from = forms.CharField(widget=forms.HiddenInput, required=False, label="")

    #: The admin page and the request, set by `CurationAdmin.get_form`.
    curation: Any
    request: HttpRequest

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in TERMS.get(type(self.instance), ()):
            if name in self.fields:
                attributes = self.fields[name].widget.attrs
                self.fields[name].widget = TermInput(type(self.instance), name, attributes)
        if "why" in self.fields:
            self.fields["why"].required = self.curation.why_required
        self.present: VersionToken | None = None
        if self.instance.pk is not None and "rendered_from" in self.fields:
            # Now: cleaning writes into the instance.
            fields = [name for name in self.fields if name not in OWN_FIELDS]
            self.present = token_of(self.instance, fields, self.curation.inline_rows(self.request))
            self.initial["rendered_from"] = str(self.present)

    @cached_property
    def changed_data(self) -> list[str]:
        """The model's fields that were changed."""
        return [name for name in super().changed_data if name not in OWN_FIELDS]

    def clean(self) -> dict[str, Any] | None:
        """Refuse to write over what somebody else saved since the form was opened."""
        cleaned = super().clean()
        if self.present is not None:
            self._refuse_if_changed(self.present)
        return cleaned

    def _refuse_if_changed(self, present: VersionToken) -> None:
        sent = read_token(str(self.data.get(self.add_prefix("rendered_from"), "")))
        if sent is not None and sent.digest == present.digest:
            return
        # Shown again, the form is made from what is there now: who saves it then has seen the change.
        data = QueryDict(mutable=True)
        data.update(self.data)
        data[self.add_prefix("rendered_from")] = str(present)
        self.data = data
        if sent is None:
            raise ValidationError(
                "The form does not say what it was made from. Look it over and save it again."
            )
        changes = changes_since(self.instance, sent) or ["It was changed by somebody else."]
        raise ValidationError(
            [
                "Not saved: this changed while you were editing it.",
                *changes,
                "What you typed is still below. Look it over and save it again; it then replaces their change.",
            ]
        )
