"""Intervals drawn into the cells of scores: a thin line with two ends, on the scale of the cells' bars.

The drawing says nothing that the title and the column of intervals do not, so that it is hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.boards.model import Cell

#: Units of the drawing's width; a cell is some eighty pixels wide.
WIDTH = 400


def whisker(ends: tuple[float, float], top: float) -> str:
    """The drawing of an interval in a cell whose width stands for 0 to `top`."""
    low, high = (round(end * WIDTH / max(top, 1e-12)) for end in ends)
    return (
        f'<svg class="whisker" viewBox="0 0 {WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/></svg>'
    )


def top_of(cells: Sequence[Cell]) -> float:
    """The greatest of the values and of the ends of intervals."""
    ends = [cell.interval[1] for cell in cells if cell.interval is not None]
    values = [cell.value for cell in cells if isinstance(cell.value, (float, int))]
    return max(values + ends, default=0.0)
