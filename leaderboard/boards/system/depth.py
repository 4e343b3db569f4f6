"""Effectiveness and latency of a system's variants by depth or vector size, as a table and two SVG charts.

The variants differ in the depth of a re-ranker, or in the number of dimensions and so the bytes of a document's
vectors. Pages include `leaderboard/_depth.html` with `depth` from `depth_series`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

from django.utils.safestring import SafeString, mark_safe

from leaderboard.core.text.numbers import DECIMALS, format_quantity, format_value

_DEPTH = re.compile(r"(?:^|\W)top (\d+)$")
_DIMENSIONS = re.compile(r"(?:^|\W)(?:all|\d+) dimensions$")

#: Size of the drawing in its own units; the page scales it.
WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 14, 306, 34, 164
#: Distance of the first and the last point from the ends: half a label.
INDENT = 24
#: Margin for labels above and below the line, as a share of its range.
_LABEL_MARGIN = 0.25
#: Approximate width of a label's character, and height of a line.
_LETTER_WIDTH, _LINE_HEIGHT = 6.2, 9.0
#: Minimum value of ticks with six or more characters.
_MIN_LONG_TICK = 1_000

#: A point of the drawing (x, y) with its value as text.
_LabelPosition = tuple[float, float, str]


class Axis(NamedTuple):
    """The property that distinguishes a system's variants.

    `head` is the head of its column; `words` and `lesser` name the property and the smaller variants in sentences.
    """

    head: str
    words: str
    lesser: str
    logarithmic: bool = False


DEPTH = Axis("Depth", "depth", "lesser depths")
BYTES = Axis("Bytes per document", "bytes per document", "fewer dimensions", logarithmic=True)


class DepthPoint(NamedTuple):
    """Depth and score of one variant, with its latency in milliseconds, None if not measured."""

    depth: float
    value: float
    latency_ms: float | None = None


class DepthRow(NamedTuple):
    depth: str
    value: str
    latency: str


class DepthSeries(NamedTuple):
    """Context of `leaderboard/_depth.html`."""

    measure: str
    rows: list[DepthRow]
    charts: SafeString
    timed: bool
    axis: Axis


def variant_depth(label: str, facts: Mapping[str, Any]) -> tuple[Axis, float] | None:
    """Return axis and position of a variant from its label, such as “top 100” or “256 dimensions”, and its facts.

    Returns None for other labels.
    """
    if match := _DEPTH.search(label):
        return DEPTH, int(match[1])
    size = facts.get("bytes_per_document")
    return (BYTES, float(size)) if size and _DIMENSIONS.search(label) else None


def depth_series(measure: str, points: Iterable[DepthPoint], axis: Axis = DEPTH) -> DepthSeries | None:
    """Return the points in order of depth with their charts, or None if there are fewer than two depths."""
    sorted_points = list({point.depth: point for point in sorted(points)}.values())
    if len(sorted_points) < 2:
        return None
    latencies = [
        (point.depth, point.latency_ms, f"{format_quantity(point.latency_ms)} ms")
        for point in sorted_points
        if point.latency_ms is not None
    ]
    labeled_values = [(point.depth, point.value, format_value(point.value, DECIMALS)) for point in sorted_points]
    charts = _line_chart(measure, labeled_values, axis, from_zero=False)
    if len(latencies) > 1:
        charts += _line_chart("Latency, ms", latencies, axis, from_zero=True)
    rows = [
        DepthRow(
            f"{point.depth:,g}",
            format_value(point.value, DECIMALS),
            "—" if point.latency_ms is None else format_quantity(point.latency_ms),
        )
        for point in sorted_points
    ]
    return DepthSeries(measure, rows, mark_safe(charts), bool(latencies), axis)  # noqa: S308


def _line_chart(title: str, points: Sequence[tuple[float, float, str]], axis: Axis, *, from_zero: bool) -> str:
    """Return an SVG line chart over depth. Each point is (depth, value, text), with the text next to the point.

    If `from_zero`, the vertical axis starts at 0.
    """
    scale = log if axis.logarithmic else float
    first, last = scale(points[0][0]), scale(points[-1][0])
    low, high = (0.0 if from_zero else min(value for _, value, _ in points)), max(value for _, value, _ in points)
    span = (high - low) or abs(high) or 1.0
    bottom = low if from_zero else low - _LABEL_MARGIN * span
    top = high + _LABEL_MARGIN * span
    positions = [
        (
            LEFT + INDENT + (RIGHT - LEFT - 2 * INDENT) * (scale(depth) - first) / (last - first),
            BOTTOM - (BOTTOM - TOP) * (value - bottom) / (top - bottom),
            text,
        )
        for depth, value, text in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in positions)
    values = ", ".join(f"{text} at {depth:g}" for depth, _, text in points)
    description = f"{escape(title)} by {axis.words}: {values}"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">',
        f'<text class="chart-title" x="{LEFT}" y="14">{escape(title)}</text>',
        f'<line class="chart-axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>',
        f'<polyline class="chart-line" points="{line}"/>',
    ]
    parts += [f'<text class="chart-label" x="{x:.1f}" y="{y:.1f}">{text}</text>' for x, y, text in _labels(positions)]
    last_tick = -100.0
    for (x, y, _), (depth, _, _) in zip(positions, points, strict=True):
        parts.append(f'<circle class="chart-point" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        if x - last_tick >= (44 if depth >= _MIN_LONG_TICK else 22):
            parts.append(f'<text class="chart-tick" x="{x:.1f}" y="{BOTTOM + 15}">{depth:,g}</text>')
            last_tick = x
    return "".join([*parts, "</svg>"])


class LabelBox(NamedTuple):
    """The area that a label covers."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around_text(cls, x: float, y: float, text: str) -> LabelBox:
        """Return the area of a text centered at `x` with its baseline at `y`."""
        half_width = len(text) * _LETTER_WIDTH / 2
        return cls(x - half_width, y - _LINE_HEIGHT, x + half_width, y + 2)

    def overlaps(self, other: LabelBox) -> bool:
        """Return whether the areas overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def is_crossed(self, start: _LabelPosition, end: _LabelPosition) -> bool:
        """Return whether the line from `start` to `end`, which is to its right, crosses the area."""
        left_end, right_end = max(self.left, start[0]), min(self.right, end[0])
        if left_end > right_end:
            return False
        slope = (end[1] - start[1]) / (end[0] - start[0])
        heights = [start[1] + slope * (x - start[0]) for x in (left_end, right_end)]
        return min(heights) < self.bottom and max(heights) > self.top


def _labels(points: Sequence[_LabelPosition]) -> Iterator[_LabelPosition]:
    """Yield the positions of labels, next to their points and not crossed by lines, points, or other labels.

    Points without such a position get no label; the table has all values.
    """
    occupied_boxes = [LabelBox(x - 4, y - 4, x + 4, y + 4) for x, y, _ in points]
    for x, y, text in points:
        half_width = len(text) * _LETTER_WIDTH / 2
        for center, baseline in (
            (x, y - 10),
            (x, y + 19),
            *((x + side * (half_width + 6), y + offset) for offset in (-6, 14) for side in (-1, 1)),
        ):
            box = LabelBox.around_text(center, baseline, text)
            is_inside = box.left >= 0 and box.right <= WIDTH and box.top >= TOP - 14 and box.bottom < BOTTOM - 1
            is_crossed = any(box.is_crossed(start, end) for start, end in pairwise(points))
            if is_inside and not is_crossed and not any(map(box.overlaps, occupied_boxes)):
                occupied_boxes.append(box)
                yield center, baseline, text
                break
