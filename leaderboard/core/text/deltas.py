"""Differences to a baseline. Only ever taken inside one comparison group; None wherever a side is missing."""

from __future__ import annotations

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
