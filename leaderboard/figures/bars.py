"""What figures with one bar for each system have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from leaderboard.boards.model import REPORTED, Row

T = TypeVar("T")

#: More bars than that are no picture any more.
MOST_BARS = 40
#: The height of a bar with its gap, and of what is above and below all bars, in pixels.
BAR, AROUND = 24, 96
#: Names are cut to so many characters, on a phone to fewer: else they leave no room for the bars.
LONGEST_NAME, LONGEST_NARROW_NAME = 34, 18


def row_name(row: Row) -> str:
    """How a row is called: its configuration tells it from others of its system, r that its figures are reported."""
    name = row.entry.system + (f", {row.entry.configuration}" if row.entry.configuration else "")
    return f"{name} (r)" if row.ranked_in == REPORTED else name


def cut(name: str, length: int) -> str:
    """The name, cut where it is longer."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,-") + "…"


def rows_of_bars(rows: Sequence[T], first: str) -> tuple[list[T], list[str]]:
    """As many rows as make a picture, and a note that says which where there are more; `first` names the order."""
    if len(rows) <= MOST_BARS:
        return list(rows), []
    return list(rows[:MOST_BARS]), [
        f"The {MOST_BARS} of {len(rows)} systems with the {first}; the board's filters choose others."
    ]


def bar_layout(number: int) -> dict[str, Any]:
    """A layout for so many horizontal bars, the first on top."""
    return {
        "height": max(number, 2) * BAR + AROUND,
        "bargap": 0.25,
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticks": ""},
        "legend": {"traceorder": "normal"},
    }
