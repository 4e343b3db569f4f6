"""Runs that wait for the first judgements of their dataset: what everyone may know of them, and never a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef

from leaderboard.core.anonymity import shown
from leaderboard.models import Dataset, Entry, Run
from leaderboard.models.results import EntryQuerySet


class AwaitingRun(NamedTuple):
    """A public run of a collecting dataset. `date` is the day it came.

    `system_slug` is None for a system without any result: it has no page.
    """

    system: str
    system_slug: str | None
    team: str
    team_slug: str | None
    tag: str
    run_type: str
    late: bool
    date: str
    submission: str


def awaiting(dataset: Mapping[str, Any]) -> list[AwaitingRun]:
    """The runs that wait on a dataset, given by its row, in the order they came; none once there are judgements."""
    if dataset["state"] != Dataset.State.COLLECTING or dataset["current_qrels_id"] is not None:
        return []
    rows = (
        Run.objects.filter(version=dataset["current_version_id"], public=True, evaluations=None)
        .order_by("created_at", "pk")
        .annotate(has_page=Exists(EntryQuerySet(Entry).known().filter(system=OuterRef("system"))))
        .values(
            "system__name", "system__slug", "has_page", "system__team__name", "system__team__slug",
            "system__participant",
            "system__anonymous_until",
            "tag", "run_type", "late", "created_at", "submission_reference",
        )
    )  # fmt: skip
    return [_row(shown(row, "system__")) for row in rows]


def _row(row: Mapping[str, Any]) -> AwaitingRun:
    return AwaitingRun(
        system=row["system__name"],
        system_slug=row["system__slug"] if row["has_page"] else None,
        team=row["system__participant"] or row["system__team__name"] or "",
        team_slug=None if row["system__participant"] else row["system__team__slug"],
        tag=row["tag"],
        run_type=row["run_type"],
        late=row["late"],
        date=f"{row['created_at']:%Y-%m-%d}",
        submission=row["submission_reference"],
    )
