"""Seed sets on boards: the mean is the value, and how its seeds spread stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def show_seeds(row: Row, count: int, deviations: Mapping[str, float], places: Mapping[str, int]) -> None:
    """Put into the row of a seed set how the seeds spread, by measure; `places` has the measure in focus first."""
    for number, (measure, place) in enumerate(places.items()):
        if measure not in deviations or row.values[place] is None:
            continue
        spread = f"± {deviations[measure]:.{row.decimals}f}"
        if number == 0:
            row.spreads[place] = f"{spread} ({count})"
        row.titles[place] = f"mean of {count} seeds, {spread}"


def has_seeds(rows: Iterable[Row]) -> bool:
    """Whether a row shows how seeds spread; beside a cost stands how far that may be off."""
    return any(row.spreads.keys() - row.noise.keys() for row in rows)


def title_of(seeds: SeedsOf, decimals: int) -> str:
    """What a cell says on hover where the board has no room for it."""
    spread = f", ± {seeds.deviation:.{decimals}f}" if seeds.deviation is not None else ""
    return f"mean of {seeds.number} seeds{spread}"
