"""Optimistic locking of the pages that curators edit: a token of what a form was made from, and what changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db import models
from django.forms import model_to_dict
from django.utils import timezone
from simple_history.models import DeletedObject

from leaderboard.core.text.plain import plain_text

#: Values longer than this are shown by their beginning.
_LONGEST = 120


class VersionToken(NamedTuple):
    """What a form was made from. `history` is 0 for models without one."""

    history: int
    digest: str

    def __str__(self) -> str:
        return f"{self.history}.{self.digest}"


def read_token(text: str) -> VersionToken | None:
    """The token that came with a form; None where there is none."""
    history, dot, digest = text.partition(".")
    return VersionToken(int(history), digest) if dot and history.isascii() and history.isdigit() else None


def token_of(
    instance: models.Model, fields: Iterable[str], inlines: Iterable[tuple[type[models.Model], str]]
) -> VersionToken:
    """The token of an object as it is now: the named fields, and the rows of inlines, by model and foreign key."""
    values: dict[str, Any] = {
        name: [getattr(each, "pk", each) for each in value] if isinstance(value, list) else value
        for name, value in model_to_dict(instance, fields=list(fields)).items()
    }
    for model, foreign_key in inlines:
        rows = model._default_manager.filter(**{foreign_key: instance.pk}).order_by("pk")
        values[model._meta.label] = [list(row) for row in rows.values_list()]
    text = json.dumps(values, sort_keys=True, default=str)
    return VersionToken(_newest(instance), hashlib.sha256(text.encode()).hexdigest()[:32])


def has_history(model: type[models.Model]) -> bool:
    """Whether django-simple-history keeps the model's past."""
    return hasattr(model._meta, "simple_history_manager_attribute")


def _newest(instance: models.Model) -> int:
    if not has_history(type(instance)):
        return 0
    return _history(instance).order_by("-history_id").values_list("history_id", flat=True).first() or 0


def _history(instance: models.Model) -> Any:
    manager = getattr(type(instance), type(instance)._meta.simple_history_manager_attribute)  # type: ignore[attr-defined]
    return manager.filter(**{instance._meta.pk.attname: instance.pk})


def changes_since(instance: models.Model, token: VersionToken) -> list[str]:
    """What others saved since the token was made, the oldest first: who, when, why, and each field from → to."""
    if not has_history(type(instance)):
        return []
    sentences = []
    for record in _history(instance).filter(history_id__gt=token.history).order_by("history_id"):
        changed = describe_changes(record)
        at = timezone.localtime(record.history_date).strftime("%H:%M UTC on %-d %B")
        why = f" (“{record.history_change_reason}”)" if record.history_change_reason else ""
        what = "; ".join(f"{one['field']} from {one['old']} to {one['new']}" for one in changed)
        sentences.append(
            f"{record.history_user or 'The site'} changed it at {at}{why}: {what or 'its rows'}."
        )
    return sentences


def describe_changes(record: Any) -> list[Mapping[str, str]]:
    """What a row of history changed against the one before: field, old and new value as short text."""
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
    """A value as short text; an absent one says so."""
    absent_row = isinstance(value, DeletedObject) and value.pk is None
    if value is None or absent_row or value in ("", [], {}):
        return NOTHING
    text = plain_text(value)
    if isinstance(value, float):
        return text
    return f"“{text}”" if len(text) <= _LONGEST else f"“{text[:_LONGEST]}…”"
