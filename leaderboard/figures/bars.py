"""What figures with horizontal bars or rows of points have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from leaderboard.boards.model import Row

T = TypeVar("T")

#: More bars than that are no picture any more.
MOST_BARS = 40
#: The height of a bar with its gap, and of what is above and below all bars, in pixels.
BAR, AROUND = 24, 96
#: Names are cut to so many characters, on a phone to fewer: longer ones leave no room for what they name.
LONGEST_NAME, LONGEST_NARROW_NAME = 30, 18


def row_name(row: Row) -> str:
    """How one row is called, whichever others there are; `rows.names_of` tells several apart."""
    return row.entry.system + (f", {row.entry.configuration}" if row.entry.configuration else "")


def cut(name: str, length: int = LONGEST_NAME) -> str:
    """The name, cut where it is longer."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,-") + "…"


def rows_of_bars(rows: Sequence[T], first: str) -> tuple[list[T], list[str]]:
    """As many rows as make a picture, and a note that says which where there are more; `first` names the order."""
    if len(rows) <= MOST_BARS:
        return list(rows), []
    note = f"The {MOST_BARS} of {len(rows)} systems with the {first}; the board's filters choose others."
    return list(rows[:MOST_BARS]), [note]


def bar_layout(number: int, height: int = BAR) -> dict[str, Any]:
    """A layout for so many horizontal bars or rows, the first on top."""
    return {
        "height": max(number, 2) * height + AROUND,
        "bargap": 0.25,
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticks": "", "type": "category"},
        "legend": {"traceorder": "normal"},
    }
