"""What boards say of systems that are challenged."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.boards.model import Row

NOTE = (
    "Challenged: somebody doubts what the system says of itself, and it is not settled yet; the system's page has the "
    "record. It changes no number."
)


def notes_on_challenges(rows: Iterable[Row]) -> list[str]:
    """The note, where a row is challenged."""
    return [NOTE] if any(row.entry.challenged for row in rows) else []
