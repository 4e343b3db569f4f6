"""A benchmark's datasets by task and domain: their sizes (Figure 1 of the BEIR paper), and systems' means over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Row
from leaderboard.datasets import lists
from leaderboard.figures.axes import linear_axis, log_axis
from leaderboard.figures.bars import AROUND, bar_layout, cut
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import GREY, HUES, PAPER, SYMBOLS, mark
from leaderboard.figures.rows import (
    chosen_first,
    counts_several,
    datasets_of,
    describe_kind,
    mean,
    names_of,
    present,
    rows_of_kind,
    score_format,
    titled,
)
from leaderboard.results.values import published_statistics

#: So many systems have their means shown.
MOST_SYSTEMS = 8


class _Size(NamedTuple):
    """A dataset with what its version, or its source, says of it."""

    name: str
    task: str
    domain: str
    documents: int | None
    queries: int | None
    counted: bool


def build_sizes(request: FigureRequest) -> Plot:
    """A line for each dataset of the view, tasks together, with its documents and its queries on axes of their own."""
    page = request.benchmark_page
    sizes = [one for one in _sizes(datasets_of(page, counted=False)) if one.documents or one.queries]
    if not sizes:
        return Plot.empty("The sizes of these datasets are not known.")
    tasks = [(task, list(of_task)) for task, of_task in groupby(sizes, lambda one: one.task)]
    documents = log_axis("Documents", [one.documents for one in sizes if one.documents] or [1], sparse=True)
    queries = log_axis("Queries", [one.queries for one in sizes if one.queries] or [1], sparse=True)
    height = len(sizes) * 22 + AROUND
    return Plot(
        data=[
            trace for number, (task, of_task) in enumerate(tasks) for trace in _traces(number, task, of_task)
        ],
        layout=bar_layout(
            len(sizes),
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
            yaxis_categoryarray=[one.name for one in sizes],
        ),
        table=Table(
            ("Dataset", "Task", "Domain", "Documents", "Queries"),
            [(one.name, one.task, one.domain or None, one.documents, one.queries) for one in sizes],
            ("", "", "", ",d", ",d"),
        ),
        caption=f"The {len(sizes)} datasets of {titled(page.board)} by task: how many documents each has, and how many "
        "test queries. Counted at import, or as the source of its reported figures states them.",
        subtitle=page.board.title,
        notes=[f"Shown on the board but not counted: {one.name}." for one in sizes if not one.counted],
    )


def _sizes(places: list[Member]) -> list[_Size]:
    rows = {row["slug"]: row for row in lists.datasets()}
    sizes = []
    for place in places:
        row = rows.get(place.slug)
        if row is None:
            continue
        statistics = published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])
        sizes.append(
            _Size(
                cut(row["name"]),
                row["task"] or "task not said",
                row["domain"],
                statistics["documents"],
                statistics["queries"],
                place.counted,
            )
        )
    order = list(dict.fromkeys(one.task for one in sizes))
    return sorted(sizes, key=lambda one: (order.index(one.task), -(one.documents or 0)))


def _traces(number: int, task: str, sizes: list[_Size]) -> list[go.Scatter]:
    look = mark(number)
    return [
        go.Scatter(
            mode="markers",
            name=task,
            legendgroup=task,
            x=[getattr(one, what) for one in sizes],
            y=[one.name for one in sizes],
            marker={"color": look.color, "symbol": look.symbol, "size": 10},
            hovertemplate=f"%{{y}}, %{{fullData.name}}<br>%{{x:,}} {what}<extra></extra>",
            **more,
        )
        for what, more in (("documents", {}), ("queries", {"xaxis": "x2", "showlegend": False}))
    ]


def build_task_means(request: FigureRequest) -> Plot:
    """A line for each task, a point for each system."""
    return _build_means(request, "task", lambda place: place.task)


def build_domain_means(request: FigureRequest) -> Plot:
    """A line for each domain, a point for each system."""
    return _build_means(request, "domain", lambda place: place.domain)


def _build_means(request: FigureRequest, what: str, group_of: Callable[[Member], str]) -> Plot:
    page = request.benchmark_page
    groups: dict[str, list[Member]] = {}
    for place in datasets_of(page):
        groups.setdefault(group_of(place) or "not said", []).append(place)
    of_kind, kind = rows_of_kind(present(page.board))
    rows = chosen_first(of_kind, request.systems or request.state.pins, MOST_SYSTEMS)
    rows = _with_baseline(rows, of_kind)
    means = {group: [mean(row, places) for row in rows] for group, places in groups.items()}
    means = {group: values for group, values in means.items() if any(value is not None for value in values)}
    if not rows or not means:
        return Plot.empty(f"No system of this view has all datasets of any {what}.")
    names, form = names_of(rows), score_format(rows)
    labels = {group: f"{group} ({len(groups[group])})" for group in means}
    return Plot(
        data=_mean_traces(rows, names, means, labels, form),
        layout=bar_layout(
            len(means),
            34,
            xaxis=linear_axis(
                f"Mean {page.board.measure}",
                [value for values in means.values() for value in values if value is not None],
            ),
            yaxis_showgrid=True,
        ),
        table=Table(
            (what.capitalize(), "Datasets", *names),
            [(group, len(groups[group]), *values) for group, values in means.items()],
            ("", "d", *[form] * len(names)),
        ),
        caption=f"Mean {page.board.measure} over the counted datasets of each {what} of {titled(page.board)}, for "
        f"{len(rows)} systems, {describe_kind(kind)} only. In brackets, how many datasets; a system that lacks one of "
        "them has no mean there.",
        subtitle=f"{page.board.title}, {page.board.measure}, {describe_kind(kind)}",
        notes=[f"{len(rows)} of {len(of_kind)} systems; pinning others on the board shows those."]
        if len(of_kind) > len(rows)
        else [],
    )


def _with_baseline(rows: Sequence[Row], every: Sequence[Row]) -> list[Row]:
    """The rows with a baseline among them: what the others are compared with."""
    if any(row.entry.is_baseline for row in rows):
        return list(rows)
    baseline = [row for row in every if row.entry.is_baseline][:1]
    return [*rows[: MOST_SYSTEMS - len(baseline)], *baseline]


def _mean_traces(
    rows: Sequence[Row],
    names: Sequence[str],
    means: Mapping[str, Sequence[float | None]],
    labels: Mapping[str, str],
    form: str,
) -> list[go.Scatter]:
    hues = [hue for hue in HUES if hue != GREY]
    traces, others = [], 0
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        look = {"color": GREY, "symbol": "line-ns-open", "size": 16, "line": {"color": GREY, "width": 3}}
        if not row.entry.is_baseline:
            look = {"color": hues[others % len(hues)], "symbol": SYMBOLS[others % len(SYMBOLS)], "size": 10}
            look["line"] = {"color": PAPER, "width": 1}
            others += 1
        drawn = [group for group in means if means[group][number] is not None]
        traces.append(
            go.Scatter(
                mode="markers",
                name=name,
                x=[means[group][number] for group in drawn],
                y=[labels[group] for group in drawn],
                hovertemplate=f"%{{y}}<br>%{{fullData.name}}: %{{x:{form}}}<extra></extra>",
                marker={**look, "opacity": 0.95},
            )
        )
    return traces


SIZES = Figure(
    slug="tasks",
    title="Tasks and sizes",
    caption="What a board is made of: its datasets by task, with their documents and queries.",
    subjects=("benchmark",),
    drawable=counts_several,
    build=build_sizes,
)
MEANS_BY_TASK = Figure(
    slug="means-by-task",
    title="Means by task",
    caption="How good systems are at each task.",
    subjects=("benchmark",),
    drawable=counts_several,
    build=build_task_means,
)
MEANS_BY_DOMAIN = Figure(
    slug="means-by-domain",
    title="Means by domain",
    caption="How good systems are in each domain.",
    subjects=("benchmark",),
    drawable=counts_several,
    build=build_domain_means,
)
