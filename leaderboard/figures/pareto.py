"""Effectiveness against what it costs, with the Pareto frontier: the systems that no other beats on both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple

from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.reported import MILLISECONDS, key_of
from leaderboard.boards.model import EFFICIENCY, Board, Column, Row
from leaderboard.core.text.numbers import format_quantity
from leaderboard.figures.axes import linear_axis, log_axis, sentence, uncapitalised
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureChoice, FigureRequest, Plot, Table
from leaderboard.figures.palette import BLUE, GREY, SOFT
from leaderboard.figures.points import ChartPoint, line_trace, traces_by_architecture
from leaderboard.figures.rows import (
    effectiveness,
    left_out_note,
    lower_is_better,
    names_of,
    present,
    rows_of_kind,
    running_best,
    score_format,
    titled,
    value,
)
from leaderboard.models import Dataset
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.kinds import REPORTED, SCORED

#: By axis: the board's column of what was measured here, and what the axis is called.
MEASURED = {
    "latency": ("mean-latency", "Latency"),
    "index": ("index-bytes", "Index size"),
    "bytes": ("bytes-per-document", "Index size per document"),
    "parameters": (SIZE.key, "Parameters"),
    "cost": ("cost-per-million", "Cost"),
    "flops": ("flops-per-query", "Operations per query"),
    "document-flops": ("flops-per-document", "Operations per document"),
}

#: What a publication calls the axis.
STATED = {"latency": "latency", "index": "index size", "cost": "cost"}

#: Whose figure it is: a system's slug and its configuration.
Key = tuple[str, str]


class CostAxis(NamedTuple):
    """What rows cost, by their place among the rows; the axis's title, where it is from, and other places to look.

    `where` is the publication, machine and dataset of what was not measured here.
    """

    values: Mapping[int, float]
    title: str
    origin: str
    others: Sequence[str] = ()
    where: str = ""


def has_costs(board: Board) -> bool:
    """Whether a dataset's board says what any row needs. A benchmark's does not have all that publications state."""
    keys = [
        column.key
        for column in board.columns
        if column.group.startswith(EFFICIENCY) or column.key == SIZE.key
    ]
    return bool(board.views) or any(row.value(key) for row in board.rows for key in keys)


def build(request: FigureRequest) -> Plot:
    """One point for each system of the view that has a score and a cost from one source and one machine.

    Where no axis is asked for, it is the first that has points.
    """
    board, rows = request.board(), _with_score(request)
    score, y_title = effectiveness(request, board)
    axis = _axis(request)
    costs = _costs(request, board, axis, rows)
    drawn = sorted(costs.values)
    if not drawn:
        return _without_points(axis, costs, y_title)
    shown = [rows[number] for number in drawn]
    names, form = names_of(shown), score_format(shown)
    points = [
        ChartPoint(
            row,
            name,
            costs.values[number],
            y,
            (_score_line(row, y_title, y, form, ends), f"{costs.title}: {format_quantity(x)}"),
            ends,
        )
        for number, row, name in zip(drawn, shown, names, strict=True)
        if (y := value(row, score)) is not None and (x := costs.values[number]) > 0
        for ends in [_interval(request, row)]
    ]
    best = frontier(points, lower=lower_is_better(board))
    without = [row for number, row in enumerate(rows) if number not in costs.values]
    x_axis = log_axis(f"{costs.title}, log scale", [point.x for point in points])
    y_axis = linear_axis(sentence(y_title), [y for point in points for y in (point.y, *(point.ends or ()))])
    baseline = [number for number, point in enumerate(points) if point.row.entry.is_baseline]
    traces, labels = traces_by_architecture(points, first=[*best, *baseline], log_x=True)
    return Plot(
        data=[
            *_frontier_traces(
                [points[number] for number in best], x_axis, y_axis, lower=lower_is_better(board)
            ),
            *_reference(board, [points[number] for number in baseline], x_axis),
            *traces,
        ],
        layout=go.Layout(height=440, xaxis=x_axis, yaxis=y_axis, **labels),
        chosen={"x": axis},
        table=Table(
            ("System", y_title, costs.title, "On the frontier"),
            [
                (point.name, point.y, point.x, "yes" if number in best else "no")
                for number, point in enumerate(points)
            ],
            ("", form, ",.6g", ""),
        ),
        caption=f"{sentence(y_title)} of {titled(board)} against {uncapitalised(costs.title)}, for {len(points)} "
        f"systems; the shaded area is worse and costs more than a system on the line. {costs.origin}",
        subtitle=f"{board.title}, {y_title}; {costs.origin.rstrip('.')}",
        notes=[
            *left_out_note(without, f"without a known {MEASURED[axis][1].lower()} there"),
            *([f"Also known from: {'; '.join(costs.others)}."] if costs.others else []),
        ],
    )


def _without_points(axis: str, costs: CostAxis, y_title: str) -> Plot:
    return Plot.empty(
        f"No system of this view has both a {y_title} and a known {MEASURED[axis][1].lower()}"
        + (f" {uncapitalised(costs.origin)}" if costs.origin else ".")
        + (f" Elsewhere: {'; '.join(costs.others)}." if costs.others else "")
    )


def _axis(request: FigureRequest) -> str:
    """The axis that is asked for, else the first with points on the whole board, whatever its facets leave."""
    if request.asks("x"):
        return request.choice("x")
    whole = request.unfiltered() if request.state.filtered else request
    rows = _with_score(whole)
    known = (axis for axis in MEASURED if _costs(whole, whole.board(), axis, rows).values)
    return next(known, request.choice("x"))


def _interval(request: FigureRequest, row: Row) -> tuple[float, float] | None:
    """The 95% interval of the row's score on a dataset, where one is published."""
    found = row.certainty
    return (found.low, found.high) if request.dataset and found is not None else None


def _score_line(row: Row, title: str, score: float, form: str, ends: tuple[float, float] | None) -> str:
    return f"{title}: {score:{form}}" + (f" ({ends[0]:{form}} to {ends[1]:{form}})" if ends else "")


def _frontier_traces(
    best: Sequence[ChartPoint], x_axis: Mapping[str, Any], y_axis: Mapping[str, Any], *, lower: bool
) -> list[go.Scatter]:
    """The frontier as steps to the right edge, over the area that it dominates."""
    right, worst = 10 ** x_axis["range"][1], y_axis["range"][1 if lower else 0]
    xs, ys = [*(point.x for point in best), right], [*(point.y for point in best), best[-1].y]
    corners = [(x, y) for y, *across in zip(ys, xs, xs[1:], strict=False) for x in across]
    shade = line_trace(
        "dominated",
        [*(x for x, _ in corners), right, xs[0]],
        [*(y for _, y in corners), worst, worst],
        {"width": 0, "color": BLUE},
        fill="toself",
        fillcolor=BLUE,
        opacity=0.08,
        showlegend=False,
    )
    style = {"color": SOFT, "width": 1.5, "dash": "dot", "shape": "hv"}
    return [shade, line_trace("Pareto frontier", xs[:-1], ys[:-1], style)][: len(best)]


def _reference(board: Board, baselines: Sequence[ChartPoint], x_axis: Mapping[str, Any]) -> list[go.Scatter]:
    """A line across at the score of the best baseline, by its own name."""
    if not baselines:
        return []
    best = (min if lower_is_better(board) else max)(baselines, key=lambda point: point.y)
    across = [10**end for end in x_axis["range"]]
    style = {"color": GREY, "width": 1.2, "dash": "dash"}
    return [line_trace(f"{best.name} (baseline)", across, [best.y, best.y], style)]


def _costs(request: FigureRequest, board: Board, axis: str, rows: Sequence[Row]) -> CostAxis:
    """What was measured here where the board, whatever its facets leave, has any, else what one publication states."""
    if axis == "parameters":
        return _sizes(rows)
    key, title = MEASURED[axis]
    stated = _stated(request, axis, title, rows)
    if request.choice("device"):
        return stated
    column, measured = _measured(board, key, rows)
    if not measured and request.state.filtered:
        whole = request.unfiltered().board()
        column, elsewhere = _measured(whole, key, whole.rows)
        column = column if elsewhere else None
    if column is None or not (measured or request.state.filtered):
        return stated
    others = sorted({*stated.others, *([stated.where] if stated.values and stated.where else [])})
    return CostAxis(
        measured,
        _with_unit(title, column.unit),
        f"Measured here {column.group.removeprefix(EFFICIENCY).strip()}.",
        others,
    )


def _measured(board: Board, key: str, rows: Sequence[Row]) -> tuple[Column | None, dict[int, float]]:
    """The board's column of something measured, and what it has by the row's place."""
    column = board.column(key)
    if column is None:
        return None, {}
    return column, {
        number: float(cost)
        for number, row in enumerate(rows)
        if row.ranked_in == SCORED and isinstance(cost := row.value(key), (int, float))
    }


def _sizes(rows: Sequence[Row]) -> CostAxis:
    """Return the models' sizes; reported and scored systems are not put into one picture."""
    counts = [row.value(SIZE.key) for row in rows]
    known = {number: count for number, count in enumerate(counts) if isinstance(count, float) and count > 0}
    _, kind = rows_of_kind([rows[number] for number in known])
    values = {number: count for number, count in known.items() if rows[number].ranked_in == kind}
    origin = "As publications state them." if kind == REPORTED else "Counted here, else as teams state them."
    return CostAxis(values, "Parameters (M)", origin)


def _stated(request: FigureRequest, axis: str, title: str, rows: Sequence[Row]) -> CostAxis:
    if request.dataset:
        datasets, source = [request.dataset_page.dataset["pk"]], None
    else:
        datasets = [member.dataset_id for member in request.benchmark_page.members]
        source = request.benchmark_page.benchmark["source_id"]
    settings = reported_figures(axis, datasets, source)
    reported = _reported(rows)
    scored = _reported(_with_score(request.unfiltered())) if request.state.filtered else reported
    setting, others = select_setting(settings, scored.keys(), reported.keys(), request.choice("device"))
    named = sorted({str(other) for other in others})
    if setting is None:
        return CostAxis({}, title, "", named)
    values = {reported[key]: costs for key, costs in settings[setting].items() if key in reported}
    return CostAxis(
        values, _with_unit(title, setting.unit), f"As reported by {setting}.", named, str(setting)
    )


def _reported(rows: Sequence[Row]) -> dict[Key, int]:
    """The places of the rows that a publication reports."""
    return {
        (row.entry.slug, row.entry.configuration): number
        for number, row in enumerate(rows)
        if row.ranked_in != SCORED
    }


def _with_score(request: FigureRequest) -> list[Row]:
    """The ranked rows of the board that have what the figure means by how good a system is."""
    board = request.board()
    score, _ = effectiveness(request, board)
    return [row for row in present(board) if value(row, score) is not None]


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def frontier(points: Sequence[ChartPoint], *, lower: bool = False) -> list[int]:
    """The places of the points that no other beats: at most their cost, and a better score; by cost."""
    sign = -1 if lower else 1
    order = sorted(range(len(points)), key=lambda number: (points[number].x, -sign * points[number].y))
    return [order[place] for place in running_best([points[number].y for number in order], lower=lower)]


class ParetoSetting(NamedTuple):
    """Where figures that may be compared come from: one dataset, publication, machine and unit."""

    dataset_id: int
    dataset: str
    source: str
    source_key: str
    hardware: str
    unit: str

    def __str__(self) -> str:
        where = f" on {self.hardware}" if self.hardware else ""
        return f"{self.source}{where}, {self.dataset}"


def reported_figures(
    axis: str, datasets: Collection[int], source_id: int | None
) -> dict[ParetoSetting, dict[Key, float]]:
    """The figures for an axis that results on these datasets carry, by setting, without doubtful ones."""
    if axis not in STATED:
        return {}
    names = dict(Dataset.objects.filter(pk__in=datasets).values_list("pk", "name"))
    found = [
        (dataset, row, figure)
        for dataset, rows in present_rows(datasets).items()
        for _, row in rows.results
        if row.provenance == REPORTED and source_id in (None, row.source_id)
        for figure in row.figures
        if figure["name"] == STATED[axis] and not figure.get("doubtful")
    ]
    settings: dict[ParetoSetting, dict[Key, float]] = {}
    for dataset, row, figure in found:
        key, unit = key_of(figure, {figure["name"]}), str(figure.get("unit", ""))
        value = round(float(figure["value"]) * MILLISECONDS.get(unit, 1.0), 6)
        if value > 0:  # no logarithmic axis has a place for others
            setting = ParetoSetting(
                dataset, names[dataset], row.source, row.source_key or "", key.hardware, key.unit
            )
            settings.setdefault(setting, {})[row.slug, row.configuration] = value
    return settings


def select_setting(
    settings: Mapping[ParetoSetting, Mapping[Key, float]], scored: Set[Key], in_view: Set[Key], device: str
) -> tuple[ParetoSetting | None, Sequence[ParetoSetting]]:
    """The setting that has figures of most `scored` rows, on the device wished for, and the others with rows in view.

    `scored` are the rows of the whole board that have a score, as a point needs both. Whichever rows are in view: a
    facet never changes the machine, so that two pictures of a board can be compared.
    """
    wished = [
        setting
        for setting in settings
        if not device or ("GPU" in setting.hardware.upper()) == (device == "gpu")
    ]

    def plotted(setting: ParetoSetting) -> tuple[int, int, str]:
        return len(scored & settings[setting].keys()), len(settings[setting]), str(setting)

    best = max(wished, key=plotted, default=None)
    return best, [
        setting for setting in settings if setting != best and not in_view.isdisjoint(settings[setting])
    ]


PARETO = Figure(
    slug="pareto",
    title="Effectiveness and cost",
    caption="How good each system is against what it needs, and which systems no other beats on both.",
    subjects=("benchmark", "dataset"),
    build=build,
    choices={
        "x": ("Cost", tuple(FigureChoice(axis, title) for axis, (_, title) in MEASURED.items())),
        "device": (
            "Hardware",
            (
                FigureChoice("", "where most systems are known"),
                FigureChoice("cpu", "reported, CPU"),
                FigureChoice("gpu", "reported, GPU"),
            ),
        ),
    },
    drawable=has_costs,
)
