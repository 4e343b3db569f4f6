"""What a system said of itself before, and says now: its public fields as its history kept them, but not who wrote.

Only what changed since everyone sees the system. While it is anonymous, what might name its team is said to have
changed and no more; what is kept back meanwhile is never told of that time.
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

#: Corrections that are shown, the newest.
MOST = 20
#: Longer texts are only said to have changed.
_LONGEST = 120
#: What a system claims: told in full, always.
_CLAIMS: Mapping[str, str] = {
    "training_declared": "Training declared",
    "training_datasets": "Trained on",
    "adapted_to": "Adapted to",
    "architecture": "Architecture",
    "closed_api": "Closed API",
    "open_weights": "Open weights",
    "commercial_use": "Commercial use",
    **{each.name: each.label for each in DECLARED_NUMBERS},
    "year": "Year",
}
#: Words of the team's own.
_WORDS: Mapping[str, str] = {
    "name": "Name",
    "description": "Description",
    "parameters": "Parameters",
    "backbone": "Backbone",
    "licence": "Licence",
    "training_compute": "Training compute",
    "variant_of_id": "Variant of",
}
#: What an anonymous system keeps back.
_PEOPLE: Mapping[str, str] = {
    "participant": "Participant",
    "authors": "Authors",
    "paper_url": "Paper",
    "code_url": "Code",
    "model_url": "Model",
    "bibtex": "BibTeX",
}
_COLUMNS = (*_CLAIMS, *_WORDS, *_PEOPLE, "anonymous_until", "history_date")
#: Keys and long texts mean nothing beside each other.
_ONLY_CHANGED = ("description", "bibtex", "parameters", "variant_of_id")


class FieldChange(NamedTuple):
    """One field; `before` and `after` are None where only the change is told."""

    field: str
    before: str | None
    after: str | None


class Correction(NamedTuple):
    """What was changed at one time; the day is ISO."""

    day: str
    changes: list[FieldChange]


def corrections_of(system_id: int) -> list[Correction]:
    """The system's corrections, the newest first. Three queries at most."""
    # When everyone saw anything of the system first.
    seen = EntryQuerySet(Entry).seen().filter(system=system_id)
    at_that = Q(revision=OuterRef("from_revision"), dataset=OuterRef("dataset"))
    times = BoardChange.objects.filter(at_that).values("at")[:1]
    since = EntryVersion.objects.filter(entry__in=seen).aggregate(first=Min(Subquery(times)))["first"]
    if since is None:
        return []
    history: Any = System.history
    rows = list(history.filter(id=system_id).order_by("history_date", "history_id").values(*_COLUMNS))
    anonymous_now = bool(rows) and rows[-1]["anonymous_until"] is not None
    found = []
    for before, after in pairwise(rows):
        changes = _changes(before, after, anonymous_now) if after["history_date"] >= since else []
        if changes:
            found.append(Correction(after["history_date"].date().isoformat(), changes))
    return found[::-1][:MOST]


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], anonymous_now: bool) -> list[FieldChange]:
    anonymous = any(row["anonymous_until"] is not None for row in (before, after))
    fields = {**_CLAIMS, **_WORDS, **({} if anonymous else _PEOPLE)}
    found = []
    for name, label in fields.items():
        old, new = before[name], after[name]
        if old == new:
            continue
        told = name in _CLAIMS or not (anonymous_now or name in _ONLY_CHANGED)
        told = told and max(len(str(old)), len(str(new))) <= _LONGEST
        found.append(
            FieldChange(label, _field_text(name, old), _field_text(name, new))
            if told
            else FieldChange(label, None, None)
        )
    return found


def _field_text(name: str, value: Any) -> str:
    if name == "architecture":
        return dict(architecture_choices()).get(value, str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if value not in (None, "") else "not said"
