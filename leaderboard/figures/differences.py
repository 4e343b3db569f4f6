"""Differences from the baseline: of one or a few systems on each dataset, or of all systems on one dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from leaderboard.boards.model import DELTA, Board, Row
from leaderboard.boards.system.page import system_facts, system_results
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baselines_label
from leaderboard.core.text.numbers import DECIMALS, DIGITS, signed
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.significance.statements import differs
from leaderboard.results.significance.types import EntryCertainty

#: Maximum number of systems side by side, and the number shown by default.
MAX_SYSTEMS, DEFAULT_SYSTEMS = 4, 2
NOTHING_TO_COMPARE = "No system of this view can be compared with a baseline of its own source and version."


def has_differences(board: Board) -> bool:
    """Return whether the board has differences from the baseline.

    Always true for a benchmark, which has them in another view.
    """
    other_systems = [row for row in board.rows if not row.entry.is_baseline]
    return bool(board.views) or any(row.value(DELTA) is not None for row in other_systems)


def build(request: FigureRequest) -> Plot:
    """Draw differences from the baseline: all systems on a dataset, or a few systems on a benchmark's datasets."""
    if request.benchmark:
        return _benchmark_differences(request)
    board = request.board()
    return Plot.empty(NOTHING_TO_COMPARE) if board.column(DELTA) is None else _system_differences(board, DELTA)


class _Difference(NamedTuple):
    """A difference from the baseline, None if there is none, with its test results."""

    value: float | None
    certainty: EntryCertainty | None
    link: str = ""

    @property
    def ends(self) -> tuple[float, float] | None:
        return self.certainty.delta_interval if self.certainty is not None else None


class _Series(NamedTuple):
    """Differences of one system on several datasets, or of several systems on one."""

    name: str
    differences: Sequence[_Difference]


class _Subject(NamedTuple):
    """Texts and formats of a figure: measure, baseline, number format, caption, and subtitle."""

    measure: str
    baseline: str
    number_format: str
    caption: str
    subtitle: str
    lower_is_better: bool


def _system_differences(board: Board, column: str) -> Plot:
    """Draw the difference of each system in `column`, the best first. Systems without one are omitted."""
    rows = [
        row
        for row in drawing.comparable_rows(board)
        if not row.entry.is_baseline and drawing.value(row, column) is not None
    ]
    if not rows:
        return Plot.empty(NOTHING_TO_COMPARE)
    lower = drawing.lower_is_better(board)
    rows.sort(key=lambda row: drawing.value(row, column) or 0.0, reverse=not lower)
    rows, notes = drawing.limit_bars(rows, "best differences")
    differences = [_read_difference(row, column, drawing.system_url(row)) for row in rows]
    subject = _Subject(
        board.measure,
        board.baseline,
        drawing.score_format(rows, "+"),
        f"Difference in {board.measure} on {drawing.inline_title(board)} between each system and {board.baseline}.",
        f"{board.title}, {board.measure}",
        lower,
    )
    return _draw(subject, ("System", drawing.distinct_names(rows)), [_Series(f"Δ {board.measure}", differences)], notes)


def _read_difference(row: Row, column: str, link: str = "") -> _Difference:
    certainty = row[column].certainty or (row.certainty if column == DELTA else None)
    return _Difference(drawing.value(row, column), certainty, link)


def _benchmark_differences(request: FigureRequest) -> Plot:
    """Draw the differences of a few systems on each dataset, largest first for the first system.

    The selected systems are drawn, by default the first ones. If only one dataset is visible, all systems are drawn.
    """
    page = request.benchmark_in_view("delta")
    board, datasets = page.board, drawing.visible_datasets(page, counted_only=False)
    if len(datasets) == 1:
        return _system_differences(board, datasets[0].slug)
    slugs = request.systems or request.state.pins
    rows = [
        row
        for row in drawing.comparable_rows(board)
        if not row.entry.is_baseline
        and (not slugs or row.entry.slug in slugs)
        and any(drawing.value(row, dataset.slug) is not None for dataset in datasets)
    ]
    rows = drawing.select_rows(rows, slugs, MAX_SYSTEMS if slugs else DEFAULT_SYSTEMS)
    if not rows:
        return Plot.empty(NOTHING_TO_COMPARE)
    datasets = [dataset for dataset in datasets if any(drawing.value(row, dataset.slug) is not None for row in rows)]
    lower, names = drawing.lower_is_better(board), drawing.distinct_names(rows)
    leader_values = {dataset.slug: drawing.value(rows[0], dataset.slug) for dataset in datasets}
    sign = 1 if lower else -1
    datasets.sort(
        key=lambda dataset: (
            leader_values[dataset.slug] is None,
            round(sign * (leader_values[dataset.slug] or 0.0), DIGITS),
        )
    )
    series = [
        _Series(name, [_read_difference(row, dataset.slug) for dataset in datasets])
        for row, name in zip(rows, names, strict=True)
    ]
    joined_names = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    subject = _Subject(
        board.measure,
        board.baseline,
        drawing.score_format(rows, "+"),
        f"Difference in {board.measure} from {board.baseline} by dataset of {drawing.inline_title(board)}, "
        f"for {joined_names}.",
        f"{', '.join(names)}: {board.title}, {board.measure}",
        lower,
    )
    notes = [] if slugs else ["The first systems of the board. Pin others on the board to show them instead."]
    for dataset in datasets:
        if (measure := dataset.measure(board.measure)) != board.measure:
            notes.append(f"{dataset.facts.name} shows {measure} instead of {board.measure}.")
    return _draw(subject, ("Dataset", [dataset.facts.name for dataset in datasets]), series, notes)


def build_system(request: FigureRequest) -> Plot:
    """Draw one system's differences from the baseline in each dataset's primary measure, largest first."""
    facts = system_facts(request.systems[0]) if request.systems else None
    if facts is None:
        return Plot.empty("This figure shows one system. Open it from the system's page.")
    results = [result for result in system_results(facts["pk"]) if result.delta is not None and not result.is_baseline]
    if not results:
        return Plot.empty(NOTHING_TO_COMPARE)
    results.sort(key=lambda result: -(result.delta or 0.0))
    measures = list(dict.fromkeys(result.measure for result in results))
    baseline = baselines_label(result.baseline_name for result in results)
    heads = [f"{result.dataset}, {result.configuration}".removesuffix(", ") for result in results]
    differences = [
        _Difference(
            round(result.delta or 0.0, DECIMALS),
            result.certainty,
            reverse("dataset", args=[result.dataset_slug]),
        )
        for result in results
    ]
    subject = _Subject(
        drawing.list_names(measures),
        baseline,
        f"+.{DECIMALS}f",
        f"Difference of {facts['name']} from {baseline} in {drawing.list_names(measures)}, by dataset.",
        f"{facts['name']}, {drawing.list_names(measures)}",
        better(measures[0]) == "lower",
    )
    return _draw(subject, ("Dataset", heads), [_Series(facts["name"], differences)])


def _draw(
    subject: _Subject, heads: tuple[str, Sequence[str]], series: Sequence[_Series], notes: Sequence[str] = ()
) -> Plot:
    """Draw the differences of all series, one row per head; a single series also shows values and intervals.

    `heads` is the title of the first table column and its values.
    """
    names, is_single, number_format = heads[1], len(series) == 1, subject.number_format
    all_differences = [difference for group in series for difference in group.differences]
    ends = [difference.ends for difference in all_differences]
    has_intervals = any(ends)
    columns = [(group.name, [difference.value for difference in group.differences], number_format) for group in series]
    if is_single and has_intervals:
        low, high = zip(*(pair or (None, None) for pair in ends), strict=True)
        columns += [("95% from", list(low), number_format), ("to", list(high), number_format)]
    data = [_points(number, group, names, subject, is_single=is_single) for number, group in enumerate(series)]
    if is_single:
        data.append(
            go.Scatter(
                mode="text",
                x=[1.0] * len(names),
                y=list(names),
                xaxis="x2",
                text=data[0].text,
                textposition="middle left",
                textfont_color=drawing.INK,
                cliponaxis=False,
                hoverinfo="skip",
                showlegend=False,
            )
        )
    numbers = [difference.value for difference in all_differences if difference.value is not None]
    numbers += [end for pair in ends if pair for end in pair]
    explanation = " Lines are 95% confidence intervals." if has_intervals else ""
    if has_intervals and is_single:
        explanation += f" Filled points are significantly better (green) or worse (orange) than {subject.baseline}."
    return Plot(
        data=data,
        layout=drawing.bar_layout(len(names), **_axes(subject, numbers), showlegend=not is_single),
        table=Table.from_columns(heads, *columns),
        caption=subject.caption + explanation,
        subtitle=subject.subtitle,
        notes=list(notes),
        baseline=subject.baseline,
    )


def _points(number: int, series: _Series, heads: Sequence[str], subject: _Subject, *, is_single: bool) -> go.Scatter:
    """Return the points of one series.

    A single series is colored by significance; several have a hue and a symbol each.
    """
    differences, mark = series.differences, drawing.mark(number)
    colors, symbols = [mark.color] * len(heads), [mark.symbol] * len(heads)
    if is_single:
        significances = [differs(difference.certainty) for difference in differences]
        symbols = ["circle" if is_significant else "circle-open" for is_significant in significances]
        colors = [
            (drawing.BETTER if ((difference.value or 0) > 0) != subject.lower_is_better else drawing.WORSE)
            if is_significant
            else drawing.GREY
            for is_significant, difference in zip(significances, differences, strict=True)
        ]
    numbers, ends = (
        [difference.value or 0.0 for difference in differences],
        [difference.ends for difference in differences],
    )
    digits = int(subject.number_format[-2])
    return go.Scatter(
        mode="markers",
        name=series.name,
        x=[difference.value for difference in differences],
        y=list(heads),
        text=["" if difference.value is None else signed(difference.value, digits) for difference in differences],
        error_x=drawing.error_bars(numbers, ends, drawing.MUTED_INK if is_single else mark.color),
        marker={"color": colors, "symbol": symbols, "size": 11, "line": {"color": colors, "width": 2}},
        meta={"links": [difference.link for difference in differences if difference.link]},
        hovertemplate="%{y}<br>%{fullData.name}: %{text}<extra></extra>",
    )


def _axes(subject: _Subject, numbers: Sequence[float]) -> dict[str, Any]:
    """Return the horizontal axis and a second one, from 0 to 1, for values at the right edge.

    On a phone the values take more of the width.
    """

    def axis(share: float, max_ticks: int) -> dict[str, Any]:
        """Return an axis that covers the numbers and zero, with `share` of its range free at the right."""
        low, high = min(0.0, *numbers), max(0.0, *numbers)
        span = high - low or 0.1
        bounds = low - 0.04 * span, high + share * span
        arrow = "← better" if subject.lower_is_better else "better →"
        title = {"text": f"Δ {subject.measure} vs {subject.baseline} ({arrow})"}
        ticks = drawing.linear_ticks(*bounds, signed=True, max_ticks=max_ticks)
        return {"title": title, "range": list(bounds), "zeroline": True, **ticks}

    value_axis = {"range": [0, 1], "overlaying": "x", "visible": False}
    narrow_layout = {"xaxis": axis(0.6, drawing.MAX_NARROW_TICKS)}
    return {"xaxis": axis(0.2, drawing.MAX_TICKS), "xaxis2": value_axis, "meta": {"narrow": narrow_layout}}


SYSTEM_DELTAS = Figure(
    slug="system-deltas",
    title="Differences from the baseline by dataset",
    caption="Score differences of a system from each dataset's baseline.",
    subjects=("system",),
    build=build_system,
)
DELTAS = Figure(
    slug="deltas",
    title="Differences from the baseline",
    caption="Score differences of systems from the baseline, dataset by dataset.",
    subjects=("benchmark", "dataset"),
    build=build,
    drawable=has_differences,
)
