"""A competition's private part beside the public one that the board ranks by, once it is revealed."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.boards.model import Column
from leaderboard.core.measures import better
from leaderboard.core.text import deltas
from leaderboard.results.history.entry_rows import EntryRow

PRIVATE_PART = "Private part"

NOTE = (
    "Private part: the mean over the judged queries that the board does not rank by, published when the round was "
    "revealed. Δ is private minus public: much below what others lose, a system was fitted to the public part. "
    "A dash: the result came after the reveal, or its own round is not revealed yet."
)


def private_columns(entries: Iterable[EntryRow], measure: str) -> list[Column]:
    """The private value of the measure in focus, and by how much it differs from the public one.

    None while nothing is revealed. A result that came later, or whose round waits, has neither.
    """
    if not any(measure in entry.private_scores for entry in entries):
        return []
    good = better(measure)
    return [
        Column(
            "private",
            measure,
            PRIVATE_PART,
            "score",
            good,
            note="mean over the private part",
            cell=lambda line: line.about.private_scores.get(measure),
        ),
        Column(
            "private_difference",
            "Δ",
            PRIVATE_PART,
            "delta",
            good,
            note="private part minus public part",
            cell=lambda line: deltas.absolute(
                line.about.private_scores.get(measure), line.scores.get(measure)
            ),
        ),
    ]
