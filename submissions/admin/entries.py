"""Admin of results, with the action that measures their costs again in a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin

from leaderboard.admin.pages import confirmed_action
from leaderboard.admin.results import MODERATES, EntryAdmin
from leaderboard.models import Entry
from submissions.jobs.measuring import CannotMeasure, request_measurement


def _measure(entry: Entry, values: Mapping[str, Any]) -> str:
    job = request_measurement(entry)
    return f"Job {job.pk} measures {entry} again."


@admin.register(Entry)
class MeasuredEntryAdmin(EntryAdmin):
    """Admin of results whose costs can be measured again."""

    actions = (*EntryAdmin.actions, "measure_again")

    def acts(self, obj: Entry) -> Iterable[str]:
        """Return the actions that the entry's state permits."""
        ran = obj.provenance == Entry.Provenance.MEASURED
        return (*super().acts(obj), *(["measure_again"] if ran else []))

    measure_again = confirmed_action(
        "Measure again: latency, memory and index, without another score", MODERATES, _measure,
        refusals=(CannotMeasure,), title="Measure costs again", button="Measure again",
        explanation="A job runs the model again and times it. The present costs remain until it ends:",
    )  # fmt: skip
