"""Intervals drawn into the cells of scores: a thin line with two ends, on the scale of the cells' bars.

The drawing says nothing that the title and the column of intervals do not, so that it is hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.boards.model import Board, Row

#: Units of the drawing's width; a cell is some eighty pixels wide.
WIDTH = 400


def add_whiskers(rows: Sequence[Row], place: int, cells: list[str], top: float) -> None:
    """Draw the intervals at `place` into its cells, which are whole `<td>`; the cells' width stands for 0 to `top`."""
    scale = WIDTH / max(top, 1e-12)
    for number, row in enumerate(rows):
        if place in row.intervals:
            low, high = row.intervals[place]
            drawn = _drawn(round(low * scale), round(high * scale))
            titled = f'<td title="95 % interval {low:.4f} to {high:.4f}"'
            cells[number] = cells[number].replace("<td", titled, 1).replace("</td>", drawn + "</td>", 1)


def _drawn(low: int, high: int) -> str:
    return (
        f'<svg class="whisker" viewBox="0 0 {WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/></svg>'
    )


def top_of(board: Board, place: int) -> float:
    """The greatest value of the column, or end of an interval of it, among the rows that are shown."""
    values = [row.values[place] for row in board.rows]
    ends = [row.intervals[place][1] for row in board.rows if place in row.intervals]
    return max([value for value in values if isinstance(value, (float, int))] + ends, default=0.0)
