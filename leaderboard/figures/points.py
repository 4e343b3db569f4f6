"""Scatter plots of systems: points with their names beside them, so that no name lies on another, and lines.

A name without a place is left to the table. Architectures have a symbol and a hue each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.model import Row
from leaderboard.figures.graph_objects import go
from leaderboard.figures.palette import ARCHITECTURE, PAPER
from leaderboard.models import Architecture

#: The picture's assumed size inside its axes, wide and on a phone, in pixels; how far names may reach beyond it at the
#: right; and how large the letters of a phone are, beside those of a wide screen.
WIDE, NARROW, HEIGHT = 560.0, 250.0, 330.0
BEYOND, NARROW_BEYOND, NARROW_LETTERS = 12.0, 4.0, 0.9
#: The widths of a small letter and of others in a wide typeface, the height of a line, and the gap beside a point.
SMALL, LARGE, LINE, GAP = 7.0, 8.7, 15.0, 7.0
#: By preference, plotly's words, and where the text's box begins: shares of its width and height, and gaps.
POSITIONS = {
    "middle right": (0.0, -0.5, 1, 0),
    "top center": (-0.5, -1.0, 0, -1),
    "bottom center": (-0.5, 0.0, 0, 1),
    "middle left": (-1.0, -0.5, -1, 0),
    "top right": (0.0, -1.0, 0.7, -0.3),
    "bottom right": (0.0, 0.0, 0.7, 0.3),
    "top left": (-1.0, -1.0, -0.7, -0.3),
    "bottom left": (-1.0, 0.0, -0.7, 0.3),
}
#: For points on a line, whose right is taken by it.
ABOVE_FIRST = sorted(POSITIONS, key=lambda position: not position.startswith("top"))


class _LabelBox(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _LabelBox) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def _place_labels(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    width: float,
    beyond: float,
    letters: float,
    first: Sequence[int],
    log_x: bool,
) -> list[dict[str, str]]:
    """The labels of points in a picture of this width; those at the places `first` choose first.

    `beyond` is how far they may reach over its right edge, `letters` how large they are. The text of a label is empty
    where there is no room for it.
    """
    size = width, HEIGHT
    scaled = _scaled(points, size, log_x)
    taken = [_LabelBox(x - GAP + 1, y - GAP + 1, x + GAP - 1, y + GAP - 1) for x, y in scaled]
    labels = [{"text": "", "textposition": "middle right"} for _ in names]
    for number in dict.fromkeys([*first, *range(len(names))]):
        for position in ABOVE_FIRST if number in first else POSITIONS:
            box = _box(letters * width_of(names[number]), scaled[number], position)
            outside = (
                box.left < 0 or box.right > size[0] + beyond or box.top < -10 or box.bottom > size[1] + 5
            )
            others = (other for place, other in enumerate(taken) if place != number)
            if not outside and not any(box.meets(other) for other in others):
                labels[number] = {"text": names[number], "textposition": position}
                taken.append(box)
                break
    return labels


def label_points(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    *,
    first: Sequence[int] = (),
    log_x: bool = False,
    width: float = WIDE,
) -> list[dict[str, Any]]:
    """By point, what its trace says of its label: `text` and `textposition`, and others on a phone."""
    wide = _place_labels(names, points, width, BEYOND, 1.0, first, log_x)
    narrow = _place_labels(names, points, NARROW, NARROW_BEYOND, NARROW_LETTERS, first, log_x)
    return [{**label, "narrow": small} for label, small in zip(wide, narrow, strict=True)]


def width_of(name: str) -> float:
    """How wide a name is at most on a wide screen, in pixels."""
    return sum(SMALL if sign.islower() or sign in " .,-()[]" else LARGE for sign in name)


def _box(width: float, point: tuple[float, float], position: str) -> _LabelBox:
    across, down, right, below = POSITIONS[position]
    left, top = point[0] + across * width + right * GAP, point[1] + down * LINE + below * GAP
    return _LabelBox(left, top, left + width, top + LINE)


def _scaled(
    points: Sequence[tuple[float, float]], size: tuple[float, float], log_x: bool
) -> list[tuple[float, float]]:
    """The points in pixels from the upper left, as axes with a margin of a twentieth put them."""
    xs = [math.log10(x) if log_x else x for x, _ in points]
    ys = [y for _, y in points]
    return [(_within(x, xs) * size[0], (1 - _within(y, ys)) * size[1]) for x, y in zip(xs, ys, strict=True)]


def _within(number: float, numbers: Sequence[float]) -> float:
    low, high = min(numbers), max(numbers)
    return 0.5 if low == high else 0.06 + 0.88 * (number - low) / (high - low)


class ChartPoint(NamedTuple):
    """A system at its place; `lines` are what hovering says below the name."""

    row: Row
    name: str
    x: float
    y: float
    lines: Sequence[str]


def traces_by_architecture(
    points: Sequence[ChartPoint], *, first: Sequence[int] = (), log_x: bool = False, width: float = WIDE
) -> list[go.Scatter]:
    """The points by architecture. The names at `first` find a place before the others.

    `width` is that of the picture on a wide screen, in pixels.
    """
    labels = label_points(
        [point.name for point in points],
        [(point.x, point.y) for point in points],
        first=first,
        log_x=log_x,
        width=width,
    )
    traces = []
    for architecture, mark in ARCHITECTURE.items():
        mine = [
            (point, label)
            for point, label in zip(points, labels, strict=True)
            if point.row.entry.architecture == architecture
        ]
        if mine:
            trace = point_trace(
                str(Architecture(architecture).label),
                [point.x for point, _ in mine],
                [point.y for point, _ in mine],
                [label for _, label in mine],
                [(point.name, *point.lines) for point, _ in mine],
                {
                    "color": mark.color,
                    "symbol": mark.symbol,
                    "size": 11,
                    "line": {"color": PAPER, "width": 1},
                },
            )
            traces.append(trace)
    return traces


def point_trace(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    labels: Sequence[Mapping[str, Any]],
    lines: Sequence[Sequence[str]],
    marker: Mapping[str, Any],
) -> go.Scatter:
    """Points with their labels; hovering says the lines of each as plain text, of all as many."""
    template = "<br>".join(f"%{{customdata[{place}]}}" for place in range(len(lines[0])))
    return go.Scatter(
        mode="markers+text",
        name=name,
        x=x,
        y=y,
        **_texts(labels),
        meta={"narrow": _texts([label["narrow"] for label in labels])},
        customdata=[list(each) for each in lines],
        hovertemplate=f"{template}<extra></extra>",
        cliponaxis=False,
        marker=marker,
    )


def _texts(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: [label[key] for label in labels] for key in ("text", "textposition")}


def line_trace(
    name: str, x: Sequence[Any], y: Sequence[Any], line: Mapping[str, Any], **more: Any
) -> go.Scatter:
    """A line; hovering says nothing of it unless `more` has a template."""
    hover = {} if "hovertemplate" in more else {"hoverinfo": "skip"}
    return go.Scatter(mode="lines", name=name, x=x, y=y, line=line, **hover, **more)
