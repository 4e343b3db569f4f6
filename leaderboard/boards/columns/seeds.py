"""Seed sets on boards: the mean is the value, and how its seeds spread stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leaderboard.boards.model import Row

NOTE = (
    "±: a seed set, of which the value is the mean, with the sample standard deviation (n − 1) over its seeds and how "
    "many these are. Differences are of the mean."
)


class SeedsOf(NamedTuple):
    """How many seeds a value is the mean of, and their sample standard deviation, None where it is not known."""

    number: int
    deviation: float | None


def has_seeds(rows: Iterable[Row], keys: Sequence[str]) -> bool:
    """Whether a row shows in one of the columns how seeds spread; beside a cost stands how far that may be off."""
    return any(row[key].spread and not row[key].noise for row in rows for key in keys)


def title_of(seeds: SeedsOf, decimals: int) -> str:
    """What a cell says on hover where the board has no room for it."""
    spread = f", ± {seeds.deviation:.{decimals}f}" if seeds.deviation is not None else ""
    return f"mean of {seeds.number} seeds{spread}"
