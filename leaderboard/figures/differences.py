"""Differences to the baseline: of one or a few systems on each dataset, or of all systems on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from leaderboard.boards.facts import Member
from leaderboard.boards.model import DELTA, Board, Row
from leaderboard.boards.system.page import results_of, system_facts
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baselines_label
from leaderboard.core.text.deltas import DIGITS
from leaderboard.core.text.numbers import DECIMALS, signed
from leaderboard.figures.axes import MOST_NARROW_TICKS, MOST_TICKS, linear_ticks
from leaderboard.figures.bars import bar_layout, rows_of_bars
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Cell, Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import BETTER, GREY, INK, SOFT, WORSE, mark
from leaderboard.figures.points import system_url, whiskers
from leaderboard.figures.rows import (
    chosen_first,
    datasets_of,
    list_names,
    lower_is_better,
    names_of,
    present,
    score_format,
    titled,
    value,
)
from leaderboard.results.significance.statements import differs
from leaderboard.results.significance.types import EntryCertainty

#: So many systems side by side; without a choice there are two.
MOST_SYSTEMS, USUAL_SYSTEMS = 4, 2
#: The ends of a difference's 95% interval, None where it has none.
Ends = tuple[float, float] | None
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


class _Series(NamedTuple):
    """Differences from the baseline, with 95% intervals, links of the points, and significance."""

    name: str
    values: Sequence[float | None]
    ends: Sequence[Ends]
    links: Sequence[str] = ()
    significant: Sequence[bool] = ()


def _system_differences(board: Board, column: str) -> Plot:
    """A point for each system, of the differences in one column."""
    rows = [row for row in present(board) if not row.entry.is_baseline and value(row, column) is not None]
    if not rows:
        return Plot.empty(NOTHING)
    lower = lower_is_better(board)
    rows.sort(key=lambda row: value(row, column) or 0.0, reverse=not lower)
    rows, notes = rows_of_bars(rows, "best differences")
    series = _Series(
        f"Δ {board.measure}",
        [value(row, column) for row in rows],
        [_ends(row, column) for row in rows],
        [system_url(row) for row in rows],
        [differs(_certainty(row, column)) for row in rows],
    )
    return _plot(
        board.measure,
        board.baseline,
        ("System", names_of(rows)),
        [series],
        score_format(rows, "+"),
        f"Difference in {board.measure} on {titled(board)} between each system and {board.baseline}.",
        f"{board.title}, {board.measure}",
        notes,
        lower=lower,
    )


def _ends(row: Row, column: str) -> Ends:
    """The 95% interval of what a row has in a column of differences."""
    return difference_interval(_certainty(row, column))


def _certainty(row: Row, column: str) -> EntryCertainty | None:
    return row[column].certainty or (row.certainty if column == DELTA else None)


def difference_interval(found: EntryCertainty | None) -> Ends:
    """The ends of the interval of an entry's difference to the baseline, where there is one."""
    if found is None or found.delta_low is None or found.delta_high is None:
        return None
    return found.delta_low, found.delta_high


def _benchmark_differences(request: FigureRequest) -> Plot:
    page = request.benchmark_in_view("delta")
    board, places = page.board, datasets_of(page, counted=False)
    if len(places) == 1:
        return _system_differences(board, places[0].slug)
    rows = [
        row
        for row in present(board)
        if not row.entry.is_baseline and any(value(row, place.slug) is not None for place in places)
    ]
    slugs = request.systems or request.state.pins
    most = MOST_SYSTEMS if slugs else USUAL_SYSTEMS
    rows = chosen_first([row for row in rows if not slugs or row.entry.slug in slugs], slugs, most)
    if not rows:
        return Plot.empty(NOTHING)
    places = [place for place in places if any(value(row, place.slug) is not None for row in rows)]
    lower = lower_is_better(board)
    places.sort(key=lambda place: _order(value(rows[0], place.slug), lower=lower))
    names = names_of(rows)
    series = [
        _Series(
            name,
            [value(row, place.slug) for place in places],
            [_ends(row, place.slug) for place in places],
            significant=[differs(_certainty(row, place.slug)) for place in places],
        )
        for row, name in zip(rows, names, strict=True)
    ]
    return _plot(
        board.measure,
        board.baseline,
        ("Dataset", [place.facts.name for place in places]),
        series,
        score_format(rows, "+"),
        f"Difference in {board.measure} from {board.baseline} by dataset of {titled(board)}, for {_listed(names)}.",
        f"{', '.join(names)}: {board.title}, {board.measure}",
        _notes(page.board, places, chosen=bool(slugs)),
        lower=lower,
    )


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
    series = _Series(
        facts["name"],
        [round(one.delta or 0.0, DECIMALS) for one in results],
        [difference_interval(one.certainty) for one in results],
        [reverse("dataset", args=[one.dataset_slug]) for one in results],
        [differs(one.certainty) for one in results],
    )
    return _plot(
        list_names(measures),
        baseline,
        ("Dataset", heads),
        [series],
        f"+.{DECIMALS}f",
        f"Difference of {facts['name']} from {baseline} in {list_names(measures)}, by dataset.",
        f"{facts['name']}, {list_names(measures)}",
        lower=better(measures[0]) == "lower",
    )


def _plot(
    measure: str,
    baseline: str,
    heads: tuple[str, Sequence[str]],
    series: Sequence[_Series],
    form: str,
    caption: str,
    subtitle: str,
    notes: Sequence[str] = (),
    *,
    lower: bool,
) -> Plot:
    """The differences of all series, a row for each of the heads; of a single one with values and intervals."""
    what, names = heads
    single = len(series) == 1
    sure = any(any(one.ends) for one in series)
    columns: list[Sequence[Cell]] = [one.values for one in series]
    titles = [one.name for one in series]
    if single and sure:
        pairs = [pair or (None, None) for pair in series[0].ends]
        columns += [[low for low, _ in pairs], [high for _, high in pairs]]
        titles += ["95% from", "to"]
    data = [
        _points(number, one, names, form, lower=lower, single=single) for number, one in enumerate(series)
    ]
    numbers = [number for one in series for number in one.values if number is not None]
    numbers += [end for one in series for pair in one.ends if pair for end in pair]
    colour = " Lines are 95% confidence intervals." + (
        f" Filled points are significantly better (green) or worse (orange) than {baseline}."
        if single
        else ""
    )
    return Plot(
        data=[*data, _value_column(names, data[0].text)] if single else data,
        layout=bar_layout(
            len(names), **_axes(measure, baseline, numbers, lower=lower), showlegend=not single
        ),
        table=Table((what, *titles), list(zip(names, *columns, strict=True)), ("", *[form] * len(columns))),
        caption=f"{caption}{colour}" if sure else caption,
        subtitle=subtitle,
        notes=list(notes),
        baseline=baseline,
    )


def _points(
    number: int, series: _Series, heads: Sequence[str], form: str, *, lower: bool, single: bool
) -> go.Scatter:
    """Return one series. Alone, significant differences have colors; several have a hue and a symbol each."""
    look = mark(number)
    colors, symbols = [look.color] * len(heads), [look.symbol] * len(heads)
    if single:
        symbols = ["circle" if certain else "circle-open" for certain in series.significant]
        colors = [
            (BETTER if ((number or 0) > 0) != lower else WORSE) if certain else GREY
            for certain, number in zip(series.significant, series.values, strict=True)
        ]
    return go.Scatter(
        mode="markers",
        name=series.name,
        x=list(series.values),
        y=list(heads),
        text=[signed(each, int(form[-2])) if each is not None else "" for each in series.values],
        error_x=whiskers(
            [each or 0.0 for each in series.values], series.ends, SOFT if single else look.color
        ),
        marker={"color": colors, "symbol": symbols, "size": 11, "line": {"color": colors, "width": 2}},
        meta={"links": list(series.links)},
        hovertemplate="%{y}<br>%{fullData.name}: %{text}<extra></extra>",
    )


def _value_column(heads: Sequence[str], texts: Sequence[str]) -> go.Scatter:
    """The values, at the right edge of the picture."""
    return go.Scatter(
        mode="text",
        x=[1.0] * len(heads),
        y=list(heads),
        xaxis="x2",
        text=texts,
        textposition="middle left",
        textfont_color=INK,
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )


def _axes(measure: str, baseline: str, numbers: Sequence[float], *, lower: bool) -> dict[str, Any]:
    """The horizontal axis, and one from 0 to 1 for values at the right edge; on a phone they take more of it."""

    def axis(share: float, most: int) -> dict[str, Any]:
        low, high = min(0.0, *numbers), max(0.0, *numbers)
        span = high - low or 0.1
        bounds = low - 0.04 * span, high + share * span
        arrow = "← better" if lower else "better →"
        title = {"text": f"Δ {measure} vs {baseline} ({arrow})"}
        ticks = linear_ticks(*bounds, signed=True, most=most)
        return {"title": title, "range": list(bounds), "zeroline": True, **ticks}

    across = {"range": [0, 1], "overlaying": "x", "visible": False}
    narrow = {"xaxis": axis(0.6, MOST_NARROW_TICKS)}
    return {"xaxis": axis(0.2, MOST_TICKS), "xaxis2": across, "meta": {"narrow": narrow}}


def _order(number: float | None, *, lower: bool) -> tuple[bool, float]:
    return (number is None, round(number if lower else -number, DIGITS) if number is not None else 0.0)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _notes(board: Board, places: Sequence[Member], *, chosen: bool) -> list[str]:
    notes = [] if chosen else ["The first systems of the board; pinning others there shows those."]
    for place in places:
        measure = place.measure(board.measure)
        if measure != board.measure:
            notes.append(f"{place.facts.name} shows {measure} instead of {board.measure}.")
    return notes


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
