"""Differences to a baseline. Only ever taken inside one comparison group; None wherever a side is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import Any

#: Differences are exact to far more decimals than are published; this drops what binary fractions add.
DIGITS = 10


def absolute(value: float | None, baseline: float | None) -> float | None:
    """value − baseline."""
    if value is None or baseline is None:
        return None
    return round(value - baseline, DIGITS)


def relative(value: float | None, baseline: float | None) -> float | None:
    """(value − baseline) / baseline; None where the baseline is 0."""
    if value is None or not baseline:
        return None
    return round((value - baseline) / baseline, DIGITS)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean, None unless every value is there."""
    if not values or None in values:
        return None
    return round(sum(values) / len(values), DIGITS)  # type: ignore[arg-type]


def average_relative(mean_value: float | None, mean_baseline: float | None) -> float | None:
    """The relative difference of two means, which only complete rows have.

    The BEIR paper's Table 2 ends with an "average performance vs. BM25" and gives no formula. Of the two candidates
    this one is closer to what is printed there: from the table's own cells it is off by 1.1 points on average (3.7 at
    most, DPR), the mean of the relative differences by 2.0 (5.5 at most). Neither reproduces the printed line.
    """
    return relative(mean_value, mean_baseline)


@dataclass(frozen=True, slots=True)
class Wins:
    """On how many datasets a system is better than, equal to, and worse than the baseline."""

    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{self.wins}/{self.ties}/{self.losses}"


def wins(values: Sequence[float | None], baselines: Sequence[float | None]) -> Wins | None:
    """Wins, ties and losses over the datasets where both sides have a value; None where there is none."""
    compared: tuple[Sequence[Any], Sequence[Any]] = (values, baselines)
    if None in values or None in baselines:
        pairs = [pair for pair in zip(values, baselines, strict=True) if None not in pair]
        compared = [value for value, _ in pairs], [baseline for _, baseline in pairs]
    won, lost = sum(map(gt, *compared)), sum(map(lt, *compared))
    tied = len(compared[0]) - won - lost
    return Wins(won, tied, lost) if won or tied or lost else None
