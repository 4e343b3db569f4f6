"""The best score over time: each system at its date, and the line of the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from leaderboard.boards.model import Board, Row
from leaderboard.core.text.numbers import format_value
from leaderboard.figures.drawing import BLUE, ORANGE, PAPER, go, linear_axis, sentence
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.points import ChartPoint, label_points, line_trace, point_trace
from leaderboard.figures.rows import (
    counted_datasets,
    effectiveness,
    left_out_note,
    lower_is_better,
    names_of,
    present,
    running_best,
    score_format,
    titled,
    value,
)
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.kinds import REPORTED

#: From how many different dates on there is any progress to see.
FEWEST_DATES = 3


class _Line(NamedTuple):
    """How results of one kind are drawn, and what their line is of."""

    label: str
    color: str
    symbol: str
    dash: str
    description: str


#: Of what was scored here, and of what publications report.
LINES = (
    _Line(
        "Scored here, by day",
        BLUE,
        "circle",
        "solid",
        "results scored here stand at the day of their publication",
    ),
    _Line(
        "Reported, by year",
        ORANGE,
        "diamond-open",
        "dot",
        "reported figures stand in the year of the system, or else the publication that reports it",
    ),
)


def build(request: FigureRequest) -> Plot:
    """Scored systems by the day of publication here, reported ones by the year they came out; never in one line."""
    board = request.board()
    column, y_title = effectiveness(request, board)
    rows = [row for row in present(board) if value(row, column) is not None]
    lower, form = lower_is_better(board), score_format(rows)
    dated = _dated(request, rows, column, form)
    days = len({when for when, _ in dated})
    if days < FEWEST_DATES:
        return Plot.empty(
            f"Progress is drawn from {FEWEST_DATES} different dates on; the systems of this view that have a "
            f"{y_title} came on {days or 'none'}."
        )
    traces, table, descriptions = [], [], []
    for line, reported in zip(LINES, (False, True), strict=True):
        of_kind = [each for each in dated if (each[1].row.ranked_in == REPORTED) is reported]
        if of_kind:
            points = [point for _, point in of_kind]
            best = running_best([point.y for point in points], lower=lower)
            traces += _traces(line, points, best)
            descriptions.append(line.description)
            for number, (when, point) in enumerate(of_kind):
                table.append((point.name, when, point.y, "yes" if number in best else "no"))
    names, whens, scores, firsts = zip(*table, strict=True)
    drawn = {id(point.row) for _, point in dated}
    return Plot(
        data=traces,
        layout=go.Layout(
            height=400,
            xaxis=_axis([when for when, _ in dated]),
            yaxis=linear_axis(sentence(y_title), scores),
        ),
        table=Table.of(
            ("System", names), ("Date", whens), (y_title, scores, form), ("Best when it came", firsts)
        ),
        caption=f"{sentence(y_title)} of {titled(board)} over time, for {len(dated)} systems; lines show the best so "
        f"far. {sentence('; '.join(descriptions))}.",
        subtitle=f"{board.title}, {y_title}",
        notes=left_out_note([row for row in rows if id(row) not in drawn], "without a date"),
    )


def has_dates(board: Board, datasets: Sequence[int]) -> bool:
    """Whether the ranked rows of a board of these datasets came on enough different dates.

    A dataset's board has the dates itself; a benchmark's asks for them in a query.
    """
    ranked = [row for row in present(board) if row.rank is not None]
    if board.views:
        dates = _dates(datasets)
        days = {dates.get(_key(row)) for row in ranked}
    else:
        days = {_date_of(row.entry) for row in ranked}
    return len(days - {None, ""}) >= FEWEST_DATES


def _date_of(entry: EntryRow) -> str:
    """The day of a result that was scored here, the year of a reported one; empty where it is not known."""
    if entry.provenance == REPORTED:
        return str(entry.year or entry.source_year or "")
    return entry.published[:10]


def _dated(
    request: FigureRequest, rows: Sequence[Row], column: str, form: str
) -> list[tuple[str, ChartPoint]]:
    """Return the rows that have a date, a day or a year, in its order; of one date the best first."""
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = counted_datasets(request.benchmark_page.members)
    dates = _dates(datasets)
    dated = []
    for row, name in zip(rows, names_of(rows), strict=True):
        when, score = dates.get(_key(row)), value(row, column)
        if when and score is not None:
            line = f"{when}: {format_value(score, int(form[-2]))}"
            dated.append((when, ChartPoint(row, name, _day(when), score, [line])))
    sign = 1 if lower_is_better(request.board()) else -1
    return sorted(dated, key=lambda each: (each[0], sign * each[1].y))


#: A system's slug, its configuration, and whether its results are reported.
_Key = tuple[str, str, bool]


def _key(row: Row) -> _Key:
    return row.entry.slug, row.entry.configuration, row.ranked_in == REPORTED


def _dates(datasets: Sequence[int]) -> dict[_Key, str]:
    """When the last of each row's results on these datasets came: the day, of reported ones the year."""
    dates: dict[_Key, str] = {}
    for rows in present_rows(datasets).values():
        for entry in rows.entries:
            if entry.is_public and (when := _date_of(entry)):
                key = entry.slug, entry.configuration, entry.provenance == REPORTED
                dates[key] = max(dates.get(key, ""), when)
    return dates


def _axis(dates: Sequence[str]) -> dict[str, Any]:
    """An axis over these days, at least a year wide."""
    days = [_day(when) for when in dates]
    first, last = date.fromisoformat(min(days)), date.fromisoformat(max(days))
    room = max((last - first) * 0.08, timedelta(days=183) - (last - first) / 2, timedelta(days=10))
    axis = {"type": "date", "range": [(first - room).isoformat(), (last + room).isoformat()]}
    if all(len(when) == 4 for when in dates):
        return {**axis, "tick0": _day("2000"), "dtick": "M12", "tickformat": "%Y"}
    return {**axis, "dtick": "M12", "tickformat": "%Y"} if (last - first).days > 800 else axis


def _day(when: str) -> str:
    """A year stands in its middle."""
    return f"{when}-07-01" if len(when) == 4 else when


def _traces(line: _Line, points: Sequence[ChartPoint], best: Sequence[int]) -> list[go.Scatter]:
    days, scores = [str(point.x) for point in points], [point.y for point in points]
    years = [float(day[:4]) + int(day[5:7]) / 12 + int(day[8:10]) / 365 for day in days]
    places = list(zip(years, scores, strict=True))
    labels = label_points([point.name for point in points], places, first=best, far=False)
    ring = {"color": line.color if line.symbol.endswith("open") else PAPER, "width": 1.5}
    marker = {"color": line.color, "symbol": line.symbol, "size": 9, "line": ring}
    drawn = point_trace(line.label, points, labels, marker)
    if len(points) == 1:
        return [drawn]
    best_so_far = line_trace(
        f"Best so far ({line.label.split(',')[0].lower()})",
        [*(days[number] for number in best), max(days)],
        [*(scores[number] for number in best), scores[best[-1]]],
        {"color": line.color, "width": 1.5, "shape": "hv", "dash": line.dash},
    )
    return [best_so_far, drawn]


PROGRESS = Figure(
    slug="progress",
    title="Progress over time",
    caption="When each system came, how good it was, and the best so far.",
    subjects=("benchmark", "dataset"),
    build=build,
    known=has_dates,
)
