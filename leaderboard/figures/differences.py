"""Differences to the baseline: of one or a few systems on each dataset, or of all systems on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leaderboard.boards.facts import Member
from leaderboard.boards.model import DELTA, Board, Row
from leaderboard.core.text.deltas import DIGITS
from leaderboard.core.text.numbers import signed
from leaderboard.figures.axes import MOST_NARROW_TICKS, MOST_TICKS, linear_ticks
from leaderboard.figures.bars import BAR, bar_layout, rows_of_bars
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import BETTER, GREY, INK, SOFT, WORSE, mark
from leaderboard.figures.points import system_url
from leaderboard.figures.rows import (
    chosen_first,
    datasets_of,
    lower_is_better,
    names_of,
    present,
    score_format,
    titled,
    value,
)

#: So many systems side by side; without a choice there are two.
MOST_SYSTEMS, USUAL_SYSTEMS = 4, 2
NOTHING = "No system of this view can be compared with a baseline of its own source and version."


def has_differences(board: Board) -> bool:
    """Whether a dataset's board has any; a benchmark's has them in another view than this."""
    ours = [row for row in board.rows if not row.entry.is_baseline]
    return bool(board.views) or any(row.value(DELTA) is not None for row in ours)


def build(request: FigureRequest) -> Plot:
    """Bars from the baseline of the same source, version and judgements: of a dataset all systems, else a few."""
    if request.benchmark:
        return _benchmark_differences(request)
    board = request.board()
    return Plot.empty(NOTHING) if board.column(DELTA) is None else _system_differences(board, DELTA)


def _system_differences(board: Board, column: str) -> Plot:
    """A bar for each system, of the differences in one column."""
    rows = [row for row in present(board) if not row.entry.is_baseline and value(row, column) is not None]
    if not rows:
        return Plot.empty(NOTHING)
    lower = lower_is_better(board)
    rows.sort(key=lambda row: value(row, column) or 0.0, reverse=not lower)
    rows, notes = rows_of_bars(rows, "best differences")
    names, form = names_of(rows), score_format(rows, "+")
    values = [value(row, column) or 0.0 for row in rows]
    ends = [_ends(row, column) for row in rows]
    return Plot(
        data=_forest(f"Δ {board.measure}", names, values, ends, form, lower=lower, rows=rows),
        layout=bar_layout(len(rows), **_axes(board, [*values, *_numbers(ends)]), showlegend=False),
        table=_table("System", f"Δ {board.measure}", names, values, ends, form),
        caption=f"Difference in {board.measure} on {titled(board)} between each system and {board.baseline}. "
        f"{_colours(ends)}",
        subtitle=f"{board.title}, {board.measure}",
        baseline=board.baseline,
        notes=notes,
    )


#: The ends of a difference's 95 % interval, None where it has none.
Ends = tuple[float, float] | None


def _ends(row: Row, column: str) -> Ends:
    """The 95 % interval of what a row has in a column of differences."""
    found = row[column].certainty or (row.certainty if column == DELTA else None)
    if found is None or found.delta_low is None or found.delta_high is None:
        return None
    return found.delta_low, found.delta_high


def _numbers(ends: Sequence[Ends]) -> list[float]:
    return [end for pair in ends if pair for end in pair]


def _colours(ends: Sequence[Ends]) -> str:
    if not any(ends):
        return "No intervals are known of these."
    return "Lines are 95 % intervals; a difference has a colour where its own excludes 0."


def _table(
    what: str,
    head: str,
    names: Sequence[str],
    values: Sequence[float | None],
    ends: Sequence[Ends],
    form: str,
) -> Table:
    """The values, and their intervals where there are any."""
    if not any(ends):
        return Table((what, head), list(zip(names, values, strict=True)), ("", form))
    pairs = [pair or (None, None) for pair in ends]
    cells = [(name, number, *pair) for name, number, pair in zip(names, values, pairs, strict=True)]
    return Table((what, head, "95 % from", "to"), cells, ("", form, form, form))


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
    form, datasets = score_format(rows, "+"), [place.facts.name for place in places]
    values = [[value(row, place.slug) for place in places] for row in rows]
    ends = [_ends(rows[0], place.slug) for place in places] if len(rows) == 1 else []
    numbers = [*(number for line in values for number in line), *_numbers(ends)]
    return Plot(
        data=_forest(names[0], datasets, values[0], ends, form, lower=lower)
        if len(rows) == 1
        else _benchmark_bars(names, datasets, values, form),
        layout=bar_layout(
            len(places),
            max(BAR, 15 * len(rows) + 6),
            barmode="group",
            **_axes(board, numbers),
            showlegend=len(rows) > 1,
        ),
        table=_table("Dataset", names[0], datasets, values[0], ends, form)
        if len(rows) == 1
        else Table(
            ("Dataset", *names),
            list(zip(datasets, *values, strict=True)),
            ("", *[form] * len(rows)),
        ),
        caption=f"Difference in {board.measure} to {board.baseline} on each dataset of {titled(board)}, for "
        f"{_listed(names)}.{f' {_colours(ends)}' if len(rows) == 1 else ''}",
        baseline=board.baseline,
        subtitle=f"{', '.join(names)}: {board.title}, {board.measure}",
        notes=_notes(page.board, places, chosen=bool(slugs)),
    )


def _benchmark_bars(
    names: Sequence[str], datasets: Sequence[str], values: Sequence[Sequence[float | None]], form: str
) -> list[go.Bar]:
    """Several systems, with a hue and a pattern each."""
    traces = []
    for number, (name, differences) in enumerate(zip(names, values, strict=True)):
        look = mark(number)
        pattern = {"shape": look.pattern, "fillmode": "replace"}
        traces.append(_bars(name, datasets, differences, form, color=look.color, pattern=pattern))
    return traces


def _forest(
    name: str,
    heads: Sequence[str],
    values: Sequence[float | None],
    ends: Sequence[Ends],
    form: str,
    *,
    lower: bool,
    rows: Sequence[Row] = (),
) -> list[go.Scatter]:
    """Differences as points with intervals, values at the right edge. `rows` are the systems that points lead to."""
    known = [
        pair or (number or 0.0, number or 0.0)
        for pair, number in zip(ends or [None] * len(values), values, strict=True)
    ]
    sure = [low > 0 or high < 0 for low, high in known] if any(ends) else [False] * len(values)
    better = [(number or 0) > 0 for number in values]
    colors = [
        (BETTER if up != lower else WORSE) if certain else GREY
        for certain, up in zip(sure, better, strict=True)
    ]
    texts = [signed(number, int(form[-2])) if number is not None else "" for number in values]
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [round(high - (number or 0.0), 6) for (_, high), number in zip(known, values, strict=True)],
        "arrayminus": [
            round((number or 0.0) - low, 6) for (low, _), number in zip(known, values, strict=True)
        ],
        "color": SOFT,
        "thickness": 1.5,
        "width": 0,
    }
    points = go.Scatter(
        mode="markers",
        name=name,
        x=list(values),
        y=list(heads),
        text=texts,
        error_x=whiskers,
        marker={
            "color": colors,
            "symbol": ["circle" if certain else "circle-open" for certain in sure],
            "size": 11,
            "line": {"color": colors, "width": 2},
        },
        meta={"links": [system_url(row) for row in rows]},
        hovertemplate="%{y}<br>%{fullData.name}: %{text}<extra></extra>",
    )
    column = go.Scatter(
        mode="text",
        x=[1.0] * len(values),
        y=list(heads),
        xaxis="x2",
        text=texts,
        textposition="middle left",
        textfont_color=INK,
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    return [points, column]


def _bars(
    name: str, heads: Sequence[str], values: Sequence[float | None], form: str, **marker: Any
) -> go.Bar:
    decimals = int(form[-2])
    return go.Bar(
        orientation="h",
        name=name,
        y=heads,
        x=values,
        text=[signed(number, decimals) if number is not None else "" for number in values],
        textposition="outside",
        cliponaxis=False,
        marker=marker,
        hovertemplate="%{y}<br>%{fullData.name}: %{text}<extra></extra>",
    )


def _axes(board: Board, values: Sequence[float | None]) -> dict[str, Any]:
    """The horizontal axis, and one from 0 to 1 for values at the right edge; on a phone they take more of it."""
    narrow = _axis(board, values, 0.4, MOST_NARROW_TICKS)
    across = {"range": [0, 1], "overlaying": "x", "visible": False}
    return {
        "xaxis": {**_axis(board, values, 0.2, MOST_TICKS), "zeroline": True},
        "xaxis2": across,
        "meta": {"narrow": {"xaxis": {**narrow, "zeroline": True}}},
    }


def _axis(board: Board, values: Sequence[float | None], share: float, most: int) -> dict[str, Any]:
    """An axis with room for the numbers at the ends of bars: so large a share of what they span, and so many ticks."""
    arrow = "← better" if lower_is_better(board) else "better →"
    numbers = [number for number in values if number is not None]
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    room = share * (high - low or 0.1)
    bounds = low - (room if low < 0 else 0.0), high + (room if high > 0 or low == high else 0.0)
    return {
        "title": {"text": f"Δ {board.measure} to {board.baseline} ({arrow})"},
        "range": list(bounds),
        **linear_ticks(*bounds, signed=True, most=most),
    }


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


DELTAS = Figure(
    slug="deltas",
    title="Differences to the baseline",
    caption="How far above or below the baseline systems are, dataset by dataset.",
    subjects=("benchmark", "dataset"),
    build=build,
    drawable=has_differences,
)
