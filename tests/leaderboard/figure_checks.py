"""What is asked of every figure."""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects
from django.http import QueryDict

from leaderboard.figures.model import FigureRequest, Plot
from leaderboard.figures.registry import FIGURES


def drawn(slug: str, query: str = "") -> Plot:
    """The figure of a query string, checked by plotly itself."""
    plot = FIGURES[slug].build(FigureRequest(FIGURES[slug], QueryDict(query)))
    assert_valid(plot)
    return plot


def assert_valid(plot: Plot) -> None:
    """Plotly knows every word of it, colours follow the scheme, and all rows of its table are as long as its head."""
    plotly.graph_objects.Figure(data=_with_colors(plot.data), layout=_with_colors(plot.layout))
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgba?\(", repr((plot.data, plot.layout))), (
        "a colour of one scheme"
    )
    assert plot.caption
    assert all(len(row) == len(plot.table.heads) for row in plot.table.rows)
    assert bool(plot.data) == bool(plot.table.rows)


def column(plot: Plot, head: str) -> list[Any]:
    """A column of its table."""
    place = list(plot.table.heads).index(head)
    return [row[place] for row in plot.table.rows]


def trace(plot: Plot, name: str) -> dict[str, Any]:
    """The trace of that name."""
    return next(found for found in plot.data if found.get("name") == name)


def _with_colors(value: Any) -> Any:
    if isinstance(value, str):
        return "#123456" if value.startswith("var(--") else value
    if isinstance(value, dict):
        return {name: _with_colors(inner) for name, inner in value.items()}
    return [_with_colors(inner) for inner in value] if isinstance(value, (list, tuple)) else value
