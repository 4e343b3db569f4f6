"""Scatter plots of systems: points with their names beside them, so that no name lies on another, and lines.

A name that has no place beside its point stands further off, with a line to it; where points are many, one that has
none there either is left to the table. Architectures have a symbol and a hue each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from leaderboard.boards.model import Row
from leaderboard.figures.graph_objects import go
from leaderboard.figures.palette import ARCHITECTURE, INK, PAPER, SOFT
from leaderboard.models import architecture_choices

#: The picture's assumed size inside its axes, wide and on a phone, in pixels; how far names may reach beyond it at the
#: right; and how large the letters of a phone are, beside those of a wide screen.
WIDE, NARROW, HEIGHT = 660.0, 250.0, 330.0
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
#: Places further off, from the nearest on: where a text begins right of the point or ends left of it, and pixels below.
FAR = [(side, row * 16) for row in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7) for side in (26, -26)]
#: Among so many points every name is looked a place for further off, among more only those that choose first.
MOST_FAR = 25
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
    ends: Sequence[tuple[float, float]],
    far: bool,
) -> list[dict[str, Any]]:
    """The labels of points in a picture of this width; those at the places `first` choose first.

    `beyond` is how far they may reach over its right edge, `letters` how large they are, `ends` those of the points'
    intervals. The text of a label is empty where there is no room for it, and where it has its place `far` off.
    """
    size = width, HEIGHT
    scaled = _scaled([*points, *((points[0][0], end) for pair in ends for end in pair)], size, log_x)
    heights = [y for _, y in scaled[len(points) :]]
    scaled = scaled[: len(points)]
    taken = [_LabelBox(x - GAP + 1, y - GAP + 1, x + GAP - 1, y + GAP - 1) for x, y in scaled]
    if ends:
        whiskers = zip(scaled, heights[::2], heights[1::2], strict=True)
        taken += [_LabelBox(x - 2, min(ys), x + 2, max(ys)) for (x, _), *ys in whiskers]
    labels: list[dict[str, Any]] = [{"text": "", "textposition": "middle right"} for _ in names]
    for number in dict.fromkeys([*first, *range(len(names))]):
        wide = letters * width_of(names[number])
        near = ABOVE_FIRST if number in first else list(POSITIONS)
        candidates = [
            (_box(wide, scaled[number], position), {"text": names[number], "textposition": position})
            for position in near
        ]
        if far and (number in first or len(names) <= MOST_FAR):
            candidates += [(_far_box(wide, scaled[number], offset), {"far": offset}) for offset in FAR]
        for box, label in candidates:
            outside = (
                box.left < 0 or box.right > size[0] + beyond or box.top < -10 or box.bottom > size[1] + 5
            )
            others = (other for place, other in enumerate(taken) if place != number)
            if not outside and not any(box.meets(other) for other in others):
                labels[number] |= label
                taken.append(box)
                break
    return labels


def label_points(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    *,
    first: Sequence[int] = (),
    log_x: bool = False,
    ends: Sequence[tuple[float, float]] = (),
    far: bool = True,
) -> list[dict[str, Any]]:
    """By point, what its trace says of its label: `text` and `textposition`, and others on a phone; or how `far` it is.

    `ends` has those of every point's interval, or is empty. With `far` the layout needs `far_labels`.
    """
    wide = _place_labels(names, points, WIDE, BEYOND, 1.0, first, log_x, ends, far)
    narrow = _place_labels(names, points, NARROW, NARROW_BEYOND, NARROW_LETTERS, first, log_x, ends, far)
    return [{**label, "narrow": small} for label, small in zip(wide, narrow, strict=True)]


def width_of(name: str) -> float:
    """How wide a name is at most on a wide screen, in pixels."""
    return sum(SMALL if sign.islower() or sign in " .,-()[]" else LARGE for sign in name)


def _box(width: float, point: tuple[float, float], position: str) -> _LabelBox:
    across, down, right, below = POSITIONS[position]
    left, top = point[0] + across * width + right * GAP, point[1] + down * LINE + below * GAP
    return _LabelBox(left, top, left + width, top + LINE)


def _far_box(width: float, point: tuple[float, float], offset: tuple[int, int]) -> _LabelBox:
    left, top = point[0] + offset[0] - width * (offset[0] < 0), point[1] + offset[1] - LINE / 2
    return _LabelBox(left, top, left + width, top + LINE)


def far_labels(
    names: Sequence[str],
    points: Sequence[tuple[Any, float]],
    labels: Sequence[Mapping[str, Any]],
    *,
    log_x: bool = False,
) -> dict[str, Any]:
    """What a layout says of the labels that stand further off: `annotations`, and those of a phone."""

    def annotations(of_width: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "x": math.log10(x) if log_x else x,
                "y": y,
                "text": name,
                "ax": label["far"][0],
                "ay": label["far"][1],
                "xanchor": "left" if label["far"][0] > 0 else "right",
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": SOFT,
                "standoff": 6,
            }
            for name, (x, y), label in zip(names, points, of_width, strict=True)
            if "far" in label
        ]

    narrow = {"annotations": annotations([label["narrow"] for label in labels])}
    return {"annotations": annotations(labels), "meta": {"narrow": narrow}}


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
    """A system at its place; `lines` are what hovering says below the name, `ends` those of its score's interval."""

    row: Row
    name: str
    x: float
    y: float
    lines: Sequence[str]
    ends: tuple[float, float] | None = None


def traces_by_architecture(
    points: Sequence[ChartPoint], *, first: Sequence[int] = (), log_x: bool = False
) -> tuple[list[go.Scatter], dict[str, Any]]:
    """The points by architecture, baselines larger and ringed, and what the layout says of their names.

    The names at `first` find a place before the others.
    """
    names, places = [point.name for point in points], [(point.x, point.y) for point in points]
    ends = [point.ends or (point.y, point.y) for point in points] if any(one.ends for one in points) else ()
    labels = label_points(names, places, first=first, log_x=log_x, ends=ends)
    traces = []
    for architecture, name in architecture_choices():
        mark = ARCHITECTURE.get(architecture, ARCHITECTURE["other"])
        mine = [
            (point, label)
            for point, label in zip(points, labels, strict=True)
            if point.row.entry.architecture == architecture
        ]
        if mine:
            trace = point_trace(
                name,
                [point.x for point, _ in mine],
                [point.y for point, _ in mine],
                [label for _, label in mine],
                [(point.name, *point.lines) for point, _ in mine],
                {
                    "color": mark.color,
                    "symbol": mark.symbol,
                    "size": [15 if point.row.entry.is_baseline else 11 for point, _ in mine],
                    "line": {
                        "color": [INK if point.row.entry.is_baseline else PAPER for point, _ in mine],
                        "width": [2 if point.row.entry.is_baseline else 1 for point, _ in mine],
                    },
                },
                links=[system_url(point.row) for point, _ in mine],
                error_y=whiskers(
                    [point.y for point, _ in mine], [point.ends for point, _ in mine], mark.color
                ),
            )
            traces.append(trace)
    return traces, far_labels(names, places, labels, log_x=log_x)


def system_url(row: Row) -> str:
    """The page of the row's system: where its point leads."""
    return reverse("system", args=[row.entry.slug])


def whiskers(
    numbers: Sequence[float], ends: Sequence[tuple[float, float] | None], color: str
) -> dict[str, Any]:
    """Intervals as the error bars of a trace, of no length where there is none."""
    pairs = [(number, *(pair or (number, number))) for number, pair in zip(numbers, ends, strict=True)]
    bars = {
        "array": [round(high - number, 6) for number, _, high in pairs],
        "arrayminus": [round(number - low, 6) for number, low, _ in pairs],
    }
    return {"type": "data", "symmetric": False, **bars, "color": color, "thickness": 1.3, "width": 0}


def point_trace(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    labels: Sequence[Mapping[str, Any]],
    lines: Sequence[Sequence[str]],
    marker: Mapping[str, Any],
    links: Sequence[str] = (),
    **more: Any,
) -> go.Scatter:
    """Points with their labels; hovering says the lines of each as plain text, of all as many; `links` are theirs."""
    template = "<br>".join(f"%{{customdata[{place}]}}" for place in range(len(lines[0])))
    return go.Scatter(
        mode="markers+text",
        name=name,
        x=x,
        y=y,
        **_texts(labels),
        meta={"narrow": _texts([label["narrow"] for label in labels]), "links": list(links)},
        customdata=[list(each) for each in lines],
        hovertemplate=f"{template}<extra></extra>",
        cliponaxis=False,
        marker=marker,
        **more,
    )


def _texts(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: [label[key] for label in labels] for key in ("text", "textposition")}


def line_trace(
    name: str, x: Sequence[Any], y: Sequence[Any], line: Mapping[str, Any], **more: Any
) -> go.Scatter:
    """A line; hovering says nothing of it unless `more` has a template."""
    hover = {} if "hovertemplate" in more else {"hoverinfo": "skip"}
    return go.Scatter(mode="lines", name=name, x=x, y=y, line=line, **hover, **more)
