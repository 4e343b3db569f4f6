"""Axes and words that several figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from leaderboard.core.text.numbers import MINUS

#: So many ticks at most on a linear axis, and on one of a phone's width.
MOST_TICKS, MOST_NARROW_TICKS = 6, 4
#: What is free beyond the outermost points, as a share of what they span; labels are placed with the same.
ROOM = 0.06 / 0.88


def uncapitalised(text: str) -> str:
    """The text as it stands within a sentence; what it has of units keeps its letters."""
    return text[:1].lower() + text[1:]


def sentence(text: str) -> str:
    """The text as a sentence or a head begins; a measure's name (nDCG@10) keeps its letters."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() and text[1:2].islower() else text


def linear_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """A linear axis with room around these values; equal ones stand in its middle."""
    low, high = min(values), max(values)
    room = ROOM * (high - low) or max(0.1 * abs(high), 0.01)
    bounds = low - room, high + room
    return {"title": {"text": title}, "range": list(bounds), **linear_ticks(*bounds)}


def linear_ticks(
    low: float, high: float, *, signed: bool = False, percent: bool = False, most: int = MOST_TICKS
) -> dict[str, Any]:
    """Ticks between two bounds, so many at most, at round numbers: with as many decimals as tell them apart."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    # The smallest of 1, 2 and 5 times a power of ten that is no less.
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    form = f".{max(decimals - 2, 0)}%" if percent else f"{'+' if signed else ''}.{decimals}f"
    values = [round(number * step, decimals) for number in range(first, last + 1)]
    return {
        "tickvals": values,
        "ticktext": [format(value, form).replace("-", MINUS) if value else "0" for value in values],
    }


def log_axis(title: str, values: Sequence[float], *, sparse: bool = False) -> dict[str, Any]:
    """A logarithmic axis for these values, ticked at powers of ten; unless `sparse`, few get more between."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.06 * max(high - low, 0.5)
    low, high = low - room, high + room
    ticks = _log_ticks(low, high, (1, 2, 5) if high - low < 3.2 and not sparse else (1,))
    if len(ticks) < 2:
        ticks = _log_ticks(low, high, (1, 2, 5))
    if len(ticks) < 2:
        ticks = linear_ticks(10**low, 10**high)["tickvals"]
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [_quantity(tick) for tick in ticks],
    }


def _log_ticks(low: float, high: float, factors: Sequence[int]) -> list[float]:
    """These multiples of powers of ten between two logarithms."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _quantity(number: float) -> str:
    """A tick in few characters: 0.5, 20, 5k, 2M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if letter == 'k' else factor):g}{letter}"
    return f"{number:g}"
