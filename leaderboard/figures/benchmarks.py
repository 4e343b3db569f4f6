"""Figures of benchmarks: sizes of datasets and means by task and domain, and wins over datasets.

These are Figures 1 and 3 of the BEIR paper, and its finding 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from leaderboard.boards.benchmark.aggregates import wins
from leaderboard.boards.model import Member, Row
from leaderboard.datasets import lists
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.values import published_statistics

#: So many systems have their means shown.
MOST_MEANS = 8


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
    sizes = _sizes(drawing.datasets_of(page, counted=False))
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
        caption=f"Documents and test queries of the {len(sizes)} datasets of {drawing.titled(page.board)}, by task. "
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


def build_means(what: Literal["task", "domain"], request: FigureRequest) -> Plot:
    """Draw a line for each task or domain, and a point for each system."""
    page = request.benchmark_page
    groups: dict[str, list[Member]] = {}
    for place in drawing.datasets_of(page):
        groups.setdefault(getattr(place, what) or "not said", []).append(place)
    of_kind, kind = drawing.rows_of_kind(drawing.present(page.board))
    rows = drawing.chosen_first(of_kind, request.systems or request.state.pins, MOST_MEANS)
    if any(row.entry.is_baseline for row in rows):
        rows = list(rows)
    else:
        baseline = [row for row in of_kind if row.entry.is_baseline][:1]
        rows = [*rows[: MOST_MEANS - len(baseline)], *baseline]
    means = {group: [drawing.mean(row, places) for row in rows] for group, places in groups.items()}
    means = {group: values for group, values in means.items() if any(value is not None for value in values)}
    if not rows or not means:
        return Plot.empty(f"No system of this view has all datasets of any {what}.")
    of_which = drawing.describe_kind(kind)
    names, form = drawing.names_of(rows), drawing.score_format(rows)
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
        f"{drawing.titled(page.board)}, {of_which} only. The number of datasets is in brackets.",
        subtitle=f"{page.board.title}, {page.board.measure}, {of_which}",
        notes=notes,
    )


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
    drawable=drawing.counts_several,
    build=build_sizes,
)
MEANS_BY_TASK = Figure(
    slug="means-by-task",
    title="Means by task",
    caption="How good systems are at each task.",
    subjects=("benchmark",),
    drawable=drawing.counts_several,
    build=partial(build_means, "task"),
)
MEANS_BY_DOMAIN = Figure(
    slug="means-by-domain",
    title="Means by domain",
    caption="How good systems are in each domain.",
    subjects=("benchmark",),
    drawable=drawing.counts_several,
    build=partial(build_means, "domain"),
)


#: So many systems are compared with each other; on a phone the letters of more than these are smaller.
MOST_COMPARED, MOST_NARROW = 12, 8
#: On how many datasets a system is better than, equal to, and worse than another.
Counts = tuple[int, int, int]


class _WinCount(NamedTuple):
    row: Row
    won: int
    tied: int
    lost: int

    @property
    def compared(self) -> int:
        """On how many datasets."""
        return self.won + self.tied + self.lost


def build_wins(request: FigureRequest) -> Plot:
    """Wins to the right, losses to the left. Baselines themselves are left out.

    Systems with all datasets are on top, most wins first; who has fewer could win on fewer, and lose on fewer.
    """
    board = request.benchmark_page.board
    if not drawing.counts_several(board):
        return Plot.empty("This board has one counted dataset: there is nothing to count over.")
    counted = [
        _WinCount(row, *map(int, row[drawing.WINS].text.split("/")))
        for row in drawing.present(board)
        if row[drawing.WINS].text and not row.entry.is_baseline
    ]
    if not counted:
        return Plot.empty("No system of this view can be compared with a baseline on these datasets.")
    datasets = len(drawing.datasets_of(request.benchmark_page))
    counted.sort(key=lambda one: (-one.compared, -one.won, one.lost))
    shown, notes = drawing.rows_of_bars(counted, "most datasets, and of these the most wins")
    systems = drawing.names_of([one.row for one in shown])
    coverage = [f"{one.compared}/{datasets}" for one in shown]
    incomplete = sum(one.compared < datasets for one in shown)
    if incomplete:
        notes.append(
            f"{incomplete} of these {len(shown)} systems cannot be compared on all {datasets} datasets: they come "
            "last, with the number that they are compared on in brackets."
        )
    names = [
        f"{name} ({compared})" if one.compared < datasets else name
        for one, name, compared in zip(shown, systems, coverage, strict=True)
    ]
    won, tied, lost = ([getattr(one, count) for one in shown] for count in ("won", "tied", "lost"))
    return Plot(
        data=[
            _bars("Losses", names, lost, drawing.WORSE, sign=-1),
            _bars("Wins", names, won, drawing.BETTER),
            *([_bars("Ties", names, tied, drawing.GREY)] if any(tied) else []),
        ],
        layout=drawing.bar_layout(
            len(shown),
            barmode="relative",
            xaxis=_count_axis(datasets),
            xaxis_title_text="← datasets lost · datasets won →",
        ),
        table=Table.of(
            ("System", systems),
            ("Wins", won, "d"),
            ("Ties", tied, "d"),
            ("Losses", lost, "d"),
            ("Datasets compared", coverage),
        ),
        caption=f"Datasets of {drawing.titled(board)} on which each system scores above or below "
        f"{board.baseline} in {board.measure}, of the {datasets} that count.",
        baseline=board.baseline,
        subtitle=f"{board.title}, {board.measure}",
        notes=notes,
    )


def _bars(name: str, systems: list[str], numbers: list[int], color: str, sign: int = 1) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=name,
        y=systems,
        x=[sign * number for number in numbers],
        text=[str(number) if number else "" for number in numbers],
        customdata=numbers,
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont_color=drawing.PAPER,
        textangle=0,
        constraintext="none",
        hovertemplate="%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
        marker_color=color,
    )


def _count_axis(datasets: int) -> dict[str, list[Any]]:
    """Return the axis of counts to both sides, with ticks without a sign."""
    step = 1 if datasets <= 6 else 5
    ticks = [number for number in range(-datasets, datasets + 1) if number % step == 0]
    texts = [str(abs(number)) for number in ticks]
    return {"range": [-datasets * 1.08, datasets * 1.08], "tickvals": ticks, "ticktext": texts}


def build_head_to_head(request: FigureRequest) -> Plot:
    """A square of systems: won and lost datasets, row against column, over those that both have."""
    page = request.benchmark_page
    slugs = request.systems or request.state.pins
    every = drawing.present(page.board)
    rows, kind = drawing.rows_of_kind([row for row in every if row.entry.slug in slugs] or every)
    of_kind = [row for row in every if row.ranked_in == kind]
    rows = drawing.chosen_first(of_kind, slugs, MOST_COMPARED)
    places = drawing.datasets_of(page)
    if len(rows) < 2 or not places:
        return Plot.empty("A comparison needs two systems of one kind, reported or scored.")
    names, counted = drawing.names_of(rows), drawing.describe_kind(kind)
    counts = _compared(rows, places, lower=drawing.lower_is_better(page.board))
    texts = [[f"{one[0]}–{one[2]}" if one else "" for one in line] for line in counts]
    # The share of the common datasets that were won, a tie half.
    shares = [
        [round((one[0] + one[1] / 2) / sum(one), 4) if one else None for one in line] for line in counts
    ]
    short = [drawing.cut(name, 22) for name in names]
    notes = ["A tie counts for neither; in the shade it is half a win for each."]
    if len(of_kind) > len(rows):
        notes.append(
            f"The first {len(rows)} of {len(of_kind)} systems; pinning others on the board puts them first."
        )
    if other := len(every) - len(of_kind):
        notes.append(f"{other} of the other kind, reported or scored, are not compared with these.")
    return Plot(
        data=[
            drawing.heatmap(
                drawing.NameSquare(names, shares, texts),
                1,
                "share won",
                "%{customdata[0]} against %{customdata[1]}<br>won–lost %{customdata[2]}",
            )
        ],
        layout=drawing.heatmap_layout(
            len(rows) * 34 + 130,
            short if len(set(short)) == len(short) else names,
            {"side": "top", "tickangle": -45},
            meta={"narrow": {"font": {"size": 9}}} if len(rows) > MOST_NARROW else {},
        ),
        table=Table.of(
            ("Won–lost against", names),
            *((name, [line[place] or None for line in texts]) for place, name in enumerate(names)),
        ),
        caption=f"Datasets of {drawing.titled(page.board)} that the row's system wins and loses against the "
        f"column's in {page.board.measure}. {len(rows)} systems, {counted} only.",
        subtitle=f"{page.board.title}, {page.board.measure}, {counted}",
        notes=notes,
    )


def _compared(rows: Sequence[Row], places: Sequence[Member], *, lower: bool) -> list[list[Counts | None]]:
    """What each row won, tied and lost against each other; None for itself and where they share no dataset."""
    scores = np.array([[row.value(place.slug) for place in places] for row in rows], np.float64)
    against = [zip(*wins(mine, scores, lower_is_better=lower), strict=True) for mine in scores]
    return [
        [counts if any(counts) and number != other else None for other, counts in enumerate(line)]
        for number, line in enumerate(against)
    ]


WIN_COUNTS = Figure(
    slug="wins",
    title="Wins against the baseline",
    caption="On how many datasets each system beats the baseline, and on how many it loses.",
    subjects=("benchmark",),
    build=build_wins,
    drawable=drawing.counts_several,
)
HEAD_TO_HEAD = Figure(
    slug="head-to-head",
    title="Head to head",
    caption="On how many datasets each system beats each other.",
    subjects=("benchmark",),
    build=build_head_to_head,
    drawable=drawing.counts_several,
)
