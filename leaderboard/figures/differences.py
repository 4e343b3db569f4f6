"""Differences from the baseline: of all systems, or of selected systems on each dataset of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from leaderboard.boards.model import DELTA, Board, Row
from leaderboard.core.text.numbers import DIGITS, direction, signed
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.board_rows.entry_rows import REPORTED
from leaderboard.results.significance.statements import lost_class, outcome_class

_BAND = {"fillcolor": "var(--tint-strong)", "line_width": 0, "layer": "below"}
#: Maximum number of systems side by side.
MAX_SYSTEMS = 4
NOTHING_TO_COMPARE = "No system of this view can be compared with a baseline of its own source and version."


def has_differences(board: Board) -> bool:
    """Return whether the board has differences from the baseline.

    Always true for a benchmark, which has them in another view.
    """
    rows = drawing.comparable_rows(board) if board.column(DELTA) is not None else []
    return bool(board.views) or any(row.value(DELTA) is not None and not row.entry.is_baseline for row in rows)


def build(request: FigureRequest) -> Plot:
    """Draw differences from the baseline: of all systems, or of selected systems on each dataset of a benchmark."""
    if request.benchmark and (request.systems or request.state.pins or request.board().column(DELTA) is None):
        return _benchmark_differences(request)
    return _system_differences(request.board(), DELTA, is_filtered=request.state.filtered)


class _Style(NamedTuple):
    """Legend label, color, and symbol of points: either for the outcome of a test, or for one of several systems."""

    label: str | Promise
    color: str
    symbol: str


SIGNIFICANTLY_BETTER = _Style(gettext_lazy("significantly better"), drawing.BETTER, "circle")
UNCORRECTED = _Style(gettext_lazy("significant only before correction"), drawing.GREY, "circle-open")
NOT_SIGNIFICANT = _Style(gettext_lazy("not significant"), drawing.GREY, "circle-open")
SIGNIFICANTLY_WORSE = _Style(gettext_lazy("significantly worse"), drawing.WORSE, "circle")
UNTESTED = _Style(gettext_lazy("not tested"), drawing.GREY, "x-thin")
#: Outcomes by class, in the order of the legend.
OUTCOMES = {
    "up": SIGNIFICANTLY_BETTER,
    "up is-lost": UNCORRECTED,
    "down is-lost": UNCORRECTED,
    "ns": NOT_SIGNIFICANT,
    "down": SIGNIFICANTLY_WORSE,
    "untested": UNTESTED,
}


class _Difference(NamedTuple):
    """A difference from the baseline, or None if it is unknown, with the results of its test.

    `outcome` is that of `outcome_class`. `is_reported` differences are not tested.
    """

    value: float | None
    ends: tuple[float, float] | None
    outcome: str
    is_reported: bool
    link: str = ""

    @property
    def style(self) -> _Style:
        return OUTCOMES[self.outcome]


class _Series(NamedTuple):
    """Differences of one system on several datasets, or of several systems on one."""

    name: str
    differences: Sequence[_Difference]


class _Subject(NamedTuple):
    """Texts and formats of a figure: measure, baseline, number format, caption, and subtitle.

    `threshold` is the least significant difference with hidden judgments, negative if lower scores are better, or 0.
    """

    measure: str
    baseline: str
    number_format: str
    caption: str
    subtitle: str
    threshold: float = 0.0


def _board_subject(board: Board, rows: Sequence[Row], caption: str, systems: str = "") -> _Subject:
    subtitle, lower = f"{systems}{board.title}, {board.measure}", drawing.lower_is_better(board)
    least = (board.statements.least_difference(board.measure) or 0.0) * (-1 if lower else 1)
    return _Subject(board.measure, board.baseline, drawing.score_format(rows, "+"), caption, subtitle, least)


def _system_differences(board: Board, column: str, *, is_filtered: bool) -> Plot:
    """Draw the difference of each system in `column`, the best first, reported ones without a test below the others.

    Systems without a difference are omitted.
    """
    sign = 1 if drawing.lower_is_better(board) else -1
    pairs = [
        (row, _read_difference(board, row, column, drawing.system_url(row)))
        for row in drawing.comparable_rows(board)
        if not row.entry.is_baseline and drawing.value(row, column) is not None
    ]
    if not pairs:
        return Plot.empty(NOTHING_TO_COMPARE)
    pairs.sort(key=lambda pair: sign * (pair[1].value or 0.0))
    blocks = [[pair for pair in pairs if pair[1].is_reported == is_reported] for is_reported in (False, True)]
    tested, notes = drawing.limit_bars(blocks[0], "best differences", "that can be compared with the baseline")
    kind = "that are reported and not tested"
    reported, reported_notes = drawing.limit_bars(blocks[1], "best differences", kind, drawing.MAX_BARS // 2)
    rows, differences = zip(*tested, *reported, strict=True)
    measure = f"mean {board.measure}" if board.views and column == DELTA else board.measure
    caption = f"Difference in {measure} on {drawing.inline_title(board)} between each system and {board.baseline}."
    pin_note = [_("Pin systems on the board to show their differences on each dataset.")] if board.views else []
    subject, series = _board_subject(board, rows, caption), _Series(f"Δ {board.measure}", differences)
    plot = _draw(subject, ("System", drawing.distinct_names(rows)), [series], [*notes, *reported_notes, *pin_note])
    return plot if is_filtered or notes else replace(plot, finding=_finding(board.baseline, differences))


def _finding(baseline: str, differences: Sequence[_Difference]) -> str:
    """Return a sentence that counts tested systems significantly better than the baseline, empty without tests."""
    tested = [difference for difference in differences if not difference.is_reported]
    outcomes = [difference.outcome for difference in tested]
    better, lost = outcomes.count("up"), outcomes.count("up is-lost")
    if not outcomes or "untested" in outcomes:
        return ""
    facts = {"better": better, "tested": len(outcomes), "baseline": baseline, "lost": lost}
    are = ngettext("%(better)d of %(tested)d tested systems is", "%(better)d of %(tested)d tested systems are", better)
    text = (are if better else _("No tested system is")) + _(" significantly better than %(baseline)s")
    return (text + _(" after correction, and %(lost)d only before it") if lost else text) % facts


def _read_difference(board: Board, row: Row, column: str, link: str = "") -> _Difference:
    certainty, difference = row[column].certainty, drawing.value(row, column)
    better = None
    if column == DELTA:
        certainty = certainty or row.certainty
        better = board.statements.for_entry(row.first_entry, board.measure).better
    p, ends = (certainty.p_baseline, certainty.delta_interval) if certainty is not None else (None, None)
    # With hidden judgments, scores that equal the baseline's are not tested either.
    sign = direction(difference, board.measure) or "down"
    outcome = outcome_class(sign, p, lost_class(certainty), better=better)
    return _Difference(difference, ends, outcome, row.ranked_in == REPORTED and outcome == "untested", link)


def _benchmark_differences(request: FigureRequest) -> Plot:
    """Draw the differences of the selected systems on each dataset, largest first for the first system.

    If only one dataset is visible, all systems are drawn.
    """
    page = request.benchmark_in_view("delta")
    board, datasets = page.board, drawing.visible_datasets(page, counted_only=False)
    if len(datasets) == 1:
        return _system_differences(board, datasets[0].slug, is_filtered=True)
    slugs = request.systems or request.state.pins
    rows = [
        row
        for row in drawing.comparable_rows(board)
        if not row.entry.is_baseline
        and (not slugs or row.entry.slug in slugs)
        and any(drawing.value(row, dataset.slug) is not None for dataset in datasets)
    ]
    rows = drawing.select_rows(rows, slugs, MAX_SYSTEMS)
    if not rows:
        return Plot.empty(NOTHING_TO_COMPARE)
    datasets = [dataset for dataset in datasets if any(drawing.value(row, dataset.slug) is not None for row in rows)]
    names, sign = drawing.distinct_names(rows), 1 if drawing.lower_is_better(board) else -1
    values = {dataset.slug: drawing.value(rows[0], dataset.slug) for dataset in datasets}
    datasets.sort(key=lambda each: (values[each.slug] is None, round(sign * (values[each.slug] or 0.0), DIGITS)))
    series = [
        _Series(
            f"{name}, {UNTESTED.label}" if row.ranked_in == REPORTED else name,
            [_read_difference(board, row, dataset.slug) for dataset in datasets],
        )
        for row, name in zip(rows, names, strict=True)
    ]
    joined_names = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    caption = (
        f"Difference in {board.measure} from {board.baseline} by dataset of {drawing.inline_title(board)}, "
        f"for {joined_names}."
    )
    subject = _board_subject(board, rows, caption, f"{', '.join(names)}: ")
    notes = [
        f"{dataset.facts.name} shows {measure} instead of {board.measure}."
        for dataset in datasets
        if (measure := dataset.measure(board.measure)) != board.measure
    ]
    return _draw(subject, ("Dataset", [dataset.facts.name for dataset in datasets]), series, notes)


def _draw(
    subject: _Subject, heads: tuple[str, Sequence[str]], series: Sequence[_Series], notes: Sequence[str] = ()
) -> Plot:
    """Draw the differences of all series, one row per head; a single series also shows values and intervals.

    `heads` is the title of the first table column and its values. Reported systems below tested ones get a heading.
    """
    names, is_single, number_format = heads[1], len(series) == 1, subject.number_format
    all_differences = [difference for group in series for difference in group.differences]
    ends = [difference.ends for difference in all_differences]
    outcomes = {difference.style for difference in all_differences} if is_single else set()
    columns: list[Any] = [
        (group.name, [difference.value for difference in group.differences], number_format) for group in series
    ]
    if is_single and any(ends):
        low, high = zip(*(pair or (None, None) for pair in ends), strict=True)
        columns += [("95% from", list(low), number_format), ("to", list(high), number_format)]
    if is_single:
        columns.append((_("Test"), [str(difference.style.label) for difference in all_differences]))
    numbers = [difference.value for difference in all_differences if difference.value is not None]
    numbers += [subject.threshold, *(end for pair in ends if pair for end in pair)]
    explanation = " Lines are 95% confidence intervals." if any(ends) else ""
    if outcomes & {SIGNIFICANTLY_BETTER, SIGNIFICANTLY_WORSE}:
        explanation += f" Filled points are significantly better (green) or worse (orange) than {subject.baseline}."
    if UNCORRECTED in outcomes:
        explanation += " " + _("Dashed lines are significant only before correction.")
    untested = [each.is_reported for each in all_differences if each.outcome == "untested"] if is_single else []
    if untested:
        is_hidden = bool(subject.threshold) and not all(untested)
        reason = _("Crosses are not tested: with hidden judgments, only better systems are.")
        explanation += " " + (reason if is_hidden else _("Crosses are not tested."))
        explanation += " " + _("Reported results are not tested.") if is_hidden and any(untested) else ""
    band = {"type": "rect", "x0": 0.0, "x1": subject.threshold, "yref": "paper", "y0": 0, "y1": 1, **_BAND}
    if subject.threshold:
        explanation += " " + _("In the band, differences are not significant.")
    wide = _axes(subject, numbers, 0.91 if is_single else 1.0, drawing.MAX_TICKS) | {"legend_itemsizing": "constant"}
    narrow = _axes(subject, numbers, 0.8 if is_single else 1.0, drawing.MAX_NARROW_TICKS)
    narrow["xaxis"]["title"] = {"text": f"Δ {subject.measure} ({drawing.better_arrow(subject.measure)})"}
    block = sum(not each.is_reported for each in series[0].differences) % len(names) if is_single else 0
    categories = [*names[:block], _("Reported:"), *names[block:]] if block else list(names)
    return Plot(
        data=_outcome_traces(series[0], names, number_format) if is_single else _series_traces(series, names, subject),
        layout=drawing.bar_layout(categories, narrow=narrow, shapes=[band] if subject.threshold else [], **wide),
        table=Table.from_columns(heads, *columns),
        caption=subject.caption + explanation,
        subtitle=subject.subtitle,
        notes=list(notes),
        baseline=subject.baseline,
    )


def _outcome_traces(series: _Series, names: Sequence[str], number_format: str) -> list[go.Scatter]:
    """Return the points of one series with a trace for each outcome, and their values at the right edge."""
    pairs = list(zip(names, series.differences, strict=True))
    traces = [
        (_dashed_points if style == UNCORRECTED else _points)(style, members, number_format, drawing.MUTED_INK)
        for style in dict.fromkeys(OUTCOMES.values())
        if (members := [pair for pair in pairs if pair[1].style == style])
    ]
    values = go.Scatter(
        mode="text",
        x=[1.0] * len(names),
        y=list(names),
        xaxis="x2",
        text=[_value_text(difference, number_format) for _name, difference in pairs],
        textposition="middle left",
        textfont_color=drawing.INK,
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    return [*traces, values]


def _series_traces(series: Sequence[_Series], names: Sequence[str], subject: _Subject) -> list[go.Scatter]:
    """Return the points of several series, each with a hue and a symbol. Points of reported series are hollow."""
    traces = []
    for number, group in enumerate(series):
        color, symbol = drawing.mark(number)
        is_reported = any(difference.is_reported for difference in group.differences)
        style = _Style(group.name, color, f"{symbol}-open" if is_reported else symbol)
        pairs = list(zip(names, group.differences, strict=True))
        traces.append(_points(style, pairs, subject.number_format, color))
    return traces


def _value_text(difference: _Difference, number_format: str) -> str:
    return "" if difference.value is None else signed(difference.value, int(number_format[-2]))


def _points(style: _Style, pairs: Sequence[tuple[str, _Difference]], number_format: str, bar_color: str) -> go.Scatter:
    """Return a trace of differences with their intervals; `pairs` contains row names and differences."""
    differences = [difference for _name, difference in pairs]
    numbers = [difference.value or 0.0 for difference in differences]
    line = {"color": style.color, "width": 2}
    return go.Scatter(
        mode="markers",
        name=str(style.label),
        x=[difference.value for difference in differences],
        y=[name for name, _difference in pairs],
        text=[_value_text(difference, number_format) for difference in differences],
        error_x=drawing.error_bars(numbers, [difference.ends for difference in differences], bar_color),
        marker={"color": style.color, "symbol": style.symbol, "size": 11, "line": line},
        meta={"links": [difference.link for difference in differences if difference.link]},
        hovertemplate="%{y}<br>%{text}, %{fullData.name}<extra></extra>",
    )


def _dashed_points(
    style: _Style, pairs: Sequence[tuple[str, _Difference]], number_format: str, bar_color: str
) -> go.Scatter:
    """Return the trace of `_points` with dashed intervals, which Plotly's error bars do not support.

    Each difference has four points: the ends of its interval, the mark between them, and a gap in the line.
    """
    trace = _points(style, [pair for pair in pairs for _number in range(4)], number_format, bar_color)
    values = [(difference.value, difference.ends or (difference.value,) * 2) for _name, difference in pairs]
    return trace.update(
        mode="lines+markers",
        x=[x for value, (low, high) in values for x in (low, value, high, None)],
        error_x=None,
        line={"color": bar_color, "width": 1.3, "dash": "4px,3px"},
        marker={"size": [0, 11, 0, 0] * len(pairs), "opacity": 1},
    )


def _axes(subject: _Subject, numbers: Sequence[float], share: float, max_ticks: int) -> dict[str, Any]:
    """Return the horizontal axis, with `share` of the width, and one from 0 to 1 for values at its right."""
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    margin = 0.04 * (high - low or 0.1)
    bounds = low - margin, high + margin
    title = {"text": f"Δ {subject.measure} vs {subject.baseline} ({drawing.better_arrow(subject.measure)})"}
    ticks = drawing.linear_ticks(*bounds, signed=True, max_ticks=max_ticks)
    axis = {"title": title, "range": list(bounds), "domain": [0, share], "zeroline": True, **ticks}
    return {"xaxis": axis, "xaxis2": {"range": [0, 1], "domain": [share, 1], "visible": False}}


DELTAS = Figure(
    slug="deltas",
    title="Which systems are better than the baseline?",
    caption="Score differences of systems from the baseline.",
    subjects=("benchmark", "dataset"),
    build=build,
    drawable=has_differences,
)
