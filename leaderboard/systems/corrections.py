"""Public history of a system's metadata, without authors of the changes.

Only changes since the system became public are included. While it is anonymous, changes of fields that might identify
its team are listed without values; values from an anonymous period are never revealed.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from django.db.models import Min, OuterRef, Q, Subquery

from leaderboard.models import (
    DECLARED_NUMBERS,
    BoardChange,
    Entry,
    EntryQuerySet,
    EntryVersion,
    System,
    architecture_choices,
)

#: Maximum number of corrections, newest first.
MAX_CORRECTIONS = 20
#: Maximum length of values in characters; longer ones are only marked as changed.
_MAX_LENGTH = 120
#: Claims, which are always shown with values.
_CLAIMS: Mapping[str, str] = {
    "training_declared": "Training declared",
    "training_datasets": "Trained on",
    "adapted_to": "Adapted to",
    "architecture": "Architecture",
    "closed_api": "Closed API",
    "open_weights": "Open weights",
    "commercial_use": "Commercial use",
    **{number.name: number.label for number in DECLARED_NUMBERS},
    "year": "Year",
}
#: Free text fields of the team.
_TEXT_FIELDS: Mapping[str, str] = {
    "name": "Name",
    "description": "Description",
    "parameters": "Parameters",
    "backbone": "Backbone",
    "licence": "License",
    "training_compute": "Training compute",
    "variant_of_id": "Variant of",
}
#: Fields that anonymous systems withhold.
_IDENTIFYING_FIELDS: Mapping[str, str] = {
    "participant": "Participant",
    "authors": "Authors",
    "paper_url": "Paper",
    "code_url": "Code",
    "model_url": "Model",
    "bibtex": "BibTeX",
}
_COLUMNS = (*_CLAIMS, *_TEXT_FIELDS, *_IDENTIFYING_FIELDS, "anonymous_until", "history_date")
#: Fields without comparable values, that is, keys and long texts.
_WITHOUT_VALUES = ("description", "bibtex", "parameters", "variant_of_id")


class FieldChange(NamedTuple):
    """A changed field; `before` and `after` are None if the values are not shown."""

    field: str
    before: str | None
    after: str | None


class Correction(NamedTuple):
    """Changes made at the same time; `day` is a date in ISO 8601 format."""

    day: str
    changes: list[FieldChange]


def list_corrections(system_id: int) -> list[Correction]:
    """Return the system's newest public corrections, newest first, in at most three queries.

    Changes before the system first became public are omitted.
    """
    # Find the time when the system first became public.
    public_entries = EntryQuerySet(Entry).seen().filter(system=system_id)
    same_change = Q(revision=OuterRef("from_revision"), dataset=OuterRef("dataset"))
    times = BoardChange.objects.filter(same_change).values("at")[:1]
    public_since = EntryVersion.objects.filter(entry__in=public_entries).aggregate(first=Min(Subquery(times)))["first"]
    if public_since is None:
        return []
    history: Any = System.history
    rows = list(history.filter(id=system_id).order_by("history_date", "history_id").values(*_COLUMNS))
    anonymous_now = bool(rows) and rows[-1]["anonymous_until"] is not None
    corrections = []
    for before, after in pairwise(rows):
        changes = _changes(before, after, anonymous_now) if after["history_date"] >= public_since else []
        if changes:
            corrections.append(Correction(after["history_date"].date().isoformat(), changes))
    return corrections[::-1][:MAX_CORRECTIONS]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], anonymous_now: bool) -> list[FieldChange]:
    """Return the fields that differ between two states of a system, with values if they may be shown.

    If the system was anonymous in either state, identifying fields are omitted. While it is anonymous now, only claims
    have values.
    """
    is_anonymous = any(row["anonymous_until"] is not None for row in (before, after))
    fields = {**_CLAIMS, **_TEXT_FIELDS, **({} if is_anonymous else _IDENTIFYING_FIELDS)}
    changes = []
    for name, label in fields.items():
        old_value, new_value = before[name], after[name]
        if old_value == new_value:
            continue
        has_values = name in _CLAIMS or not (anonymous_now or name in _WITHOUT_VALUES)
        has_values = has_values and max(len(str(old_value)), len(str(new_value))) <= _MAX_LENGTH
        changes.append(
            FieldChange(label, _field_text(name, old_value), _field_text(name, new_value))
            if has_values
            else FieldChange(label, None, None)
        )
    return changes


def _field_text(name: str, value: Any) -> str:
    """Return a field's value as text, such as “yes” for true, “none” for an empty list, or “not stated”."""
    if name == "architecture":
        return dict(architecture_choices()).get(value, str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if value not in (None, "") else "not stated"
