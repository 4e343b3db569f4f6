"""Papers' numbers on boards."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from leaderboard.models import Entry
from leaderboard.results.board_rows.revisions import Kind, board_changed, boards_changed, lock_boards
from leaderboard.results.publishing.visibility import unpublish

#: What may change when a table is corrected.
CORRECTED = ("scores", "figures", "comparison_group", "is_baseline", "training", "locator")


@transaction.atomic
def publish_reported(reported: Sequence[Entry]) -> int:
    """Show papers' numbers, and return how many entries are new or changed. Again, the same ones change nothing.

    The entries are not saved yet: they have a dataset, a system with its source, a configuration, and CORRECTED.
    """
    lock_boards({row.dataset_id for row in reported})
    systems = {row.system_id for row in reported}
    known = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED, system__in=systems)
    }
    new: list[Entry] = []
    changed: list[Entry] = []
    for row in reported:
        entry = known.get((row.dataset_id, row.system_id, row.configuration))
        if entry is None:
            row.provenance, row.source_id = Entry.Provenance.REPORTED, row.system.source_id
            row.published_at = timezone.now()
            new.append(row)
        elif any(getattr(entry, name) != getattr(row, name) for name in CORRECTED):
            for name in CORRECTED:
                setattr(entry, name, getattr(row, name))
            changed.append(entry)
    Entry.objects.bulk_create(new)
    Entry.objects.bulk_update(changed, CORRECTED)
    touched = {entry.dataset_id for entry in (*new, *changed)}
    boards_changed(touched, Kind.REPORTED)
    return len(new) + len(changed)


@transaction.atomic
def withdraw_reported(entry: Entry, measure: str, reason: str) -> None:
    """Take one measure's figure off a reported entry; without a measure, or where no other is left, the entry itself.

    Raises CannotModerate for the baseline of its publication, and without a reason.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    others = {name: value for name, value in entry.scores.items() if name != measure}
    if not measure or not others:
        unpublish(entry, reason)
        return
    entry.scores, entry.figures = others, [each for each in entry.figures if each["name"] != measure]
    entry.save(update_fields=["scores", "figures"])
    board_changed(entry.dataset, Kind.REPORTED, entry, {entry.pk})
