"""Base form of curation pages, with a reason and detection of edit conflicts.

A form contains a hidden token: the newest row of the object's history, and a digest of the values of its fields and
inlines. If the digest differs on saving, another curator has saved the object in between, and the form shows their
changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.forms import model_to_dict
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from simple_history.models import DeletedObject

from evaluation.measures.registry import DEFAULT_MEASURES, RESPONSE_MEASURES
from leaderboard.core.text.dates import format_moment
from leaderboard.core.text.json import read_json
from leaderboard.core.text.plain import plain_text
from leaderboard.datasets.terms import SUGGESTED_FIELDS, suggest_terms

#: Fields of the form that do not belong to the model.
OWN_FIELDS = ("why", "rendered_from")
#: Maximum length of a reason.
LONGEST_REASON = 300


#: Form fields that may be left empty, and a single-line text field.
optional_text = partial(forms.CharField, required=False)
optional_choice = partial(forms.ChoiceField, required=False)
optional_integer = partial(forms.IntegerField, required=False)
optional_share = partial(forms.FloatField, required=False, min_value=0.05, max_value=0.95)
tick_box = partial(forms.BooleanField, required=False)
text_line = partial(forms.CharField, widget=forms.TextInput(attrs={"class": "vTextField"}))


class WhyField(forms.CharField):
    """A single-line field for a curator's reason."""

    def __init__(self, **options: Any) -> None:
        defaults = {
            "label": "Reason",
            "max_length": LONGEST_REASON,
            "help_text": "Stored with your name in the history and the audit log.",
            "widget": forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
            "error_messages": {"required": "Give a reason in a few words, for the audit log."},
        }
        super().__init__(**{**defaults, **options})


class StrictJSONField(forms.JSONField):
    """Strict JSON that every database can store; an empty field has the model's default."""

    def to_python(self, value: Any) -> Any:
        """Return the parsed JSON, or the field's default for an empty value.

        Raises ValidationError for JSON that some database cannot store.
        """
        if value in self.empty_values and callable(self.initial):
            return self.initial()
        if isinstance(value, str) and value not in self.empty_values:
            try:
                return read_json(value)
            except ValueError as error:
                raise ValidationError(f"This JSON cannot be stored: {error}.") from None
        return super().to_python(value)

    def prepare_value(self, value: Any) -> Any:
        """Return the text for the form: indented JSON, empty for an empty list or dictionary."""
        is_value = bool(value) and not isinstance(value, InvalidJSONInput)
        return json.dumps(value, ensure_ascii=False, indent=2) if is_value else value or ""

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the value that the form shows again, or the entered text if it is not valid JSON."""
        try:
            return None if data is None else read_json(data)
        except ValueError:
            return InvalidJSONInput(data)


class LinesField(StrictJSONField):
    """A JSON list of texts, entered as lines."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        lines = value.splitlines() if isinstance(value, str) else value or []
        return super().to_python(json.dumps([line.strip() for line in lines if line.strip()]))

    def bound_data(self, data: Any, initial: Any) -> Any:
        return data


class TextFileField(forms.FileField):
    """An uploaded text file of at most `max_bytes`; the value is the text."""

    def __init__(self, *, max_bytes: int, **options: Any) -> None:
        super().__init__(required=False, **options)
        self.max_bytes = max_bytes

    def clean(self, data: Any, initial: Any = None) -> str:
        """Return the file's text, or an empty string if there is no file.

        Raises ValidationError if the file is too large or not UTF-8.
        """
        file = super().clean(data, initial)
        if file and file.size > self.max_bytes:
            raise ValidationError(f"The file is larger than {self.max_bytes:,} bytes. Split it into parts.")
        try:
            return file.read().decode("utf-8-sig") if file else ""
        except UnicodeDecodeError:
            raise ValidationError("The file is not UTF-8 text. Save it as UTF-8.") from None


def _json_field(**options: Any) -> StrictJSONField:
    """Return the form field of a JSON column, which is entered as lines if it is a list."""
    return (LinesField if options.get("initial") is list else StrictJSONField)(**options)


#: Form field options by model field, if they differ from Django's.
FORM_FIELDS: dict[type[models.Field[Any, Any]], dict[str, Any]] = {
    models.URLField: {"assume_scheme": "https"},
    models.JSONField: {"form_class": _json_field},
    models.ForeignKey: {"empty_label": "Choose one"},
}


class GroupedForm(forms.Form):
    """Form with folded groups of fields."""

    required_css_class = "required"
    #: Title, description, and fields of each group.
    folded_groups: ClassVar[tuple[tuple[Any, Any, tuple[str, ...]], ...]] = ()

    def groups(self) -> list[tuple[Any, Any, list[forms.BoundField], bool]]:
        """Return title, description, and fields of each folded group, and whether a field has an error or a value."""
        groups = [(title, words, [self[name] for name in names]) for title, words, names in self.folded_groups]
        return [(*group, any(field.errors or field.value() for field in group[2])) for group in groups]


class TermInput(forms.TextInput):
    """Text input with a list of suggested values."""

    def __init__(self, suggest: Callable[[], Mapping[str, str]], attrs: dict[str, Any] | None = None) -> None:
        """Store `suggest`, which returns labels by value and is called each time the input is rendered."""
        super().__init__(attrs)
        self.suggest = suggest

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Return the HTML of the input with a list of suggestions."""
        list_id = f"known-{name}"
        options = format_html_join("", '<option value="{}">{}</option>', self.suggest().items())
        field = super().render(name, value, {**(attrs or {}), "list": list_id}, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, list_id, options)


class MeasureInput(forms.TextInput):
    """Input for a measure: a list of known measures, and a text field that takes precedence."""

    is_multiple = False

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        chosen = str(value or "").replace(",", " ").split()
        groups = (_("Common measures"), DEFAULT_MEASURES), (_("Measures of answer runs"), RESPONSE_MEASURES)
        others = [measure for measure in chosen if measure not in (*DEFAULT_MEASURES, *RESPONSE_MEASURES)]
        values: dict[str, Any] = {"name": name, "groups": groups, "chosen": chosen, "others": " ".join(others)}
        return render_to_string("admin/measure_input.html", {**values, "is_multiple": self.is_multiple, "attrs": attrs})

    def value_from_datadict(self, data: Any, files: Any, name: str) -> str:
        submitted_values = data.getlist(name) if isinstance(data, MultiValueDict) else [str(data.get(name) or "")]
        values = list(filter(str.strip, submitted_values))
        return " ".join(values if self.is_multiple else values[-1:])


class MeasuresInput(MeasureInput):
    """Choice of several measures; the value is their names, separated by spaces."""

    is_multiple = True


#: Maximum length of displayed values.
_MAX_LENGTH = 120


def version_token(
    instance: models.Model, fields: Iterable[str], inlines: Iterable[tuple[type[models.Model], str]]
) -> str:
    """Return `HISTORY.DIGEST` of an object.

    HISTORY is the id of its newest history row (0 if there is none). DIGEST depends on the values of `fields` and on
    the rows of `inlines`, which are models with the names of their foreign keys to the object.
    """
    values: dict[str, Any] = {
        name: [getattr(item, "pk", item) for item in value] if isinstance(value, list) else value
        for name, value in model_to_dict(instance, fields=list(fields)).items()
    }
    for model, foreign_key in inlines:
        rows = model._default_manager.filter(**{foreign_key: instance.pk}).order_by("pk")
        values[model._meta.label] = [list(row) for row in rows.values_list()]
    text = json.dumps(values, sort_keys=True, default=str)
    newest_id = None
    if has_history(type(instance)):
        newest_id = _history(instance).order_by("-history_id").values_list("history_id", flat=True).first()
    return f"{newest_id or 0}.{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def has_history(model: type[models.Model]) -> bool:
    return hasattr(model._meta, "simple_history_manager_attribute")


def _history(instance: models.Model) -> Any:
    manager = getattr(type(instance), type(instance)._meta.simple_history_manager_attribute)  # type: ignore[attr-defined]
    return manager.filter(**{instance._meta.pk.attname: instance.pk})


def changes_since(instance: models.Model, history: int) -> list[str]:
    """Return a sentence for each change after the history row `history`, oldest first.

    It contains author, time, reason, and fields. Models without history have none.
    """
    if not has_history(type(instance)):
        return []
    sentences = []
    for record in _history(instance).filter(history_id__gt=history).order_by("history_id"):
        changes = describe_changes(record)
        time = format_moment(record.history_date)
        reason = f" (“{record.history_change_reason}”)" if record.history_change_reason else ""
        description = "; ".join(f"{change['field']} from {change['old']} to {change['new']}" for change in changes)
        author = record.history_user or "The site"
        sentences.append(f"{author} changed it at {time}{reason}: {description or 'its rows'}.")
    return sentences


def describe_changes(record: Any) -> list[Mapping[str, str]]:
    """Return the fields that a history row changed (`field`, `old`, `new`), as short text; none for the first row."""
    before = record.prev_record
    if before is None:
        return []
    delta = record.diff_against(before, foreign_keys_are_objs=True)
    return [
        {
            "field": str(record.instance_type._meta.get_field(change.field).verbose_name),
            "old": display_value(change.old),
            "new": display_value(change.new),
        }
        for change in delta.changes
    ]


#: Display of an absent value.
EMPTY_VALUE = "(empty)"


def display_value(value: Any) -> str:
    """Return a value as quoted text of limited length, a float without quotation marks, or `EMPTY_VALUE`."""
    absent_row = isinstance(value, DeletedObject) and value.pk is None
    if value is None or absent_row or value in ("", [], {}):
        return EMPTY_VALUE
    text = plain_text(value)
    if isinstance(value, float):
        return text
    return f"“{text}”" if len(text) <= _MAX_LENGTH else f"“{text[:_MAX_LENGTH]}…”"


class CurationForm(forms.ModelForm):
    """Base class of the forms of `CurationAdmin`."""

    why = WhyField()
    rendered_from = forms.CharField(widget=forms.HiddenInput, required=False, label="")

    #: Admin page and request, set by `CurationAdmin.get_form`.
    curation: Any
    request: HttpRequest

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Add suggestions and the version token, and require a reason if the admin page requires one."""
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for name in SUGGESTED_FIELDS.get(type(self.instance), ()):
            if name in self.fields:
                attributes = self.fields[name].widget.attrs
                self.fields[name].widget = TermInput(partial(suggest_terms, type(self.instance), name), attributes)
        if "why" in self.fields:
            self.fields["why"].required = self.curation.why_required
        self.current_token = ""
        if self.instance.pk is not None and "rendered_from" in self.fields:
            # Computed now, because validation modifies the instance.
            fields = [name for name in self.fields if name not in OWN_FIELDS]
            self.current_token = version_token(self.instance, fields, self.curation.inline_rows(self.request))
            self.initial["rendered_from"] = self.current_token

    @cached_property
    def changed_data(self) -> list[str]:
        """The changed fields of the model."""
        return [name for name in super().changed_data if name not in OWN_FIELDS]

    def clean(self) -> dict[str, Any] | None:
        """Return the cleaned values. Raises ValidationError if the object was saved since the form was opened.

        It is also raised if the version token is missing. The form then has a new token, so that the user can save
        again.
        """
        cleaned = super().clean()
        history, dot, digest = str(self.data.get(self.add_prefix("rendered_from"), "")).partition(".")
        is_token = bool(dot) and history.isascii() and history.isdigit()
        if not self.current_token or (is_token and digest == self.current_token.partition(".")[2]):
            return cleaned
        # The next form gets the current token, because it shows the changes to the user.
        data = QueryDict(mutable=True)
        data.update(self.data)
        data[self.add_prefix("rendered_from")] = self.current_token
        self.data = data
        if not is_token:
            raise ValidationError("The version of the form is missing. Check your input and save it again.")
        changes = changes_since(self.instance, int(history)) or ["Another curator changed it."]
        raise ValidationError(
            [
                "The form was not saved, because the object changed while you were editing it.",
                *changes,
                "Your input is still below. Check it and save it again to replace these changes.",
            ]
        )
