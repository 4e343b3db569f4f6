"""A benchmark's datasets by task, with their sizes (Figure 1 of the BEIR paper, as numbers)."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from leaderboard.datasets import lists
from leaderboard.figures.axes import log_axis
from leaderboard.figures.bars import AROUND, bar_layout, cut
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import mark
from leaderboard.figures.rows import Place, counts_several, datasets_of, titled
from leaderboard.results.publishing import published_statistics

UNKNOWN = "task not said"


class _Sized(NamedTuple):
    """A dataset with what its version, or its source, says of it."""

    name: str
    task: str
    domain: str
    documents: int | None
    queries: int | None
    counted: bool


def build(request: FigureRequest) -> Plot:
    """A line for each dataset of the view, tasks together, with its documents and its queries on axes of their own."""
    page = request.benchmark_page
    found = _sized(datasets_of(page, counted=False))
    known = [one for one in found if one.documents or one.queries]
    if not known:
        return Plot.empty("The sizes of these datasets are not known.")
    tasks = [(task, list(of_task)) for task, of_task in groupby(known, lambda one: one.task)]
    documents = log_axis("Documents", [one.documents for one in known if one.documents] or [1], sparse=True)
    queries = log_axis("Queries", [one.queries for one in known if one.queries] or [1], sparse=True)
    height = len(known) * 22 + AROUND
    return Plot(
        data=[
            trace for number, (task, of_task) in enumerate(tasks) for trace in _traces(number, task, of_task)
        ],
        layout=bar_layout(
            len(known),
            22,
            height=height + 10 * len(tasks),
            meta={
                "narrow": {
                    "legend": {"entrywidth": 200, "tracegroupgap": 0},
                    "height": height + 20 * len(tasks),
                }
            },
            xaxis={**documents, "domain": [0.0, 0.6]},
            xaxis2={**queries, "domain": [0.66, 1.0], "anchor": "y"},
            yaxis_showgrid=True,
            yaxis_categoryorder="array",
            yaxis_categoryarray=[one.name for one in known],
        ),
        table=Table(
            ("Dataset", "Task", "Domain", "Documents", "Queries"),
            [(one.name, one.task, one.domain or None, one.documents, one.queries) for one in known],
            ("", "", "", ",d", ",d"),
        ),
        caption=f"The {len(known)} datasets of {titled(page.board)} by task: how many documents each has, and how many "
        "test queries. Counted at import, or as the source of its reported figures states them.",
        subtitle=page.board.title,
        notes=[f"Shown on the board but not counted: {one.name}." for one in known if not one.counted],
    )


def _sized(places: list[Place]) -> list[_Sized]:
    rows = {row["slug"]: row for row in lists.datasets()}
    found = []
    for place in places:
        row = rows.get(place.member.slug)
        if row is None:
            continue
        statistics = published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])
        found.append(
            _Sized(
                cut(row["name"]),
                row["task"] or UNKNOWN,
                row["domain"],
                statistics["documents"],
                statistics["queries"],
                place.member.counted,
            )
        )
    order = list(dict.fromkeys(one.task for one in found))
    return sorted(found, key=lambda one: (order.index(one.task), -(one.documents or 0)))


def _traces(number: int, task: str, found: list[_Sized]) -> list[go.Scatter]:
    drawn = mark(number)
    shared = {
        "mode": "markers",
        "name": task,
        "legendgroup": task,
        "y": [one.name for one in found],
        "marker": {"color": drawn.color, "symbol": drawn.symbol, "size": 10},
    }
    return [
        go.Scatter(
            shared,
            x=[one.documents for one in found],
            hovertemplate="%{y}, %{fullData.name}<br>%{x:,} documents<extra></extra>",
        ),
        go.Scatter(
            shared,
            x=[one.queries for one in found],
            xaxis="x2",
            showlegend=False,
            hovertemplate="%{y}, %{fullData.name}<br>%{x:,} queries<extra></extra>",
        ),
    ]


FIGURES = (
    Figure(
        slug="tasks",
        title="Tasks and sizes",
        caption="What a board is made of: its datasets by task, with their documents and queries.",
        subjects=("benchmark",),
        drawable=counts_several,
        build=build,
    ),
)
