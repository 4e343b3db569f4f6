"""A competition's private part beside the public one that the board ranks by, once it is revealed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaderboard.boards.model import Column, Value
from leaderboard.core.measures import better
from leaderboard.core.text import deltas
from leaderboard.results.history.entry_rows import EntryRow

PRIVATE_PART = "Private part"

NOTE = (
    "Private part: the mean over the judged queries that the board does not rank by, published when the round was "
    "revealed. Δ is private minus public: much below what others lose, a system was fitted to the public part. "
    "A dash: the result came after the reveal, or its own round is not revealed yet."
)


@dataclass(frozen=True, slots=True)
class PrivateColumns:
    """The private value of the measure in focus, and by how much it differs from the public one."""

    measure: str
    columns: tuple[Column, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[EntryRow], measure: str) -> PrivateColumns:
        """Both columns, or none while nothing is revealed."""
        if not any(measure in entry.private_scores for entry in entries):
            return cls(measure)
        good = better(measure)
        value = Column("private", measure, PRIVATE_PART, "score", good, note="mean over the private part")
        difference = Column(
            "private_difference", "Δ", PRIVATE_PART, "delta", good, note="private part minus public part"
        )
        return cls(measure, (value, difference))

    def values(self, entry: EntryRow, public: float | None) -> list[Value]:
        """A row's cells: None for a result that came later, or whose round waits."""
        if not self.columns:
            return []
        private = entry.private_scores.get(self.measure)
        return [private, deltas.absolute(private, public)]

    def notes(self) -> list[str]:
        """What a reader has to know of them."""
        return [NOTE] if self.columns else []
