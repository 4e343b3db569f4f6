"""Scatter plots of systems: a trace for each architecture, with symbol and hue, and names beside the points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaderboard.boards.model import Row
from leaderboard.figures.graph_objects import go
from leaderboard.figures.labels import WIDE, labelled, texts_of
from leaderboard.figures.palette import ARCHITECTURE, PAPER
from leaderboard.figures.texts import told
from leaderboard.models import Architecture

LABELS = {value: str(label) for value, label in Architecture.choices}


class Point(NamedTuple):
    """A system at its place; `told` are the lines that hovering says below the name."""

    row: Row
    name: str
    x: float
    y: float
    told: Sequence[str]


def traces(
    points: Sequence[Point], *, first: Sequence[int] = (), log_x: bool = False, width: float = WIDE
) -> list[go.Scatter]:
    """The points by architecture. The names at `first` find a place before the others.

    `width` is that of the picture on a wide screen, in pixels.
    """
    labels = labelled(
        [point.name for point in points],
        [(point.x, point.y) for point in points],
        first=first,
        log_x=log_x,
        width=width,
    )
    found = []
    for architecture, mark in ARCHITECTURE.items():
        mine = [number for number, point in enumerate(points) if point.row.entry.architecture == architecture]
        if not mine:
            continue
        found.append(
            go.Scatter(
                mode="markers+text",
                name=LABELS[architecture],
                x=[points[number].x for number in mine],
                y=[points[number].y for number in mine],
                **texts_of([labels[number] for number in mine]),
                **told([(points[number].name, *points[number].told) for number in mine]),
                cliponaxis=False,
                marker={"color": mark.color, "symbol": mark.symbol, "size": 11},
                marker_line={"color": PAPER, "width": 1},
            )
        )
    return found
