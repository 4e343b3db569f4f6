"""Best scores over time, and in-domain against zero-shot scores (BEIR, finding 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np

from leaderboard.boards.model import Board, Member, Row
from leaderboard.core.text.numbers import format_value
from leaderboard.figures import drawing
from leaderboard.figures.drawing import BLUE, ORANGE, PAPER, go, linear_axis, sentence
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import REPORTED, EntryRow
from leaderboard.results.board_rows.rows import present_rows

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


def build_progress(request: FigureRequest) -> Plot:
    """Scored systems by the day of publication here, reported ones by the year they came out; never in one line."""
    board = request.board()
    column, y_title = drawing.effectiveness(request, board)
    rows = [row for row in drawing.present(board) if drawing.value(row, column) is not None]
    lower, form = drawing.lower_is_better(board), drawing.score_format(rows)
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
            best = drawing.running_best([point.y for point in points], lower=lower)
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
        caption=f"{sentence(y_title)} of {drawing.titled(board)} over time, for {len(dated)} systems; lines "
        f"show the best so far. {sentence('; '.join(descriptions))}.",
        subtitle=f"{board.title}, {y_title}",
        notes=drawing.left_out_note([row for row in rows if id(row) not in drawn], "without a date"),
    )


def has_dates(board: Board, datasets: Sequence[int]) -> bool:
    """Whether the ranked rows of a board of these datasets came on enough different dates.

    A dataset's board has the dates itself; a benchmark's asks for them in a query.
    """
    ranked = [row for row in drawing.present(board) if row.rank is not None]
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
) -> list[tuple[str, drawing.ChartPoint]]:
    """Return the rows that have a date, a day or a year, in its order; of one date the best first."""
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = drawing.counted_datasets(request.benchmark_page.members)
    dates = _dates(datasets)
    dated = []
    for row, name in zip(rows, drawing.names_of(rows), strict=True):
        when, score = dates.get(_key(row)), drawing.value(row, column)
        if when and score is not None:
            line = f"{when}: {format_value(score, int(form[-2]))}"
            dated.append((when, drawing.ChartPoint(row, name, _day(when), score, [line])))
    sign = 1 if drawing.lower_is_better(request.board()) else -1
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


def _traces(line: _Line, points: Sequence[drawing.ChartPoint], best: Sequence[int]) -> list[go.Scatter]:
    days, scores = [str(point.x) for point in points], [point.y for point in points]
    years = [float(day[:4]) + int(day[5:7]) / 12 + int(day[8:10]) / 365 for day in days]
    places = list(zip(years, scores, strict=True))
    labels = drawing.label_points([point.name for point in points], places, first=best, far=False)
    ring = {"color": line.color if line.symbol.endswith("open") else PAPER, "width": 1.5}
    marker = {"color": line.color, "symbol": line.symbol, "size": 9, "line": ring}
    drawn = drawing.point_trace(line.label, points, labels, marker)
    if len(points) == 1:
        return [drawn]
    best_so_far = drawing.line_trace(
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
    build=build_progress,
    known=has_dates,
)


#: What marks values of systems that were trained on the dataset.
MARK = "‡"
#: Rank correlation compares all pairs: of more systems it says nothing that the picture does not.
MOST_COMPARED = 200


def build_in_domain(request: FigureRequest) -> Plot:
    """By system its score on the dataset that most were trained on, and its mean over the others, none of them seen."""
    if request.state.zero_shot:
        return Plot.empty("This view shows zero-shot values only: none of them is in-domain.")
    board, datasets = (
        request.benchmark_page.board,
        drawing.datasets_of(request.benchmark_page, counted=False),
    )
    every = drawing.present(board)
    counts = Counter(member.slug for row in every for member in datasets if _is_marked(row, member))
    most = counts.most_common(1)[0][0] if counts else None
    trained_on = next((member for member in datasets if member.slug == most), None)
    others = [member for member in datasets if member.counted and member != trained_on]
    of_kind, kind = _rows_with(trained_on, every)
    rows = [row for row in of_kind if _is_zero_shot(row, others)]
    if trained_on is None or not rows:
        return Plot.empty(
            "No system of this view was trained on one of these datasets and scored on all others."
        )
    form, measure = drawing.score_format(rows), board.measure
    across = f"{trained_on.measure(measure)} on {trained_on.facts.name}"
    up = f"mean {measure} over the other {len(others)}"
    points = [
        drawing.ChartPoint(row, name, x, y, (f"{across}: {x:{form}}", f"{up}: {y:{form}}"))
        for row, name in zip(rows, drawing.names_of(rows), strict=True)
        if (x := drawing.value(row, trained_on.slug)) is not None
        and (y := drawing.mean(row, others)) is not None
    ]
    trained = [_training(point.row, trained_on) for point in points]
    traces, labels = drawing.traces_by_architecture(points)
    x_axis = linear_axis(sentence(across), [point.x for point in points])
    y_axis = linear_axis(sentence(up), [point.y for point in points])
    return Plot(
        data=traces,
        layout=go.Layout(height=420, xaxis=x_axis, yaxis=y_axis, **labels),
        table=drawing.points_table(
            points,
            (sentence(across), form),
            (sentence(up), form),
            (f"Trained on {trained_on.facts.name}", trained),
        ),
        caption=f"{sentence(across)}, on which {trained.count('yes')} of these {len(points)} systems were trained, "
        f"against {up} datasets of {drawing.titled(board)}, for which none declares training labels. "
        f"{kind.capitalize()} only.",
        subtitle=f"{board.title}, {measure}, {kind}",
        notes=[
            *_not_zero_shot(points),
            *_correlation(points),
            *drawing.left_out_note(
                [row for row in of_kind if not _is_zero_shot(row, others)],
                "for want of scores or trained on others, too",
            ),
        ],
    )


def _rows_with(dataset: Member | None, every: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the rows of one kind that have a value on a dataset, and what that kind is called."""
    rows = [row for row in every if dataset and drawing.value(row, dataset.slug) is not None]
    of_kind, kind = drawing.rows_of_kind(rows)
    return of_kind, drawing.describe_kind(kind)


def _is_zero_shot(row: Row, datasets: Sequence[Member]) -> bool:
    """Return whether a row has values on all datasets, and was trained on none of them."""
    trained = any(_is_marked(row, dataset) for dataset in datasets)
    return drawing.mean(row, datasets) is not None and not trained


def _is_marked(row: Row, dataset: Member) -> bool:
    return MARK in row[dataset.slug].mark


def _has(row: Row, exposure: Entry.Training) -> bool:
    """Whether any of its results has this exposure."""
    exposures = row.facets.get("training", ())
    return exposure.value in ((exposures,) if isinstance(exposures, str) else exposures)


def _training(row: Row, dataset: Member) -> str:
    if _is_marked(row, dataset):
        return "yes"
    return "not declared" if _has(row, Entry.Training.UNDECLARED) else "no"


def _not_zero_shot(points: Sequence[drawing.ChartPoint]) -> list[str]:
    """Notes on systems whose means are not known to be zero-shot."""
    notes = []
    for exposure, what in (
        (Entry.Training.ADAPTED, "Adapted to some of these corpora, without labels"),
        (Entry.Training.UNDECLARED, "Without a declaration of what they were trained on"),
    ):
        if names := [point.name for point in points if _has(point.row, exposure)]:
            notes.append(f"{what}: {drawing.list_names(names)}.")
    return notes


def _correlation(points: Sequence[drawing.ChartPoint]) -> list[str]:
    """Kendall's τ-a of the two orders: pairs in the same order less those in the other, over all pairs."""
    number = len(points)
    if not 3 <= number <= MOST_COMPARED:
        return []
    x, y = (np.subtract.outer(axis, axis) for axis in ([one.x for one in points], [one.y for one in points]))
    tau = np.sign(x * y).sum() / (number * (number - 1))
    return [f"Kendall's τ of the two orders is {tau:.2f} over {number} systems (1: the same, 0: unrelated)."]


IN_DOMAIN = Figure(
    slug="in-domain",
    title="In-domain and zero-shot",
    caption="Scores where systems were trained, against their mean where they were not.",
    subjects=("benchmark",),
    build=build_in_domain,
    drawable=drawing.counts_several,
)
