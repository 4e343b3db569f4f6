"""Differences to the baseline: of one or a few systems on each dataset, or of all systems on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from leaderboard.boards.model import DELTA, Board, Row
from leaderboard.boards.system.page import results_of, system_facts
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baselines_label
from leaderboard.core.text.numbers import DECIMALS, DIGITS, signed
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.significance.statements import differs
from leaderboard.results.significance.types import EntryCertainty

#: So many systems side by side; without a choice there are two.
MOST_SYSTEMS, USUAL_SYSTEMS = 4, 2
NOTHING = "No system of this view can be compared with a baseline of its own source and version."


def has_differences(board: Board) -> bool:
    """Whether a dataset's board has any; a benchmark's has them in another view than this."""
    ours = [row for row in board.rows if not row.entry.is_baseline]
    return bool(board.views) or any(row.value(DELTA) is not None for row in ours)


def build(request: FigureRequest) -> Plot:
    """Points from the baseline of the same source, version and judgements: of a dataset all systems, else a few."""
    if request.benchmark:
        return _benchmark_differences(request)
    board = request.board()
    return Plot.empty(NOTHING) if board.column(DELTA) is None else _system_differences(board, DELTA)


class _Difference(NamedTuple):
    """A difference from the baseline, None where there is none, with what its tests found."""

    value: float | None
    certainty: EntryCertainty | None
    link: str = ""

    @property
    def ends(self) -> tuple[float, float] | None:
        """The 95% interval."""
        return self.certainty.delta_interval if self.certainty is not None else None


class _Series(NamedTuple):
    """Differences of one system, or of several on one dataset."""

    name: str
    differences: Sequence[_Difference]


class _Subject(NamedTuple):
    """What differences are of: the measure, the baseline, how values are written, and texts of the figure."""

    measure: str
    baseline: str
    form: str
    caption: str
    subtitle: str
    lower: bool


def _system_differences(board: Board, column: str) -> Plot:
    """A point for each system, of the differences in one column."""
    rows = [
        row
        for row in drawing.present(board)
        if not row.entry.is_baseline and drawing.value(row, column) is not None
    ]
    if not rows:
        return Plot.empty(NOTHING)
    lower = drawing.lower_is_better(board)
    rows.sort(key=lambda row: drawing.value(row, column) or 0.0, reverse=not lower)
    rows, notes = drawing.rows_of_bars(rows, "best differences")
    differences = [_difference(row, column, drawing.system_url(row)) for row in rows]
    subject = _Subject(
        board.measure,
        board.baseline,
        drawing.score_format(rows, "+"),
        f"Difference in {board.measure} on {drawing.titled(board)} between each system and {board.baseline}.",
        f"{board.title}, {board.measure}",
        lower,
    )
    return _plot(
        subject, ("System", drawing.names_of(rows)), [_Series(f"Δ {board.measure}", differences)], notes
    )


def _difference(row: Row, column: str, link: str = "") -> _Difference:
    certainty = row[column].certainty or (row.certainty if column == DELTA else None)
    return _Difference(drawing.value(row, column), certainty, link)


def _benchmark_differences(request: FigureRequest) -> Plot:
    page = request.benchmark_in_view("delta")
    board, places = page.board, drawing.datasets_of(page, counted=False)
    if len(places) == 1:
        return _system_differences(board, places[0].slug)
    slugs = request.systems or request.state.pins
    rows = [
        row
        for row in drawing.present(board)
        if not row.entry.is_baseline
        and (not slugs or row.entry.slug in slugs)
        and any(drawing.value(row, place.slug) is not None for place in places)
    ]
    rows = drawing.chosen_first(rows, slugs, MOST_SYSTEMS if slugs else USUAL_SYSTEMS)
    if not rows:
        return Plot.empty(NOTHING)
    places = [place for place in places if any(drawing.value(row, place.slug) is not None for row in rows)]
    lower, names = drawing.lower_is_better(board), drawing.names_of(rows)
    first = {place.slug: drawing.value(rows[0], place.slug) for place in places}
    sign = 1 if lower else -1
    places.sort(
        key=lambda place: (first[place.slug] is None, round(sign * (first[place.slug] or 0.0), DIGITS))
    )
    series = [
        _Series(name, [_difference(row, place.slug) for place in places])
        for row, name in zip(rows, names, strict=True)
    ]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    subject = _Subject(
        board.measure,
        board.baseline,
        drawing.score_format(rows, "+"),
        f"Difference in {board.measure} from {board.baseline} by dataset of {drawing.titled(board)}, for {listed}.",
        f"{', '.join(names)}: {board.title}, {board.measure}",
        lower,
    )
    notes = [] if slugs else ["The first systems of the board; pinning others there shows those."]
    for place in places:
        if (measure := place.measure(board.measure)) != board.measure:
            notes.append(f"{place.facts.name} shows {measure} instead of {board.measure}.")
    return _plot(subject, ("Dataset", [place.facts.name for place in places]), series, notes)


def build_system(request: FigureRequest) -> Plot:
    """The differences of one system to the baseline of each dataset's primary measure."""
    facts = system_facts(request.systems[0]) if request.systems else None
    if facts is None:
        return Plot.empty("This figure is of one system: its page has it.")
    results = [one for one in results_of(facts["pk"]) if one.delta is not None and not one.is_baseline]
    if not results:
        return Plot.empty(NOTHING)
    results.sort(key=lambda one: -(one.delta or 0.0))
    measures = list(dict.fromkeys(one.measure for one in results))
    baseline = baselines_label(one.baseline_name for one in results)
    heads = [f"{one.dataset}, {one.configuration}".removesuffix(", ") for one in results]
    differences = [
        _Difference(
            round(one.delta or 0.0, DECIMALS), one.certainty, reverse("dataset", args=[one.dataset_slug])
        )
        for one in results
    ]
    subject = _Subject(
        drawing.list_names(measures),
        baseline,
        f"+.{DECIMALS}f",
        f"Difference of {facts['name']} from {baseline} in {drawing.list_names(measures)}, by dataset.",
        f"{facts['name']}, {drawing.list_names(measures)}",
        better(measures[0]) == "lower",
    )
    return _plot(subject, ("Dataset", heads), [_Series(facts["name"], differences)])


def _plot(
    subject: _Subject, heads: tuple[str, Sequence[str]], series: Sequence[_Series], notes: Sequence[str] = ()
) -> Plot:
    """The differences of all series, a row for each of the heads; of a single one with values and intervals."""
    names, single, form = heads[1], len(series) == 1, subject.form
    every = [one for each in series for one in each.differences]
    ends = [one.ends for one in every]
    tested = any(ends)
    columns = [(each.name, [one.value for one in each.differences], form) for each in series]
    if single and tested:
        low, high = zip(*(pair or (None, None) for pair in ends), strict=True)
        columns += [("95% from", list(low), form), ("to", list(high), form)]
    data = [_points(number, each, names, subject, single=single) for number, each in enumerate(series)]
    if single:
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
    numbers = [one.value for one in every if one.value is not None]
    numbers += [end for pair in ends if pair for end in pair]
    explanation = " Lines are 95% confidence intervals." if tested else ""
    if tested and single:
        explanation += (
            f" Filled points are significantly better (green) or worse (orange) than {subject.baseline}."
        )
    return Plot(
        data=data,
        layout=drawing.bar_layout(len(names), **_axes(subject, numbers), showlegend=not single),
        table=Table.of(heads, *columns),
        caption=subject.caption + explanation,
        subtitle=subject.subtitle,
        notes=list(notes),
        baseline=subject.baseline,
    )


def _points(
    number: int, series: _Series, heads: Sequence[str], subject: _Subject, *, single: bool
) -> go.Scatter:
    """Return one series. Alone, significant differences have colors; several have a hue and a symbol each."""
    differences, look = series.differences, drawing.mark(number)
    colors, symbols = [look.color] * len(heads), [look.symbol] * len(heads)
    if single:
        significant = [differs(one.certainty) for one in differences]
        symbols = ["circle" if certain else "circle-open" for certain in significant]
        colors = [
            (drawing.BETTER if ((one.value or 0) > 0) != subject.lower else drawing.WORSE)
            if certain
            else drawing.GREY
            for certain, one in zip(significant, differences, strict=True)
        ]
    numbers, ends = [one.value or 0.0 for one in differences], [one.ends for one in differences]
    digits = int(subject.form[-2])
    return go.Scatter(
        mode="markers",
        name=series.name,
        x=[one.value for one in differences],
        y=list(heads),
        text=[signed(one.value, digits) if one.value is not None else "" for one in differences],
        error_x=drawing.whiskers(numbers, ends, drawing.SOFT if single else look.color),
        marker={"color": colors, "symbol": symbols, "size": 11, "line": {"color": colors, "width": 2}},
        meta={"links": [one.link for one in differences if one.link]},
        hovertemplate="%{y}<br>%{fullData.name}: %{text}<extra></extra>",
    )


def _axes(subject: _Subject, numbers: Sequence[float]) -> dict[str, Any]:
    """The horizontal axis, and one from 0 to 1 for values at the right edge; on a phone they take more of it."""

    def axis(share: float, most: int) -> dict[str, Any]:
        low, high = min(0.0, *numbers), max(0.0, *numbers)
        span = high - low or 0.1
        bounds = low - 0.04 * span, high + share * span
        arrow = "← better" if subject.lower else "better →"
        title = {"text": f"Δ {subject.measure} vs {subject.baseline} ({arrow})"}
        ticks = drawing.linear_ticks(*bounds, signed=True, most=most)
        return {"title": title, "range": list(bounds), "zeroline": True, **ticks}

    across = {"range": [0, 1], "overlaying": "x", "visible": False}
    narrow = {"xaxis": axis(0.6, drawing.MOST_NARROW_TICKS)}
    return {"xaxis": axis(0.2, drawing.MOST_TICKS), "xaxis2": across, "meta": {"narrow": narrow}}


SYSTEM_DELTAS = Figure(
    slug="system-deltas",
    title="Differences from the baseline by dataset",
    caption="How far a system is above or below the baseline of each dataset.",
    subjects=("system",),
    build=build_system,
)
DELTAS = Figure(
    slug="deltas",
    title="Differences from the baseline",
    caption="How far above or below the baseline systems are, dataset by dataset.",
    subjects=("benchmark", "dataset"),
    build=build,
    drawable=has_differences,
)
