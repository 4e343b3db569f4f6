"""What figures with bars, rows of points or squares of names have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from leaderboard.boards.model import Row
from leaderboard.figures.graph_objects import go
from leaderboard.figures.palette import INK, PAPER, SCALE

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


def bar_layout(number: int, each: int = BAR, /, **more: Any) -> go.Layout:
    """A layout for so many horizontal bars or rows, the first on top; `more` is what else it says."""
    axis = {"autorange": "reversed", "showgrid": False, "ticks": "", "type": "category"}
    usual = {"height": max(number, 2) * each + AROUND, "bargap": 0.25, "legend_traceorder": "normal"}
    return go.Layout({**usual, "yaxis": axis}, **more)


class NameSquare(NamedTuple):
    """Names against themselves: values by row and column, None for an empty cell, with their texts."""

    names: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]


def heatmap(square: NameSquare, most: float, title: str, hover: str) -> go.Bar:
    """A square of names against themselves, with texts that can be read on every hue of the scale.

    It is made of bars one wide, which plotly's smallest bundle has: `hover` gets row, column and text as
    `%{customdata[0]}` to `[2]`.
    """
    numbers = range(len(square.names))
    places = [
        (row, column) for row in numbers for column in numbers if square.values[row][column] is not None
    ]
    texts = [square.texts[row][column] for row, column in places]
    marker = {
        "color": [square.values[row][column] for row, column in places],
        "colorscale": SCALE,
        "cmin": 0,
        "cmax": most,
        "line": {"color": PAPER, "width": 2},
    }
    bar = {"thickness": 10, "outlinewidth": 0, "title": {"text": title, "side": "right"}}
    return go.Bar(
        orientation="h",
        y=[row for row, _ in places],
        base=[column - 0.5 for _, column in places],
        x=[1] * len(places),
        text=texts,
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont_color=INK,
        textangle=0,
        constraintext="none",
        customdata=[
            [square.names[row], square.names[column], text]
            for (row, column), text in zip(places, texts, strict=True)
        ],
        hovertemplate=f"{hover}<extra></extra>",
        marker={**marker, "colorbar": bar},
        meta={"narrow": {"marker": marker}},
    )


def heatmap_layout(height: int, names: Sequence[str], across: dict[str, Any], **more: Any) -> go.Layout:
    """The layout of a square of names; `across` is what its horizontal axis says beside the names."""
    low, high = -0.5, len(names) - 0.5
    axis = {"tickvals": list(range(len(names))), "ticktext": list(names), "showgrid": False, "ticks": ""}
    axis["zeroline"] = False
    xaxis, yaxis = {**axis, "range": [low, high], **across}, {**axis, "range": [high, low]}
    return go.Layout(height=height, bargap=0, showlegend=False, xaxis=xaxis, yaxis=yaxis, **more)
