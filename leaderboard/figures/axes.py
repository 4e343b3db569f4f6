"""Axes and words that several figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def uncapitalised(text: str) -> str:
    """The text as it stands within a sentence; what it has of units keeps its letters."""
    return text[:1].lower() + text[1:]


def sentence(text: str) -> str:
    """The text as a sentence or a head begins; a measure's name (nDCG@10) keeps its letters."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() and text[1:2].islower() else text


def log_axis(title: str, values: Sequence[float], *, sparse: bool = False) -> dict[str, Any]:
    """A logarithmic axis for these values, ticked at powers of ten; unless `sparse`, few get more between."""
    low, high = math.log10(min(values)), math.log10(max(values))
    factors = (1, 2, 5) if high - low < 2.5 and not sparse else (1,)
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(low) - 1, math.ceil(high) + 1)
        for factor in factors
    ]
    room = 0.06 * max(high - low, 0.5)
    shown = [tick for tick in ticks if low - room <= math.log10(tick) <= high + room]
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low - room, high + room],
        "tickvals": shown,
        "ticktext": [_quantity(tick) for tick in shown],
    }


def _quantity(number: float) -> str:
    """A tick in few characters: 0.5, 20, 5k, 2M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if letter == 'k' else factor):g}{letter}"
    return f"{number:g}"
