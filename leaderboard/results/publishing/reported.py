"""Papers' numbers on boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from leaderboard.models import Dataset, Entry, System
from leaderboard.results.history.revisions import Kind, boards_changed, lock_boards


@dataclass(frozen=True, slots=True)
class ReportedEntry:
    """A paper's numbers for a system on a dataset; the source is the system's."""

    dataset: Dataset
    system: System
    configuration: str
    scores: Mapping[str, float]
    figures: list[dict[str, Any]]
    comparison_group: str
    is_baseline: bool
    training: Entry.Training
    locator: str

    def shown(self) -> dict[str, Any]:
        """What may change when a table is corrected."""
        return {
            "scores": dict(self.scores),
            "figures": self.figures,
            "comparison_group": self.comparison_group,
            "is_baseline": self.is_baseline,
            "training": self.training,
            "locator": self.locator,
        }


@transaction.atomic
def publish_reported(reported: Sequence[ReportedEntry]) -> int:
    """Show papers' numbers, and return how many entries are new or changed. Again, the same ones change nothing."""
    lock_boards({entry.dataset.pk for entry in reported})
    systems = {entry.system.pk for entry in reported}
    known = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED, system__in=systems)
    }
    new: list[Entry] = []
    changed: list[Entry] = []
    for row in reported:
        entry = known.get((row.dataset.pk, row.system.pk, row.configuration))
        shown = row.shown()
        if entry is None:
            new.append(
                Entry(
                    dataset=row.dataset,
                    system=row.system,
                    source_id=row.system.source_id,
                    provenance=Entry.Provenance.REPORTED,
                    configuration=row.configuration,
                    published_at=timezone.now(),
                    **shown,
                )
            )
        elif any(getattr(entry, name) != value for name, value in shown.items()):
            for name, value in shown.items():
                setattr(entry, name, value)
            changed.append(entry)
    Entry.objects.bulk_create(new)
    if changed:
        Entry.objects.bulk_update(changed, list(reported[0].shown()))
    touched = {entry.dataset_id for entry in (*new, *changed)}
    boards_changed(touched, Kind.REPORTED)
    return len(new) + len(changed)
