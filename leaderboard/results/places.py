"""Places of values in an order."""

from __future__ import annotations

from collections.abc import Iterable


def places(values: Iterable[float], *, lower_is_better: bool = False) -> dict[float, int]:
    """The place of each value, the best has 1; equal values share theirs: 1, 1, 3."""
    found: dict[float, int] = {}
    for place, value in enumerate(sorted(values, reverse=not lower_is_better), start=1):
        found.setdefault(value, place)
    return found
