"""What is asked of every figure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from django.http import QueryDict

from leaderboard.figures.model import FigureRequest, Plot
from leaderboard.figures.registry import FIGURES


def drawn(slug: str, query: str = "") -> Plot:
    """The figure of a query string, checked; its traces and its layout are plain values, as in its JSON."""
    plot = FIGURES[slug].build(FigureRequest(FIGURES[slug], QueryDict(query)))
    layout = plot.layout.to_plotly_json() if plot.layout is not None else {}
    plot = replace(plot, data=[trace.to_plotly_json() for trace in plot.data], layout=layout)
    assert_valid(plot)
    return plot


def assert_valid(plot: Plot) -> None:
    """Colours follow the scheme, values are written out, and all rows of its table are as long as its head."""
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgba?\(", repr((plot.data, plot.layout))), "a colour of one scheme"
    assert "bdata" not in repr(plot.data), "an array in base64"
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
