"""Figures of benchmarks: means by task and domain, and wins over datasets.

They correspond to Figure 3 and finding 5 of the BEIR paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from leaderboard.boards.benchmark.aggregates import wins
from leaderboard.boards.benchmark.columns import WINS
from leaderboard.boards.model import Board, Member, Row
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.models import Dataset

#: Maximum number of systems in the figures of means.
MAX_SYSTEMS = 8


def build_means(grouping: Literal["task", "domain"], request: FigureRequest) -> Plot:
    """Draw the systems' mean scores over the datasets of each task or domain, one row per group.

    The selected or first systems are drawn, reported or scored ones only, and the baseline.
    """
    page = request.benchmark_page
    groups: dict[str, list[Member]] = {}
    for member in drawing.visible_datasets(page):
        groups.setdefault(getattr(member, grouping) or "not stated", []).append(member)
    kind_rows, kind = drawing.majority_kind(drawing.rows_across_datasets(page.board))
    rows = drawing.select_rows(kind_rows, request.systems or request.state.pins, MAX_SYSTEMS)
    if not any(row.entry.is_baseline for row in rows):
        baseline_rows = [row for row in kind_rows if row.entry.is_baseline][:1]
        rows = [*rows[: MAX_SYSTEMS - len(baseline_rows)], *baseline_rows]
    means = {group: [drawing.mean(row, members) for row in rows] for group, members in groups.items()}
    means = {group: values for group, values in means.items() if any(value is not None for value in values)}
    if not rows or not means:
        return Plot.empty(f"No system of this view has all datasets of any {grouping}.")
    kind_label = drawing.describe_kind(kind)
    names, number_format = drawing.distinct_names(rows), drawing.score_format(rows)
    labels = {group: f"{group} ({len(groups[group])})" for group in means}
    numbers = [value for values in means.values() for value in values if value is not None]
    axis = drawing.linear_axis(f"Mean {page.board.measure}", numbers)
    by_system = zip(names, zip(*means.values(), strict=True), strict=True)
    notes = [
        "A system that lacks a dataset has no mean there. The first system is highlighted, or the first one pinned "
        "on the board."
    ]
    if len(kind_rows) > len(rows):
        notes.append(f"The figure shows {len(rows)} of the {len(kind_rows)} systems with several {kind_label}.")
    return Plot(
        data=_mean_traces(rows, names, means, labels, number_format),
        layout=drawing.bar_layout(list(labels.values()), 34, xaxis=axis, yaxis_showgrid=True),
        table=Table.from_columns(
            (grouping.capitalize(), list(means)),
            ("Datasets", [len(groups[group]) for group in means], "d"),
            *((name, values, number_format) for name, values in by_system),
        ),
        caption=f"Mean {page.board.measure} of {drawing.count_systems(len(rows))} over the datasets of each "
        f"{grouping} of {drawing.inline_title(page.board)}, {kind_label} only. The number of datasets is in brackets.",
        subtitle=f"{page.board.title}, {page.board.measure}, {kind_label}",
        notes=notes,
    )


def _mean_traces(
    rows: Sequence[Row],
    names: Sequence[str],
    means: Mapping[str, Sequence[float | None]],
    labels: Mapping[str, str],
    number_format: str,
) -> list[go.Scatter]:
    """Return points for the baselines, the first other system, which is highlighted, and the remaining ones in gray."""
    highlighted_number = next((number for number, row in enumerate(rows) if not row.entry.is_baseline), None)
    baselines = [number for number, row in enumerate(rows) if row.entry.is_baseline]
    other_systems = [number for number in range(len(rows)) if number not in (highlighted_number, *baselines)]

    def trace(title: str, numbers: Sequence[int], **marker: Any) -> go.Scatter:
        """Return a trace with the points of these rows in all groups where they have a mean."""
        points = [
            (means[group][number], labels[group], names[number])
            for number in numbers
            for group in means
            if means[group][number] is not None
        ]
        return go.Scatter(
            mode="markers",
            name=title,
            x=[mean for mean, *_ in points],
            y=[label for _, label, _ in points],
            customdata=[name for *_, name in points],
            hovertemplate=f"%{{y}}<br>%{{customdata}}: %{{x:{number_format}}}<extra></extra>",
            marker=marker,
        )

    traces = [trace("other systems", other_systems, color=drawing.GREY, size=8, opacity=0.8)] if other_systems else []
    for number in baselines:
        line = {"color": drawing.INK, "width": 3}
        traces.append(trace(names[number], [number], color=drawing.INK, symbol="line-ns-open", size=16, line=line))
    if highlighted_number is not None:
        line = {"color": drawing.PAPER, "width": 1}
        traces.append(trace(names[highlighted_number], [highlighted_number], color=drawing.BLUE, size=12, line=line))
    return traces


def _has_groups(grouping: Literal["task", "domain"], board: Board, datasets: Sequence[int]) -> bool:
    return Dataset.objects.filter(pk__in=datasets).order_by().values(grouping).distinct().count() > 1


def _figure_of_means(grouping: Literal["task", "domain"], title: str) -> Figure:
    return Figure(
        slug=f"means-by-{grouping}",
        title=title,
        caption=f"Mean scores of systems by {grouping}.",
        subjects=("benchmark",),
        drawable=drawing.compares_datasets,
        has_data=partial(_has_groups, grouping),
        build=partial(build_means, grouping),
    )


MEANS_BY_TASK = _figure_of_means("task", "Which systems are best at which task?")
MEANS_BY_DOMAIN = _figure_of_means("domain", "Which systems are best in which domain?")


#: Maximum number of systems compared, and the number above which cells on phones show wins only.
MAX_COMPARED, MAX_NARROW = 12, 8
#: Numbers of datasets on which a system is better than, equal to, and worse than another.
Counts = tuple[int, int, int]


class _WinCount(NamedTuple):
    """A row, and the numbers of datasets that it wins, ties, and loses against the baseline."""

    row: Row
    wins: int
    ties: int
    losses: int

    @property
    def total(self) -> int:
        return self.wins + self.ties + self.losses


def build_wins(request: FigureRequest) -> Plot:
    """Draw each system's wins and losses against the baseline over the benchmark's datasets.

    Wins are bars to the right and losses to the left. Systems with all datasets come first, most wins first: with fewer
    datasets, fewer can be won or lost.
    """
    board = request.benchmark_page.board
    rows = [row for row in drawing.comparable_rows(board) if row[WINS].text and not row.entry.is_baseline]
    all_counts = [_WinCount(row, *map(int, row[WINS].text.split("/"))) for row in rows]
    win_counts = [win_count for win_count in all_counts if win_count.total > 1]
    if not win_counts:
        return Plot.empty("No system of this view can be compared with a baseline on several of these datasets.")
    dataset_count = len(drawing.visible_datasets(request.benchmark_page))
    win_counts.sort(key=lambda win_count: (-win_count.total, -win_count.wins, win_count.losses))
    shown_counts, notes = drawing.limit_bars(win_counts, "most datasets, then wins", "compared on several datasets")
    systems = drawing.distinct_names([win_count.row for win_count in shown_counts])
    coverage = [f"{win_count.total}/{dataset_count}" for win_count in shown_counts]
    incomplete_count = sum(win_count.total < dataset_count for win_count in shown_counts)
    if incomplete_count:
        notes.append(
            f"Systems that cannot be compared on all {dataset_count} datasets ({incomplete_count} of "
            f"{len(shown_counts)}) are listed last, with their number of datasets in brackets."
        )
    names = [
        f"{name} ({coverage_text})" if win_count.total < dataset_count else name
        for win_count, name, coverage_text in zip(shown_counts, systems, coverage, strict=True)
    ]
    notes += drawing.omission_note([each.row for each in all_counts if each.total < 2], "fewer than two datasets")
    finding = "" if request.state.filtered else _describe_most_wins(win_counts, dataset_count, board.baseline)
    wins, ties, losses = map(list, zip(*(win_count[1:] for win_count in shown_counts), strict=True))
    return Plot(
        data=[
            _count_bars("Losses", names, losses, drawing.PURPLE, sign=-1),
            _count_bars("Wins", names, wins, drawing.BLUE),
            *([_count_bars("Ties", names, ties, drawing.GREY)] if any(ties) else []),
        ],
        layout=drawing.bar_layout(
            names,
            barmode="relative",
            xaxis=_count_axis(dataset_count),
            xaxis_title_text="← datasets lost · datasets won →",
        ),
        table=Table.from_columns(
            ("System", systems),
            ("Wins", wins, "d"),
            ("Ties", ties, "d"),
            ("Losses", losses, "d"),
            ("Datasets compared", coverage),
        ),
        caption=f"Datasets of {drawing.inline_title(board)} on which each system scores above or below "
        f"{board.baseline} in {board.measure}, of the {dataset_count} that count. Single datasets are not tested.",
        baseline=board.baseline,
        finding=finding,
        subtitle=f"{board.title}, {board.measure}",
        notes=notes,
    )


def _describe_most_wins(win_counts: Sequence[_WinCount], dataset_count: int, baseline: str) -> str:
    """Return a sentence about the system with the most wins over the baseline, empty if several systems have as many.

    A win is a better score than the baseline's on a dataset, without a significance test.
    """
    most_wins = max(win_count.wins for win_count in win_counts)
    leaders = [win_count for win_count in win_counts if win_count.wins == most_wins]
    if len(leaders) > 1 or not most_wins:
        return ""
    facts = {"name": drawing.shorten(drawing.row_name(leaders[0].row)), "wins": most_wins, "baseline": baseline}
    text = _("%(name)s scores better than %(baseline)s on %(wins)d of %(datasets)d datasets")
    return text % {**facts, "datasets": dataset_count}


def _count_bars(name: str, systems: list[str], numbers: list[int], color: str, sign: int = 1) -> go.Bar:
    """Return horizontal bars with their numbers; with `sign` −1, they extend to the left."""
    return go.Bar(
        orientation="h",
        name=name,
        y=systems,
        x=[sign * number for number in numbers],
        text=[str(number) if number else "" for number in numbers],
        customdata=numbers,
        insidetextfont_color=drawing.PAPER,
        **drawing.INSIDE_TEXT,
        hovertemplate="%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
        marker_color=color,
    )


def _count_axis(datasets: int) -> dict[str, list[Any]]:
    """Return an axis of counts in both directions, with unsigned ticks."""
    step = 1 if datasets <= 6 else 5
    ticks = [number for number in range(-datasets, datasets + 1) if number % step == 0]
    texts = [str(abs(number)) for number in ticks]
    return {"range": [-datasets * 1.08, datasets * 1.08], "tickvals": ticks, "ticktext": texts}


def build_head_to_head(request: FigureRequest) -> Plot:
    """Draw a matrix of systems with the datasets that the row's system wins and loses against the column's.

    The selected or first systems are drawn, reported or scored ones only.
    """
    page = request.benchmark_page
    slugs = request.systems or request.state.pins
    all_rows = drawing.rows_across_datasets(page.board)
    rows, kind = drawing.majority_kind([row for row in all_rows if row.entry.slug in slugs] or all_rows)
    kind_rows = [row for row in all_rows if row.ranked_in == kind]
    rows = drawing.select_rows(kind_rows, slugs, MAX_COMPARED)
    members = drawing.visible_datasets(page)
    if len(rows) < 2 or not members:
        return Plot.empty("A comparison needs two systems of one kind, reported or scored, with several datasets.")
    names, kind_label = drawing.distinct_names(rows), drawing.describe_kind(kind)
    counts = _pairwise_counts(rows, members, lower=drawing.lower_is_better(page.board))
    texts = [[f"{cell[0]}–{cell[2]}" if cell else "" for cell in line] for line in counts]
    # Share of the common datasets won; a tie counts half.
    shares = [[round((cell[0] + cell[1] / 2) / sum(cell), 4) if cell else None for cell in line] for line in counts]
    short_names = [drawing.shorten(name, 22) for name in names]
    notes = ["Ties are not counted as wins or losses; in the shading, a tie is half a win for each."]
    if len(kind_rows) > len(rows):
        notes.append(f"{len(rows)} of the {len(kind_rows)} systems with several {kind_label}. Pin others to see them.")
    if len(all_rows) > len(kind_rows):
        notes.append("Systems of the other kind, reported or scored, are not compared with these.")
    hover = "%{customdata[0]} against %{customdata[1]}<br>won–lost %{customdata[2]}"
    trace = drawing.heatmap(drawing.Matrix(names, shares, texts), 1, "share won", hover)
    if len(rows) > MAX_NARROW:
        trace.meta["narrow"]["text"] = [text.partition("–")[0] for text in trace.text]
        notes.append("On phones, cells show only the datasets won.")
    return Plot(
        data=[trace],
        layout=drawing.heatmap_layout(
            len(rows) * 34 + 130,
            short_names if len(set(short_names)) == len(short_names) else names,
            {"side": "top", "tickangle": -45},
        ),
        table=Table.from_columns(
            ("Won–lost against", names),
            *((name, [line[column] or None for line in texts]) for column, name in enumerate(names)),
        ),
        caption=f"Datasets of {drawing.inline_title(page.board)} that the row's system wins and loses against the "
        f"column's in {page.board.measure}. {len(rows)} systems, {kind_label} only.",
        subtitle=f"{page.board.title}, {page.board.measure}, {kind_label}",
        notes=notes,
    )


def _pairwise_counts(rows: Sequence[Row], members: Sequence[Member], *, lower: bool) -> list[list[Counts | None]]:
    """Return each row's wins, ties, and losses against each other row, over the members that both have.

    None on the diagonal and for rows without a common dataset.
    """
    scores = np.array([[row.value(member.slug) for member in members] for row in rows], np.float64)
    counts_by_row = [zip(*wins(row_scores, scores, lower_is_better=lower), strict=True) for row_scores in scores]
    return [
        [counts if any(counts) and number != column else None for column, counts in enumerate(line)]
        for number, line in enumerate(counts_by_row)
    ]


WIN_COUNTS = Figure(
    slug="wins",
    title="On how many datasets is each system better than the baseline?",
    caption="Numbers of datasets on which each system wins or loses against the baseline.",
    subjects=("benchmark",),
    build=build_wins,
    drawable=drawing.compares_datasets,
)
HEAD_TO_HEAD = Figure(
    slug="head-to-head",
    title="Which of two systems wins on more datasets?",
    caption="Numbers of datasets on which each system wins against each other system.",
    subjects=("benchmark",),
    build=build_head_to_head,
    drawable=drawing.compares_datasets,
)
