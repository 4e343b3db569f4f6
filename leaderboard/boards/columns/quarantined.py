"""Results under quarantine: they keep a place below the ranking, with the curator's reason and without a number."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.results.history.entry_rows import EntryRow
from leaderboard.results.kinds import QUARANTINED


def without_numbers(entries: Iterable[EntryRow]) -> list[EntryRow]:
    """The entries, those under quarantine bare of all that was found of their runs."""
    return [_bare(entry) if entry.visibility == QUARANTINED else entry for entry in entries]


def _bare(entry: EntryRow) -> EntryRow:
    return entry._replace(
        scores_text="{}",
        figures_text="[]",
        deviations_text="{}",
        private_scores_text="{}",
        seed_count=0,
        missing_queries=None,
        is_baseline=0,
        submission="",
    )
