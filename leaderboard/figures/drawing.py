"""Parts of pictures that several figures share: axes, hues, bars, squares of names, and plotly's graph objects.

Hues can be told apart whichever way people see color (after Okabe and Ito); each has a symbol. A color is a custom
property of static/css/figures.css, which has a value for the light and one for the dark scheme; the browser puts it
in. So a figure's data is the same for both. Plotly is imported when the first figure is drawn: a page with frames draws
none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.utils.functional import SimpleLazyObject

from leaderboard.boards.model import Row
from leaderboard.core.text.numbers import MINUS
from leaderboard.models import Architecture

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


INK = "var(--ink)"
SOFT = "var(--ink-soft)"
PAPER = "var(--paper)"
#: Better and worse, as on the boards; always with a sign.
BETTER, WORSE = "var(--up)", "var(--down)"

BLUE = "var(--figure-blue)"
ORANGE = "var(--figure-orange)"
GREEN = "var(--figure-green)"
SKY = "var(--figure-sky)"
VERMILLION = "var(--figure-vermillion)"
PURPLE = "var(--figure-purple)"
OLIVE = "var(--figure-olive)"
GREY = "var(--figure-grey)"
#: In the order in which several kinds of things get them.
HUES = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, OLIVE, GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "x")

#: A scale from nothing to much, on paper; for heat maps. All of it is a ground for INK, which texts have to ask for:
#: Plotly's own choice, dark grey or white, is too weak on the middle of any scale.
SCALE = [[step / 4, f"var(--figure-scale-{step})"] for step in range(5)]


class Mark(NamedTuple):
    """How a kind of thing is drawn."""

    color: str
    symbol: str


def mark(number: int) -> Mark:
    """The mark of the n-th kind; after eight they repeat, with other symbols."""
    return Mark(HUES[number % len(HUES)], SYMBOLS[(number + number // len(HUES)) % len(SYMBOLS)])


#: By architecture, always the same. BM25 and other lexical ones are grey: what is compared with.
ARCHITECTURE: dict[str, Mark] = {
    Architecture.LEXICAL.value: Mark(GREY, "circle"),
    Architecture.LEARNED_SPARSE.value: Mark(GREEN, "square"),
    Architecture.DENSE.value: Mark(BLUE, "diamond"),
    Architecture.LATE_INTERACTION.value: Mark(PURPLE, "triangle-up"),
    Architecture.RE_RANKING.value: Mark(VERMILLION, "cross"),
    Architecture.DOCUMENT_EXPANSION.value: Mark(ORANGE, "triangle-down"),
    Architecture.QUERY_AUGMENTATION.value: Mark(OLIVE, "star"),
    Architecture.GENERATIVE.value: Mark(SKY, "hexagon"),
    Architecture.FUSION.value: Mark(ORANGE, "pentagon"),
    Architecture.OTHER.value: Mark(GREY, "x"),
}


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


if TYPE_CHECKING:
    import plotly.graph_objects as go
else:

    def _graph_objects() -> Any:
        import plotly.graph_objects

        return plotly.graph_objects

    go = SimpleLazyObject(_graph_objects)
