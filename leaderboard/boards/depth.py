"""Effectiveness and latency of a re-ranker against its depth: a table, and two small charts drawn as SVG.

Pages put `leaderboard/_depth.html` in their place, with `depth` as `depth_series` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe

from leaderboard.boards.wording import significant, written

_LABEL = re.compile(r"(?:^|\W)top (\d+)$")

#: The drawing's own units; the page scales it.
WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 14, 306, 34, 164
#: How far the first and the last point are from the ends: half a label.
INDENT = 24
#: Room above and below the line, as a share of what it spans: labels stand there.
_AIR = 0.25


class DepthPoint(NamedTuple):
    """What re-ranking so many documents gave, and took: milliseconds, None where that was not measured."""

    depth: int
    value: float
    latency_ms: float | None = None


class DepthRow(NamedTuple):
    """A point as text."""

    depth: int
    value: str
    latency: str


class DepthSeries(NamedTuple):
    """What `leaderboard/_depth.html` shows."""

    measure: str
    rows: list[DepthRow]
    charts: SafeString
    timed: bool


def depth_of(label: str) -> int | None:
    """The depth in the label of a re-ranker's variant or configuration (“top 100”); None where it names none."""
    found = _LABEL.search(label)
    return int(found[1]) if found else None


def depth_series(measure: str, points: Iterable[DepthPoint], decimals: int = 4) -> DepthSeries | None:
    """The points in order of depth, drawn; None where there are fewer than two depths."""
    ordered = list({point.depth: point for point in sorted(points)}.values())
    if len(ordered) < 2:
        return None
    timed = [
        (point.depth, point.latency_ms, f"{significant(point.latency_ms)} ms")
        for point in ordered
        if point.latency_ms is not None
    ]
    values = [(point.depth, point.value, written(point.value, decimals)) for point in ordered]
    charts = _chart(measure, values, from_zero=False)
    if len(timed) > 1:
        charts += _chart("Latency, ms", timed, from_zero=True)
    rows = [
        DepthRow(
            point.depth,
            written(point.value, decimals),
            "—" if point.latency_ms is None else significant(point.latency_ms),
        )
        for point in ordered
    ]
    return DepthSeries(measure, rows, mark_safe(charts), bool(timed))  # noqa: S308


def _chart(title: str, points: Sequence[tuple[int, float, str]], *, from_zero: bool) -> str:
    """One line over depth. Each point is (depth, value, the value as text), which stands above it."""
    places = [(_x(points, depth), _y(points, value, from_zero), text) for depth, value, text in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    told = ", ".join(f"{text} at {depth}" for depth, _, text in points)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)} by depth: {told}">',
        f'<text class="chart-title" x="{LEFT}" y="14">{escape(title)}</text>',
        f'<line class="chart-axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>',
        f'<polyline class="chart-line" points="{line}"/>',
    ]
    last_label, last_tick = -100.0, -100.0
    for (x, y, text), (depth, _, _) in zip(places, points, strict=True):
        parts.append(f'<circle class="chart-point" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        if x - last_label >= 44:
            parts.append(f'<text class="chart-label" x="{x:.1f}" y="{y - 10:.1f}">{text}</text>')
            last_label = x
        if x - last_tick >= 22:
            parts.append(f'<text class="chart-tick" x="{x:.1f}" y="{BOTTOM + 15}">{depth}</text>')
            last_tick = x
    return "".join([*parts, "</svg>"])


def _x(points: Sequence[tuple[int, float, str]], depth: int) -> float:
    """Depths lie on a line from the first to the last, which are indented a little."""
    first, last = points[0][0], points[-1][0]
    return LEFT + INDENT + (RIGHT - LEFT - 2 * INDENT) * (depth - first) / (last - first)


def _y(points: Sequence[tuple[int, float, str]], value: float, from_zero: bool) -> float:
    values = [of_point for _, of_point, _ in points]
    low, high = (0.0 if from_zero else min(values)), max(values)
    span = (high - low) or abs(high) or 1.0
    bottom = low if from_zero else low - _AIR * span
    return BOTTOM - (BOTTOM - TOP) * (value - bottom) / (high + _AIR * span - bottom)
