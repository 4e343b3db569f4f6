"""A benchmark's datasets by task and domain: their sizes (Figure 1 of the BEIR paper), and systems' means over them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Row
from leaderboard.datasets import lists
from leaderboard.figures import chart_rows, drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
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
    sizes = _sizes(chart_rows.datasets_of(page, counted=False))
    if not sizes:
        return Plot.empty("The sizes of these datasets are not known.")
    names, tasks = [one.name for one in sizes], [one.task for one in sizes]
    documents, queries = [one.documents for one in sizes], [one.queries for one in sizes]
    x, x2 = (
        drawing.log_axis(title, [number for number in numbers if number] or [1], sparse=True)
        for title, numbers in (("Documents", documents), ("Queries", queries))
    )
    firsts = [next(of_task) for _, of_task in groupby(sizes, lambda one: one.task)]
    return Plot(
        data=[
            _size_trace("documents", documents, sizes, "x"),
            _size_trace("queries", queries, sizes, "x2"),
        ],
        layout=drawing.bar_layout(
            len(sizes),
            22,
            xaxis={**x, "domain": [0.0, 0.46]},
            xaxis2={**x2, "domain": [0.5, 0.76], "anchor": "y"},
            annotations=[_task_name(one) for one in firsts],
            meta={
                "narrow": {
                    "xaxis": {**x, "domain": [0.0, 0.56]},
                    "xaxis2": {**x2, "domain": [0.64, 1.0], "anchor": "y"},
                    "annotations": [],
                }
            },
            showlegend=False,
            yaxis_showgrid=True,
            yaxis_categoryorder="array",
            yaxis_categoryarray=names,
        ),
        table=Table.of(
            ("Dataset", names),
            ("Task", tasks),
            ("Domain", [one.domain or None for one in sizes]),
            ("Documents", documents, ",d"),
            ("Queries", queries, ",d"),
        ),
        caption=f"Documents and test queries of the {len(sizes)} datasets of {chart_rows.titled(page.board)}, by task. "
        "Counted at import, or as the source of the reported figures states them.",
        subtitle=page.board.title,
        notes=[f"Shown on the board but not counted: {one.name}." for one in sizes if not one.counted],
    )


def _size_trace(what: str, numbers: Sequence[int | None], sizes: Sequence[_Size], axis: str) -> go.Scatter:
    return go.Scatter(
        mode="markers",
        name=what,
        x=numbers,
        y=[one.name for one in sizes],
        customdata=[one.task for one in sizes],
        marker={"color": drawing.BLUE, "size": 10},
        hovertemplate=f"%{{y}}, %{{customdata}}<br>%{{x:,}} {what}<extra></extra>",
        xaxis=axis,
    )


def _task_name(first: _Size) -> dict[str, Any]:
    """The name of a task beside its first dataset, where no grid line runs. A phone has no room for it."""
    place = {"xref": "paper", "x": 0.78, "xanchor": "left", "y": first.name}
    return {**place, "text": first.task, "font": {"color": drawing.SOFT}, "showarrow": False}


def _sizes(places: list[Member]) -> list[_Size]:
    """Return the sizes that are known, tasks together."""
    rows = {row["slug"]: row for row in lists.datasets()}
    sizes = []
    for place in places:
        if (row := rows.get(place.slug)) is not None:
            numbers = published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])
            name, task, counts = (
                drawing.cut(row["name"]),
                row["task"],
                (numbers["documents"], numbers["queries"]),
            )
            sizes.append(_Size(name, task or "task not stated", row["domain"], *counts, place.counted))
    order = list(dict.fromkeys(one.task for one in sizes))
    sizes.sort(key=lambda one: (order.index(one.task), -(one.documents or 0)))
    return [one for one in sizes if one.documents or one.queries]


def build_task_means(request: FigureRequest) -> Plot:
    """A line for each task, a point for each system."""
    return _build_means(request, "task")


def build_domain_means(request: FigureRequest) -> Plot:
    """A line for each domain, a point for each system."""
    return _build_means(request, "domain")


def _build_means(request: FigureRequest, what: Literal["task", "domain"]) -> Plot:
    page = request.benchmark_page
    groups: dict[str, list[Member]] = {}
    for place in chart_rows.datasets_of(page):
        groups.setdefault(getattr(place, what) or "not said", []).append(place)
    of_kind, kind = chart_rows.rows_of_kind(chart_rows.present(page.board))
    rows = chart_rows.chosen_first(of_kind, request.systems or request.state.pins, MOST_SYSTEMS)
    rows = _with_baseline(rows, of_kind)
    means = {group: [chart_rows.mean(row, places) for row in rows] for group, places in groups.items()}
    means = {group: values for group, values in means.items() if any(value is not None for value in values)}
    if not rows or not means:
        return Plot.empty(f"No system of this view has all datasets of any {what}.")
    of_which = chart_rows.describe_kind(kind)
    names, form = chart_rows.names_of(rows), chart_rows.score_format(rows)
    labels = {group: f"{group} ({len(groups[group])})" for group in means}
    numbers = [value for values in means.values() for value in values if value is not None]
    axis = drawing.linear_axis(f"Mean {page.board.measure}", numbers)
    by_system = zip(names, zip(*means.values(), strict=True), strict=True)
    notes = [
        "A system that lacks a dataset has no mean there. The first system is highlighted, or the first that is pinned "
        "on the board."
    ]
    if len(of_kind) > len(rows):
        notes.append(f"{len(rows)} of {len(of_kind)} systems.")
    return Plot(
        data=_mean_traces(rows, names, means, labels, form),
        layout=drawing.bar_layout(len(means), 34, xaxis=axis, yaxis_showgrid=True),
        table=Table.of(
            (what.capitalize(), list(means)),
            ("Datasets", [len(groups[group]) for group in means], "d"),
            *((name, values, form) for name, values in by_system),
        ),
        caption=f"Mean {page.board.measure} of {len(rows)} systems over the datasets of each {what} of "
        f"{chart_rows.titled(page.board)}, {of_which} only. The number of datasets is in brackets.",
        subtitle=f"{page.board.title}, {page.board.measure}, {of_which}",
        notes=notes,
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
    highlighted = next((number for number, row in enumerate(rows) if not row.entry.is_baseline), None)
    baselines = [number for number, row in enumerate(rows) if row.entry.is_baseline]
    others = [number for number in range(len(rows)) if number not in (highlighted, *baselines)]

    def trace(title: str, numbers: Sequence[int], **marker: Any) -> go.Scatter:
        drawn = [
            (means[group][number], labels[group], names[number])
            for number in numbers
            for group in means
            if means[group][number] is not None
        ]
        return go.Scatter(
            mode="markers",
            name=title,
            x=[mean for mean, *_ in drawn],
            y=[label for _, label, _ in drawn],
            customdata=[name for *_, name in drawn],
            hovertemplate=f"%{{y}}<br>%{{customdata}}: %{{x:{form}}}<extra></extra>",
            marker=marker,
        )

    traces = [trace("other systems", others, color=drawing.GREY, size=8, opacity=0.5)] if others else []
    for number in baselines:
        line = {"color": drawing.INK, "width": 3}
        traces.append(
            trace(names[number], [number], color=drawing.INK, symbol="line-ns-open", size=16, line=line)
        )
    if highlighted is not None:
        line = {"color": drawing.PAPER, "width": 1}
        traces.append(trace(names[highlighted], [highlighted], color=drawing.BLUE, size=12, line=line))
    return traces


SIZES = Figure(
    slug="tasks",
    title="Tasks and sizes",
    caption="What a board is made of: its datasets by task, with their documents and queries.",
    subjects=("benchmark",),
    drawable=chart_rows.counts_several,
    build=build_sizes,
)
MEANS_BY_TASK = Figure(
    slug="means-by-task",
    title="Means by task",
    caption="How good systems are at each task.",
    subjects=("benchmark",),
    drawable=chart_rows.counts_several,
    build=build_task_means,
)
MEANS_BY_DOMAIN = Figure(
    slug="means-by-domain",
    title="Means by domain",
    caption="How good systems are in each domain.",
    subjects=("benchmark",),
    drawable=chart_rows.counts_several,
    build=build_domain_means,
)
