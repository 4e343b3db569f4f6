"""Which stored content any row names, by its checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson
from django.apps import apps
from django.db import models

from leaderboard.models import Pool, Rescore, WorkRequest
from submissions.models import Job

#: Columns of JSON that may have checksums in them.
_LISTS = (
    (Pool, "files"),
    (Rescore, "content"),
    (WorkRequest, "payload"),
    (Job, "payload"),
)
_CHECKSUM = re.compile(rb"[0-9a-f]{64}")


def named_checksums() -> set[str]:
    """Every sha256 in any row, histories included: of a table to come as well, as long as its column says so."""
    named: set[str] = set()
    for model, column in _columns():
        named.update(model._default_manager.values_list(column, flat=True).distinct().iterator())
    for model, column in _LISTS:
        for value in model._default_manager.values_list(column, flat=True).iterator():
            named.update(found.decode() for found in _CHECKSUM.findall(orjson.dumps(value)))
    return named - {""}


def _columns() -> Iterator[tuple[type[models.Model], str]]:
    for label in ("leaderboard", "submissions"):
        for model in apps.get_app_config(label).get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, models.CharField) and field.name.endswith("sha256"):
                    yield model, field.name
