"""Figures of effectiveness against cost (Pareto frontier), and of recall against throughput."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple

from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.reported import figure_key
from leaderboard.boards.model import EFFICIENCY, Board, Column, Row
from leaderboard.core.text.numbers import format_quantity
from leaderboard.figures import drawing
from leaderboard.figures.drawing import (
    BLUE,
    GREY,
    MUTED_INK,
    capitalize_first,
    go,
    linear_axis,
    log_axis,
    lowercase_first,
)
from leaderboard.figures.model import Figure, FigureChoice, FigureRequest, Plot, Table
from leaderboard.models import Dataset, Entry
from leaderboard.results.board_rows.entry_rows import REPORTED, SCORED
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.reported_facts import board_value

#: Board columns and titles by axis.
COST_AXES = {
    "latency": ("mean-latency", "Latency"),
    "index": ("index-bytes", "Index size"),
    "bytes": ("bytes-per-document", "Index size per document"),
    "parameters": (SIZE.key, "Parameters"),
    "cost": ("cost-per-million", "Cost"),
    "flops": ("flops-per-query", "Operations per query"),
    "document-flops": ("flops-per-document", "Operations per document"),
}

#: Names of the axes in publications.
REPORTED_NAMES = {"latency": "latency", "index": "index size", "cost": "cost"}

#: A system's slug and configuration.
Key = tuple[str, str]


class CostAxis(NamedTuple):
    """One source of costs for an axis.

    `values` are by row number, and `origin` describes the source for the caption. `setting` names publication, machine,
    and dataset of costs that Runboard did not measure, and `other_sources` the alternatives.
    """

    values: Mapping[int, float]
    title: str
    origin: str = ""
    other_sources: Sequence[str] = ()
    setting: str = ""


class _ScoredRows:
    """The comparable rows of a board that have a score."""

    def __init__(self, request: FigureRequest) -> None:
        self.request, self.board = request, request.board()
        self.score, self.title = drawing.effectiveness_column(request, self.board)
        self.rows = [row for row in drawing.comparable_rows(self.board) if drawing.value(row, self.score) is not None]

    @cached_property
    def unfiltered(self) -> _ScoredRows:
        return _ScoredRows(self.request.without_filters()) if self.request.state.filtered else self

    @property
    def reported_numbers(self) -> dict[Key, int]:
        """Numbers of the rows that are not ranked as SCORED, by system slug and configuration."""
        return {
            (row.entry.slug, row.entry.configuration): number
            for number, row in enumerate(self.rows)
            if row.ranked_in != SCORED
        }


def has_costs(board: Board) -> bool:
    """Return whether any row of a dataset's board has a cost; always true for a benchmark's board.

    A benchmark's board lacks some of the costs that publications report.
    """
    keys = [column.key for column in board.columns if column.group.startswith(EFFICIENCY) or column.key == SIZE.key]
    return bool(board.views) or any(row.value(key) for row in board.rows for key in keys)


def build(request: FigureRequest) -> Plot:
    """Draw effectiveness against cost, with the Pareto frontier, for each system of the view that has both.

    Costs are from one source and one machine. The default axis is the first one that has points on the whole board,
    regardless of filters.
    """
    scored_rows = _ScoredRows(request)
    axis = request.choice("x")
    if not request.has_choice("x"):
        axis = next((candidate for candidate in COST_AXES if _costs(scored_rows.unfiltered, candidate).values), axis)
    costs = _costs(scored_rows, axis)
    cost_name = COST_AXES[axis][1].lower()
    if not costs.values:
        return Plot.empty(
            f"No system of this view has both a {scored_rows.title} and a known {cost_name}"
            + (f" {lowercase_first(costs.origin)}" if costs.origin else ".")
            + (f" Also available: {'; '.join(costs.other_sources)}." if costs.other_sources else "")
        )
    rows = [scored_rows.rows[number] for number in sorted(costs.values)]
    number_format, points = drawing.score_format(rows), _points(scored_rows, costs)
    lower = drawing.lower_is_better(scored_rows.board)
    frontier_numbers = frontier(points, lower=lower)
    x_axis = log_axis(f"{costs.title}, log scale", [point.x for point in points])
    heights = [y for point in points for y in (point.y, *(point.ends or ()))]
    y_axis = linear_axis(capitalize_first(scored_rows.title), heights)
    baselines = [number for number, point in enumerate(points) if point.row.entry.is_baseline]
    traces, labels = drawing.traces_by_architecture(points, priority=[*frontier_numbers, *baselines], log_x=True)
    frontier_traces = _frontier_traces([points[number] for number in frontier_numbers], x_axis, y_axis, lower=lower)
    reference = _best_line([points[number] for number in baselines], x_axis, lower=lower)
    omitted_rows = [row for number, row in enumerate(scored_rows.rows) if number not in costs.values]
    notes = drawing.omission_note(omitted_rows, f"no {cost_name} on this hardware")
    return Plot(
        data=[*frontier_traces, *reference, *traces],
        layout=go.Layout(height=440, xaxis=x_axis, yaxis=y_axis, **labels),
        chosen={"x": axis},
        table=Table.from_columns(
            ("System", [point.name for point in points]),
            (scored_rows.title, [point.y for point in points], number_format),
            (costs.title, [point.x for point in points], ",.6g"),
            ("On the frontier", ["yes" if number in frontier_numbers else "no" for number in range(len(points))]),
        ),
        caption=f"{capitalize_first(scored_rows.title)} of {drawing.inline_title(scored_rows.board)} against "
        f"{lowercase_first(costs.title)}, for {drawing.count_systems(len(points))}; the shaded area is worse and costs "
        f"more than a system on the line. {costs.origin}",
        subtitle=f"{scored_rows.board.title}, {scored_rows.title}; {costs.origin.rstrip('.')}",
        notes=[*notes, *([f"Also available: {'; '.join(costs.other_sources)}."] if costs.other_sources else [])],
    )


def _points(scored_rows: _ScoredRows, costs: CostAxis) -> list[drawing.ChartPoint]:
    """Return a point for each row with a score and a positive cost, with the 95% interval of a dataset's scores."""
    numbers = sorted(costs.values)
    rows = [scored_rows.rows[number] for number in numbers]
    number_format, points = drawing.score_format(rows), []
    for number, row, name in zip(numbers, rows, drawing.distinct_names(rows), strict=True):
        score, cost, certainty = drawing.value(row, scored_rows.score), costs.values[number], row.certainty
        if score is None or cost <= 0:
            continue
        score_line, ends = f"{scored_rows.title}: {score:{number_format}}", None
        if scored_rows.request.dataset and certainty is not None:
            ends = certainty.low, certainty.high
            score_line += f" ({ends[0]:{number_format}} to {ends[1]:{number_format}})"
        lines = (score_line, f"{costs.title}: {format_quantity(cost)}")
        points.append(drawing.ChartPoint(row, name, cost, score, lines, ends))
    return points


def _frontier_traces(
    best_points: Sequence[drawing.ChartPoint],
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    *,
    lower: bool,
) -> list[go.Scatter]:
    """Return the frontier as steps to the right edge, and the area that it dominates; a single point has only the area.

    `best_points` are its points by increasing cost.
    """
    right_edge, worst_score = 10 ** x_axis["range"][1], y_axis["range"][1 if lower else 0]
    xs, ys = [*(point.x for point in best_points), right_edge], [*(point.y for point in best_points), best_points[-1].y]
    corners = [(x, y) for y, *pair in zip(ys, xs, xs[1:], strict=False) for x in pair]
    corners += [(right_edge, worst_score), (xs[0], worst_score)]
    shade = drawing.area_trace("dominated", corners, BLUE, 0.08, showlegend=False)
    style = {"color": MUTED_INK, "width": 1.5, "dash": "dot", "shape": "hv"}
    return [shade, drawing.line_trace("Pareto frontier", xs[:-1], ys[:-1], style)][: len(best_points)]


def _best_line(baselines: Sequence[drawing.ChartPoint], x_axis: Mapping[str, Any], *, lower: bool) -> list[go.Scatter]:
    """Return a horizontal line at the score of the best baseline, or no line without baselines."""
    if not baselines:
        return []
    best = (min if lower else max)(baselines, key=lambda point: point.y)
    x_range = [10**end for end in x_axis["range"]]
    style = {"color": GREY, "width": 1.2, "dash": "dash"}
    return [drawing.line_trace(f"{best.name} (baseline)", x_range, [best.y, best.y], style)]


def _costs(scored_rows: _ScoredRows, axis: str) -> CostAxis:
    """Return the costs for an axis: measured ones if the unfiltered board has any, otherwise those of one publication.

    A requested device selects reported costs. Sizes of models are not measured on a machine.
    """
    if axis == "parameters":
        return _model_sizes(scored_rows.rows)
    key, title = COST_AXES[axis]
    reported_costs, is_filtered = (
        _reported_costs(scored_rows, axis, title),
        scored_rows.request.state.filtered,
    )
    if scored_rows.request.choice("device"):
        return reported_costs
    column, measured_values = _measured_costs(scored_rows.board, key, scored_rows.rows)
    if not measured_values and is_filtered:
        unfiltered_board = scored_rows.unfiltered.board
        column, unfiltered_values = _measured_costs(unfiltered_board, key, unfiltered_board.rows)
        column = column if unfiltered_values else None
    if column is None or not (measured_values or is_filtered):
        return reported_costs
    other_sources = sorted(
        {
            *reported_costs.other_sources,
            *([reported_costs.setting] if reported_costs.values and reported_costs.setting else []),
        }
    )
    origin = f"Measured here {column.group.removeprefix(EFFICIENCY).strip()}."
    return CostAxis(measured_values, _with_unit(title, column.unit), origin, other_sources)


def _measured_costs(board: Board, key: str, rows: Sequence[Row]) -> tuple[Column | None, dict[int, float]]:
    """Return the board's column of a measured quantity, or None, and the scored rows' values by row number."""
    column = board.column(key)
    if column is None:
        return None, {}
    return column, {
        number: float(cost)
        for number, row in enumerate(rows)
        if row.ranked_in == SCORED and isinstance(cost := row.value(key), (int, float))
    }


def _model_sizes(rows: Sequence[Row]) -> CostAxis:
    """Return the models' numbers of parameters by row number, of reported or of scored systems only."""
    counts = [row.value(SIZE.key) for row in rows]
    sizes = {number: count for number, count in enumerate(counts) if isinstance(count, float) and count > 0}
    _, kind = drawing.majority_kind([rows[number] for number in sizes])
    values = {number: count for number, count in sizes.items() if rows[number].ranked_in == kind}
    origin = "Reported by publications." if kind == REPORTED else "Counted by Runboard, else as stated by teams."
    return CostAxis(values, "Parameters (M)", origin)


def _reported_costs(scored_rows: _ScoredRows, axis: str, title: str) -> CostAxis:
    """Return the rows' costs as reported for the setting that fits most rows of the unfiltered board.

    A benchmark uses only the publication that is its source, if it has one.
    """
    request, source = scored_rows.request, None
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = [member.dataset_id for member in request.benchmark_page.members]
        source = request.benchmark_page.benchmark["source_id"]
    settings = reported_figures(axis, datasets, source)
    numbers, all_numbers = scored_rows.reported_numbers, scored_rows.unfiltered.reported_numbers
    setting, other_settings = select_setting(settings, all_numbers.keys(), numbers.keys(), request.choice("device"))
    setting_names = sorted({str(alternative) for alternative in other_settings})
    if setting is None:
        return CostAxis({}, title, other_sources=setting_names)
    values = {numbers[key]: costs for key, costs in settings[setting].items() if key in numbers}
    return CostAxis(values, _with_unit(title, setting.unit), f"Reported by {setting}.", setting_names, str(setting))


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def frontier(points: Sequence[drawing.ChartPoint], *, lower: bool = False) -> list[int]:
    """Return the numbers of the points that no other dominates, by increasing cost.

    `lower` means that lower scores are better.
    """
    sign = -1 if lower else 1
    order = sorted(range(len(points)), key=lambda number: (points[number].x, -sign * points[number].y))
    return [order[position] for position in drawing.running_best([points[number].y for number in order], lower=lower)]


class ParetoSetting(NamedTuple):
    """Source of comparable costs: one dataset, publication, machine, and unit."""

    dataset_id: int
    dataset: str
    source: str
    source_key: str
    hardware: str
    unit: str

    def __str__(self) -> str:
        suffix = f" on {self.hardware}" if self.hardware else ""
        return f"{self.source}{suffix}, {self.dataset}"


def reported_figures(
    axis: str, datasets: Collection[int], source_id: int | None
) -> dict[ParetoSetting, dict[Key, float]]:
    """Return the reported costs for an axis on these datasets, by setting and then by row.

    Doubtful figures are excluded. `source_id` restricts them to one publication.
    """
    if axis not in REPORTED_NAMES:
        return {}
    names = dict(Dataset.objects.filter(pk__in=datasets).values_list("pk", "name"))
    settings: dict[ParetoSetting, dict[Key, float]] = {}
    for dataset, rows in present_rows(datasets).items():
        for _, row in rows.results:
            if row.provenance != REPORTED or source_id not in (None, row.source_id):
                continue
            for figure in row.figures:
                if figure["name"] != REPORTED_NAMES[axis] or figure.get("doubtful"):
                    continue
                key, (cost, _) = figure_key(figure, {figure["name"]}), board_value(figure)
                if cost > 0:  # A logarithmic axis cannot show zero.
                    facts = names[dataset], row.source, row.source_key or "", key.hardware, key.unit
                    setting = ParetoSetting(dataset, *facts)
                    settings.setdefault(setting, {})[row.slug, row.configuration] = cost
    return settings


def select_setting(
    settings: Mapping[ParetoSetting, Mapping[Key, float]],
    scored_keys: Set[Key],
    visible_keys: Set[Key],
    device: str,
) -> tuple[ParetoSetting | None, Sequence[ParetoSetting]]:
    """Return the setting with costs of most `scored_keys`, and the other settings with rows in view.

    The first is None without a setting on the requested device, `cpu`, `gpu`, or empty for any. `scored_keys` are the
    rows of the unfiltered board that have a score, because a point needs both. The choice does not depend on
    `visible_keys`, the rows in view: filters never change the machine, so that two pictures of a board are comparable.
    """
    candidates = [
        setting for setting in settings if not device or ("GPU" in setting.hardware.upper()) == (device == "gpu")
    ]

    def priority(setting: ParetoSetting) -> tuple[int, int, str]:
        return len(scored_keys & settings[setting].keys()), len(settings[setting]), str(setting)

    best = max(candidates, key=priority, default=None)
    return best, [setting for setting in settings if setting != best and not visible_keys.isdisjoint(settings[setting])]


PARETO = Figure(
    slug="pareto",
    title="Effectiveness and cost",
    caption="Effectiveness against cost, with the Pareto frontier.",
    subjects=("benchmark", "dataset"),
    build=build,
    choices={
        "x": ("Cost", tuple(FigureChoice(axis, title) for axis, (_, title) in COST_AXES.items())),
        "device": (
            "Hardware",
            (
                FigureChoice("", "with data for most systems"),
                FigureChoice("cpu", "reported, CPU"),
                FigureChoice("gpu", "reported, GPU"),
            ),
        ),
    },
    drawable=has_costs,
)


RECALL, SPEED = "Recall of the exact top 100", "Queries per second"


def _recalls(entries: Sequence[int]) -> dict[int, float]:
    """Return the recall of entries with an approximate index against exact search, by entry id. One database query."""
    entries_with_recall = Entry.objects.filter(pk__in=entries, facts__recall_against_exact__isnull=False)
    return {pk: float(facts["recall_against_exact"]) for pk, facts in entries_with_recall.values_list("pk", "facts")}


def _timed_entries(board: Board) -> list[int]:
    return [
        row.entry.pk for row in drawing.comparable_rows(board) if _speed(row) and row.entry.architecture != "lexical"
    ]


def _speed(row: Row) -> float:
    """Return the queries per second of a row, 0 if they were not measured or are doubtful."""
    if row.measured is None or row.measured.doubt:
        return 0.0
    return row.measured.figures["queries_per_second"] or 0.0


def build_throughput(request: FigureRequest) -> Plot:
    """Draw recall against queries per second of each system with a timed approximate index.

    Speeds are those measured on the board's machine.
    """
    board = request.board()
    recalls = _recalls(_timed_entries(board))
    rows = [row for row in drawing.comparable_rows(board) if row.entry.pk in recalls and _speed(row)]
    speeds = [_speed(row) for row in rows]
    if not rows:
        return Plot.empty("No system of this view has an approximate index whose searches were timed.")
    points = [
        drawing.ChartPoint(row, name, recall, speed, (f"{RECALL}: {recall:.4f}", f"{SPEED}: {speed:,.4g}"))
        for row, name, speed in zip(rows, drawing.distinct_names(rows), speeds, strict=True)
        for recall in [recalls[row.entry.pk]]
    ]
    traces, labels = drawing.traces_by_architecture(points)
    x_axis, y_axis = (
        linear_axis(RECALL, [point.x for point in points]),
        log_axis(f"{SPEED}, log scale", speeds),
    )
    return Plot(
        data=traces,
        layout=go.Layout(height=400, xaxis=x_axis, yaxis=y_axis, **labels),
        table=drawing.points_table(points, (RECALL, ".4f"), (SPEED, ",.4g")),
        caption=f"Approximate indexes on {drawing.inline_title(board)}: recall of exact search against throughput. "
        f"{board.cost_group or 'All were timed on one machine'}.",
        subtitle=board.title,
    )


THROUGHPUT = Figure(
    slug="approximate-search",
    title="Approximate search",
    caption="Recall of approximate indexes (HNSW, IVF, PQ) against exact search, and their queries per second.",
    subjects=("dataset",),
    build=build_throughput,
    has_data=lambda board, datasets: len(_recalls(_timed_entries(board))) > 1,
)
