"""Figures of best scores over time, and of in-domain against zero-shot scores (BEIR, finding 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from leaderboard.boards.model import Board, Member, Row
from leaderboard.core.text.numbers import format_value
from leaderboard.figures import drawing
from leaderboard.figures.drawing import BLUE, ORANGE, PAPER, PURPLE, capitalize_first, go, linear_axis
from leaderboard.figures.labels import far_labels, label_points
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import CLOSED, REPORTED, SCORED, EntryRow
from leaderboard.results.board_rows.rows import present_rows

#: Minimum number of different dates that show any progress.
MIN_DATES = 3


class _Line(NamedTuple):
    """Style and description of the line of one kind of results (`ranked_in`). Boards rank each kind separately."""

    kind: str
    label: str
    color: str
    symbol: str
    dash: str
    description: str


_DAY = "results scored by Runboard are placed at the day of their publication"
_YEAR = "reported figures are placed in the year of the system, or else of the publication that reports it"
#: Lines of all kinds of results that have ranks.
LINES = (
    _Line(SCORED, "Scored by Runboard, by day", BLUE, "circle", "solid", _DAY),
    _Line(CLOSED, "Closed APIs, by day", PURPLE, "square", "dash", "systems behind closed APIs are ranked separately"),
    _Line(REPORTED, "Reported, by year", ORANGE, "diamond-open", "dot", _YEAR),
)


def build_progress(request: FigureRequest) -> Plot:
    """Draw scores by date and the best so far: scored systems by day of publication, and reported ones by year.

    Kinds of results that the board ranks separately have separate lines.
    """
    board = request.board()
    column, y_title = drawing.effectiveness_column(request, board)
    rows = [row for row in drawing.comparable_rows(board) if drawing.value(row, column) is not None]
    lower, number_format = drawing.lower_is_better(board), drawing.score_format(rows)
    dated_pairs = _dated(request, rows, column, int(number_format[-2]))
    days = len({day for day, _point in dated_pairs})
    if days < MIN_DATES:
        return Plot.empty(
            f"Progress needs {MIN_DATES} different dates; the systems of this view that have a "
            f"{y_title} have {days or 'none'}."
        )
    points = [point for _day, point in dated_pairs]
    groups = []
    for line in LINES:
        if numbers := [number for number, point in enumerate(points) if point.row.ranked_in == line.kind]:
            best = drawing.running_best([points[number].y for number in numbers], lower=lower)
            groups.append((line, numbers, [numbers[position] for position in best]))
    best_numbers = dict.fromkeys(number for _line, _numbers, best in groups for number in best)
    stepped_lines = [(best, numbers[-1]) for _line, numbers, best in groups if len(numbers) > 1]
    names, pins = [point.name for point in points], request.state.pins
    coordinates = [(date.fromisoformat(point.x).toordinal(), point.y) for point in points]
    pinned_numbers = [number for number, point in enumerate(points) if point.row.entry.slug in pins]
    labels = label_points(names, coordinates, [*pinned_numbers, *best_numbers], lines=stepped_lines)
    order = [number for _line, numbers, _best in groups for number in numbers]
    texts = [line.description for line, _numbers, _best in groups]
    scores = [points[number].y for number in order]
    drawn_rows = {id(point.row) for _day, point in dated_pairs}
    omitted_rows = [row for row in rows if id(row) not in drawn_rows]
    has_finding = not (request.state.filtered or omitted_rows or len(texts) > 1)
    return Plot(
        data=[trace for group in groups for trace in _draw_traces(*group, points, labels)],
        layout=go.Layout(
            height=420,
            xaxis=_date_axis([day for day, _point in dated_pairs]),
            yaxis=linear_axis(capitalize_first(y_title), scores),
            **far_labels(names, [(point.x, point.y) for point in points], labels),
        ),
        table=Table.from_columns(
            ("System", [names[number] for number in order]),
            ("Date", [dated_pairs[number][0] for number in order]),
            (y_title, scores, number_format),
            ("Best at that date", ["yes" if number in best_numbers else "no" for number in order]),
        ),
        caption=f"{capitalize_first(y_title)} of {drawing.inline_title(board)} over time, for "
        f"{drawing.count_systems(len(dated_pairs))}; lines show the best so far. Only systems on a line and "
        f"pinned ones have names. {capitalize_first('; '.join(texts))}.",
        subtitle=f"{board.title}, {y_title}",
        notes=drawing.omission_note(omitted_rows, "no date"),
        finding=_finding(dated_pairs, lower=lower) if has_finding else "",
    )


def _finding(dated_pairs: Sequence[tuple[str, drawing.ChartPoint]], *, lower: bool) -> str:
    """Return a sentence with the date of the best score, or an empty string if several systems have that score."""
    scores = [point.y for _day, point in dated_pairs]
    best_number = drawing.running_best(scores, lower=lower)[-1]
    if scores.count(scores[best_number]) > 1:
        return ""
    day, point = dated_pairs[best_number]
    return _("%(name)s has led since %(date)s") % {"name": point.name, "date": day}


def has_dates(board: Board, datasets: Sequence[int]) -> bool:
    """Return whether the ranked rows of a board have at least MIN_DATES different dates.

    A dataset's board has the dates itself; for a benchmark's board they are read from `datasets`.
    """
    ranked_rows = [row for row in drawing.comparable_rows(board) if row.rank is not None]
    if board.views:
        dates = _dates(datasets)
        days = {dates.get(_row_key(row)) for row in ranked_rows}
    else:
        days = {_publication_date(row.entry) for row in ranked_rows}
    return len(days - {None, ""}) >= MIN_DATES


def _publication_date(entry: EntryRow) -> str:
    """Return the day of a scored result or the year of a reported one; empty if unknown."""
    if entry.provenance == REPORTED:
        return str(entry.year or entry.source_year or "")
    return entry.published[:10]


def _dated(request: FigureRequest, rows: Sequence[Row], key: str, digits: int) -> list[tuple[str, drawing.ChartPoint]]:
    """Return a (date, point) pair for each row that has a date and a score in the column `key`.

    Pairs are sorted by date, and then the best score is first.
    """
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = drawing.counted_datasets(request.benchmark_page.members)
    dates = _dates(datasets)
    dated_pairs = []
    for row, name in zip(rows, drawing.distinct_names(rows), strict=True):
        day, score = dates.get(_row_key(row)), drawing.value(row, key)
        if day and score is not None:
            line = f"{day}: {format_value(score, digits)}"
            dated_pairs.append((day, drawing.ChartPoint(row, name, _to_iso_date(day), score, [line])))
    sign = 1 if drawing.lower_is_better(request.board()) else -1
    return sorted(dated_pairs, key=lambda dated_point: (dated_point[0], sign * dated_point[1].y))


#: A system's slug, its configuration, and whether its results are reported.
_Key = tuple[str, str, bool]


def _row_key(row: Row) -> _Key:
    return row.entry.slug, row.entry.configuration, row.ranked_in == REPORTED


def _dates(datasets: Sequence[int]) -> dict[_Key, str]:
    """Return the latest date of each row's public results on these datasets: a day, or a year for reported ones."""
    dates: dict[_Key, str] = {}
    for rows in present_rows(datasets).values():
        for entry in rows.entries:
            if entry.is_public and (day := _publication_date(entry)):
                key = entry.slug, entry.configuration, entry.provenance == REPORTED
                dates[key] = max(dates.get(key, ""), day)
    return dates


def _date_axis(dates: Sequence[str]) -> dict[str, Any]:
    """Return a time axis over these dates, at least a year wide, with ticks at years if it is long."""
    days = [_to_iso_date(day) for day in dates]
    first_day, last_day = date.fromisoformat(min(days)), date.fromisoformat(max(days))
    room = max((last_day - first_day) * 0.08, timedelta(days=183) - (last_day - first_day) / 2, timedelta(days=10))
    axis = {"type": "date", "range": [(first_day - room).isoformat(), (last_day + room).isoformat()]}
    years = (last_day - first_day).days / 365
    yearly = {**axis, "dtick": "M12" if years < 8 else "M24" if years < 16 else "M60", "tickformat": "%Y"}
    if all(len(day) == 4 for day in dates):
        return {**yearly, "tick0": _to_iso_date(max(dates))}
    return yearly if years > 2.2 else axis


def _to_iso_date(text: str) -> str:
    """Return an ISO date; a year is represented by its middle."""
    return f"{text}-07-01" if len(text) == 4 else text


def _draw_traces(
    line: _Line,
    numbers: Sequence[int],
    best_numbers: Sequence[int],
    points: Sequence[drawing.ChartPoint],
    labels: Sequence[Mapping[str, Any]],
) -> list[go.Scatter]:
    """Return the points of one kind by their `numbers`, and unless there is only one, a stepped line of the best."""
    members, best = [points[number] for number in numbers], [points[number] for number in best_numbers]
    ring = {"color": line.color if line.symbol.endswith("open") else PAPER, "width": 1.5}
    marker = {"color": line.color, "symbol": line.symbol, "size": 9, "line": ring}
    trace = drawing.point_trace(line.label, members, [labels[number] for number in numbers], marker)
    if len(members) == 1:
        return [trace]
    best_so_far = drawing.line_trace(
        f"Best so far ({drawing.lowercase_first(line.label.split(',')[0])})",
        [*(point.x for point in best), max(point.x for point in members)],
        [*(point.y for point in best), best[-1].y],
        {"color": line.color, "width": 1.5, "shape": "hv", "dash": line.dash},
        showlegend=False,
    )
    return [best_so_far, trace]


PROGRESS = Figure(
    slug="progress",
    title="How have the best scores changed over time?",
    caption="Scores by date of publication, and the best so far.",
    subjects=("benchmark", "dataset"),
    build=build_progress,
    has_data=has_dates,
)


#: Mark of values of systems that were trained on the dataset.
MARK = "‡"
#: Maximum number of systems for rank correlation, which compares all pairs.
MAX_CORRELATED = 200


def build_in_domain(request: FigureRequest) -> Plot:
    """Draw scores on the dataset that most systems were trained on against means over the other datasets.

    Only systems that were not trained on these are drawn, reported or scored ones.
    """
    if request.state.zero_shot:
        return Plot.empty("This view shows zero-shot values only: none of them is in-domain.")
    page = request.benchmark_page
    board, datasets = page.board, drawing.visible_datasets(page, counted_only=False)
    all_rows = drawing.comparable_rows(board)
    counts = Counter(member.slug for row in all_rows for member in datasets if _is_marked(row, member))
    most_trained = counts.most_common(1)[0][0] if counts else None
    trained_on = next((member for member in datasets if member.slug == most_trained), None)
    other_datasets = [member for member in datasets if member.counted and member != trained_on]
    all_rows = [row for row in all_rows if trained_on and drawing.value(row, trained_on.slug) is not None]
    kind_rows, kind = drawing.majority_kind(all_rows)
    rows = [row for row in kind_rows if _is_zero_shot(row, other_datasets)]
    if trained_on is None or len(other_datasets) < 2 or len(rows) < drawing.MIN_SYSTEMS:
        return Plot.empty("This figure needs three systems with a dataset used for training and two others.")
    number_format, measure, kind = drawing.score_format(rows), board.measure, drawing.describe_kind(kind)
    x_label = f"{trained_on.measure(measure)} on {trained_on.facts.name}"
    y_label = f"mean {measure} over the other {len(other_datasets)}"
    points = [
        drawing.ChartPoint(row, name, x, y, (f"{x_label}: {x:{number_format}}", f"{y_label}: {y:{number_format}}"))
        for row, name in zip(rows, drawing.distinct_names(rows), strict=True)
        if (x := drawing.value(row, trained_on.slug)) is not None
        and (y := drawing.mean(row, other_datasets)) is not None
    ]
    training_texts = [_training_text(point.row, trained_on) for point in points]
    traces, labels = drawing.traces_by_architecture(points)
    x_axis = linear_axis(capitalize_first(x_label), [point.x for point in points])
    y_axis = linear_axis(capitalize_first(y_label), [point.y for point in points])
    return Plot(
        data=traces,
        layout=go.Layout(height=420, xaxis=x_axis, yaxis=y_axis, **labels),
        table=drawing.points_table(
            points,
            (capitalize_first(x_label), number_format),
            (capitalize_first(y_label), number_format),
            (f"Trained on {trained_on.facts.name}", training_texts),
        ),
        caption=f"{capitalize_first(x_label)}, on which {training_texts.count('yes')} of these {len(points)} systems "
        f"were trained, against {y_label} datasets of {drawing.inline_title(board)}, for which none declares training "
        f"labels. {kind.capitalize()} only.",
        subtitle=f"{board.title}, {measure}, {kind}",
        notes=[
            *_training_notes(points),
            *_correlation_notes(points),
            *drawing.omission_note(
                [row for row in kind_rows if not _is_zero_shot(row, other_datasets)],
                "incomplete scores or other training data",
            ),
        ],
    )


def _is_zero_shot(row: Row, datasets: Sequence[Member]) -> bool:
    """Return whether a row has values on all datasets and was trained on none of them."""
    is_trained = any(_is_marked(row, dataset) for dataset in datasets)
    return drawing.mean(row, datasets) is not None and not is_trained


def _is_marked(row: Row, dataset: Member) -> bool:
    return MARK in row[dataset.slug].mark


def _has_exposure(row: Row, exposure: Entry.Training) -> bool:
    exposures = row.facets.get("training", ())
    return exposure.value in ((exposures,) if isinstance(exposures, str) else exposures)


def _training_text(row: Row, dataset: Member) -> str:
    if _is_marked(row, dataset):
        return "yes"
    return "not declared" if _has_exposure(row, Entry.Training.UNDECLARED) else "no"


def _training_notes(points: Sequence[drawing.ChartPoint]) -> list[str]:
    """Return notes that name adapted systems and those that do not declare their training."""
    notes = []
    for exposure, description in (
        (Entry.Training.ADAPTED, "Adapted to some of these corpora, without labels"),
        (Entry.Training.UNDECLARED, "Training data not declared"),
    ):
        if names := [point.name for point in points if _has_exposure(point.row, exposure)]:
            notes.append(f"{description}: {drawing.list_names(names)}.")
    return notes


def _correlation_notes(points: Sequence[drawing.ChartPoint]) -> list[str]:
    """Return a note with Kendall's τ-a of the two orders: concordant minus discordant pairs over all pairs.

    There is no note for fewer than three or more than MAX_CORRELATED systems.
    """
    number = len(points)
    if not 3 <= number <= MAX_CORRELATED:
        return []
    x, y = (np.subtract.outer(axis, axis) for axis in ([point.x for point in points], [point.y for point in points]))
    tau = np.sign(x * y).sum() / (number * (number - 1))
    return [f"Kendall's τ between the two orders is {tau:.2f} over {number} systems (1: same order, 0: unrelated)."]


IN_DOMAIN = Figure(
    slug="in-domain",
    title="Do systems that are good in-domain generalize to other datasets?",
    caption="Scores on a dataset that systems were trained on, against their mean over the others.",
    subjects=("benchmark",),
    build=build_in_domain,
    drawable=drawing.compares_datasets,
    has_data=lambda board, datasets: len(datasets) > 2,
)
