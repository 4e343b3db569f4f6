"""The form of every page that curators edit: why, and what the form was made from, so that two at once lose nothing.

A form carries a token in a hidden field: the newest row of the object's history, and a digest of what its fields and
inlines showed. Where the digest differs on saving, somebody saved meanwhile: the form then says what changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.forms import model_to_dict
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from simple_history.models import DeletedObject

from leaderboard.core.text.json import read_json
from leaderboard.core.text.plain import plain_text
from leaderboard.datasets.terms import TERMS, terms_in_use

#: Fields of the form that are none of the model's.
OWN_FIELDS = ("why", "rendered_from")
#: The longest reason that is taken.
LONGEST_REASON = 300


#: Form fields that may be left empty, and a field of one line of text.
optional_text = partial(forms.CharField, required=False)
optional_choice = partial(forms.ChoiceField, required=False)
optional_integer = partial(forms.IntegerField, required=False)
optional_share = partial(forms.FloatField, required=False, min_value=0.05, max_value=0.95)
tick_box = partial(forms.BooleanField, required=False)
text_line = partial(forms.CharField, widget=forms.TextInput(attrs={"class": "vTextField"}))


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
        if value in self.empty_values and callable(self.initial):
            return self.initial()
        if isinstance(value, str) and value not in self.empty_values:
            try:
                return read_json(value)
            except ValueError as error:
                raise ValidationError(f"This is not JSON that can be kept: {error}.") from None
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the value to show again: the typed text if it is not valid JSON."""
        try:
            return None if data is None else read_json(data)
        except ValueError:
            return InvalidJSONInput(data)


class TextFileField(forms.FileField):
    """An uploaded text of at most `largest` bytes; its value is the text."""

    def __init__(self, *, largest: int, **options: Any) -> None:
        super().__init__(required=False, **options)
        self.largest = largest

    def clean(self, data: Any, initial: Any = None) -> str:
        file = super().clean(data, initial)
        if file and file.size > self.largest:
            raise ValidationError(f"The file is larger than {self.largest:,} bytes: bring it in parts.")
        try:
            return file.read().decode("utf-8-sig") if file else ""
        except UnicodeDecodeError:
            raise ValidationError("The file is no UTF-8 text: save it as CSV (UTF-8).") from None


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
        values = ((each,) for each in terms_in_use(self.model, self.term))
        options = format_html_join("", '<option value="{}"></option>', values)
        field = super().render(name, value, {**(attrs or {}), "list": listed}, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, listed, options)


#: Values longer than this are shown by their beginning.
_LONGEST = 120


def version_token(
    instance: models.Model, fields: Iterable[str], inlines: Iterable[tuple[type[models.Model], str]]
) -> str:
    """Return `HISTORY.DIGEST` of an object's present fields and inline rows; HISTORY is 0 for models without one."""
    values: dict[str, Any] = {
        name: [getattr(each, "pk", each) for each in value] if isinstance(value, list) else value
        for name, value in model_to_dict(instance, fields=list(fields)).items()
    }
    for model, foreign_key in inlines:
        rows = model._default_manager.filter(**{foreign_key: instance.pk}).order_by("pk")
        values[model._meta.label] = [list(row) for row in rows.values_list()]
    text = json.dumps(values, sort_keys=True, default=str)
    newest = None
    if has_history(type(instance)):
        newest = _history(instance).order_by("-history_id").values_list("history_id", flat=True).first()
    return f"{newest or 0}.{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def has_history(model: type[models.Model]) -> bool:
    """Return whether django-simple-history records the model."""
    return hasattr(model._meta, "simple_history_manager_attribute")


def _history(instance: models.Model) -> Any:
    manager = getattr(type(instance), type(instance)._meta.simple_history_manager_attribute)  # type: ignore[attr-defined]
    return manager.filter(**{instance._meta.pk.attname: instance.pk})


def changes_since(instance: models.Model, history: int) -> list[str]:
    """Describe what others saved after a row of the history, oldest first: who, when, why, and each changed field."""
    if not has_history(type(instance)):
        return []
    sentences = []
    for record in _history(instance).filter(history_id__gt=history).order_by("history_id"):
        changed = describe_changes(record)
        at = timezone.localtime(record.history_date).strftime("%H:%M UTC on %-d %B")
        why = f" (“{record.history_change_reason}”)" if record.history_change_reason else ""
        what = "; ".join(f"{one['field']} from {one['old']} to {one['new']}" for one in changed)
        sentences.append(
            f"{record.history_user or 'The site'} changed it at {at}{why}: {what or 'its rows'}."
        )
    return sentences


def describe_changes(record: Any) -> list[Mapping[str, str]]:
    """Return the fields that a row of history changed, with old and new values as short text."""
    before = record.prev_record
    if before is None:
        return []
    delta = record.diff_against(before, foreign_keys_are_objs=True)
    return [
        {
            "field": str(record.instance_type._meta.get_field(one.field).verbose_name),
            "old": shown(one.old),
            "new": shown(one.new),
        }
        for one in delta.changes
    ]


#: How an absent value is shown.
NOTHING = "(empty)"


def shown(value: Any) -> str:
    """Return a value as short text, or `NOTHING` if it is absent."""
    absent_row = isinstance(value, DeletedObject) and value.pk is None
    if value is None or absent_row or value in ("", [], {}):
        return NOTHING
    text = plain_text(value)
    if isinstance(value, float):
        return text
    return f"“{text}”" if len(text) <= _LONGEST else f"“{text[:_LONGEST]}…”"


class CurationForm(forms.ModelForm):
    """Base class of the forms of `CurationAdmin`."""

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
        self.present = ""
        if self.instance.pk is not None and "rendered_from" in self.fields:
            # Now: cleaning writes into the instance.
            fields = [name for name in self.fields if name not in OWN_FIELDS]
            self.present = version_token(self.instance, fields, self.curation.inline_rows(self.request))
            self.initial["rendered_from"] = self.present

    @cached_property
    def changed_data(self) -> list[str]:
        """Return the changed fields of the model."""
        return [name for name in super().changed_data if name not in OWN_FIELDS]

    def clean(self) -> dict[str, Any] | None:
        """Refuse to write over what somebody else saved since the form was opened."""
        cleaned = super().clean()
        history, dot, digest = str(self.data.get(self.add_prefix("rendered_from"), "")).partition(".")
        is_token = bool(dot) and history.isascii() and history.isdigit()
        if not self.present or (is_token and digest == self.present.partition(".")[2]):
            return cleaned
        # Shown again, the form is made from what is there now: who saves it then has seen the change.
        data = QueryDict(mutable=True)
        data.update(self.data)
        data[self.add_prefix("rendered_from")] = self.present
        self.data = data
        if not is_token:
            raise ValidationError(
                "The form does not say what it was made from. Look it over and save it again."
            )
        changes = changes_since(self.instance, int(history)) or ["It was changed by somebody else."]
        raise ValidationError(
            [
                "Not saved: this changed while you were editing it.",
                *changes,
                "What you typed is still below. Look it over and save it again; it then replaces their change.",
            ]
        )
