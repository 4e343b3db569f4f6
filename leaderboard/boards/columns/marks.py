"""What stands beside results: how runs came to a round, challenges, and how the seeds of a set spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.model import Row

#: Follows the name of a system whose run fed a pool that was judged.
POOLED = "§"
NOTES = {
    POOLED: f"{POOLED} pooled: its run fed the pool that was judged; others may have more unjudged documents.",
    "late": "Late: it came after its round had closed.",
    "manual": "Manual: a person had a hand in the queries or in the ranking.",
}


def badges(entry: Any) -> list[str]:
    """The words that stand after the name. A benchmark's line has none: it is of several results."""
    words = ["late"] if getattr(entry, "late", 0) else []
    return words + (["manual"] if getattr(entry, "run_type", "") == "manual" else [])


def pooled_mark(entry: Any) -> str:
    """The sign that stands at the name, or nothing."""
    return POOLED if getattr(entry, "pooled", 0) else ""


def notes(entries: Iterable[Any]) -> list[str]:
    """The footnotes to what any of the entries has."""
    had = set[str]()
    for entry in entries:
        if getattr(entry, "late", 0) or getattr(entry, "pooled", 0) or getattr(entry, "run_type", ""):
            had.update(badges(entry), pooled_mark(entry))
    return [text for word, text in NOTES.items() if word in had]


CHALLENGED = (
    "Challenged: somebody doubts what the system says of itself, and it is not settled yet; the system's page has the "
    "record. It changes no number."
)


def notes_on_challenges(rows: Iterable[Row]) -> list[str]:
    """The note, where a row is challenged."""
    return [CHALLENGED] if any(row.entry.challenged for row in rows) else []


SEEDS = (
    "±: a seed set, of which the value is the mean, with the sample standard deviation (n − 1) over its seeds and how "
    "many these are. Differences are of the mean."
)


class SeedSpread(NamedTuple):
    """How many seeds a value is the mean of, and their sample standard deviation, None where it is not known."""

    number: int
    deviation: float | None


def has_seeds(rows: Iterable[Row], keys: Sequence[str]) -> bool:
    """Whether a row shows in one of the columns how seeds spread; beside a cost stands how far that may be off."""
    cells = (row.cells[key] for row in rows for key in keys if key in row.cells)
    return any(cell.spread and not cell.noise for cell in cells)


def title_of(seeds: SeedSpread, decimals: int) -> str:
    """What a cell says on hover where the board has no room for it."""
    spread = f", ± {seeds.deviation:.{decimals}f}" if seeds.deviation is not None else ""
    return f"mean of {seeds.number} seeds{spread}"
