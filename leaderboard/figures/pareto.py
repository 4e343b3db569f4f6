"""Figures of effectiveness against cost (Pareto frontier, area by model size)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from leaderboard.boards.columns.about import FILE_SIZE, SIZE
from leaderboard.boards.columns.reported import figure_key
from leaderboard.boards.model import EFFICIENCY, Board, Column, Row
from leaderboard.core.text.numbers import format_quantity
from leaderboard.figures import drawing
from leaderboard.figures.drawing import capitalize_first, go, linear_axis, log_axis, lowercase_first
from leaderboard.figures.model import Figure, FigureChoice, FigureRequest, Plot, Table
from leaderboard.models import Dataset
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
    "searches": ("SearchCalls", "Search calls per query"),
    "price": ("Cost", "US dollars per query"),
}
#: Axes of figures that answer runs state.
STATED_AXES = ("searches", "price")

#: Unit of times on the axis of latency, for which the title states a finding.
TIMED = "Latency (ms)"
#: Diameter of the largest model's mark in pixels, of marks without a size, and the minimum for known sizes.
MAX_MARK, SMALL_MARK, MIN_MARK = 36.0, 7.0, 9.0
#: Bytes of a parameter in a model whose files are unknown.
BYTES_PER_PARAMETER = 4

#: Names of the axes in publications.
REPORTED_NAMES = {"latency": "latency", "index": "index size", "cost": "cost"}

#: Source of costs in the headers of runs.
SELF_REPORTED_SOURCE = "teams in their runs"

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

    def row_numbers(self, *, reported: bool) -> dict[Key, int]:
        """Return the numbers of the reported rows, or of the others, by system slug and configuration."""
        return {
            (row.entry.slug, row.entry.configuration): number
            for number, row in enumerate(self.rows)
            if (row.entry.provenance == REPORTED) == reported
        }


def has_costs(board: Board) -> bool:
    """Return whether enough rows of a dataset's board have a common cost, or any comparable row of a benchmark has one.

    A benchmark's board lacks some of the costs that publications report.
    """
    other_keys = {SIZE.key, *(COST_AXES[axis][0] for axis in STATED_AXES)}
    keys = [column.key for column in board.columns if column.group.startswith(EFFICIENCY) or column.key in other_keys]
    rows = drawing.comparable_rows(board)
    counts = (len(drawing.majority_kind([row for row in rows if row.value(key)])[0]) for key in keys)
    return max(counts, default=0) >= (1 if board.views else drawing.MIN_SYSTEMS)


def build(request: FigureRequest) -> Plot:
    """Draw effectiveness against cost, with the Pareto frontier, for each system of the view that has both.

    The area of a mark is the size of the model, if it is known for any system.

    Costs are from one source and one machine. The default axis is the first one with enough points on the whole board,
    regardless of filters, or else the one with most points.
    """
    scored_rows = _ScoredRows(request)
    axis = request.choice("x")
    if not request.has_choice("x"):
        counts = {candidate: len(_costs(scored_rows.unfiltered, candidate).values) for candidate in COST_AXES}
        best_axis = max(counts, key=lambda candidate: counts[candidate])
        axis = next((candidate for candidate in COST_AXES if counts[candidate] >= drawing.MIN_SYSTEMS), best_axis)
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
    baselines = [point for point in points if point.row.entry.is_baseline]
    pins = [number for number, point in enumerate(points) if point.row.entry.slug in request.state.pins]
    label_order = [*pins, *reversed(frontier_numbers)]
    traces, labels = drawing.traces_by_architecture(points, label_order, line=frontier_numbers, log_x=True)
    frontier_traces = _frontier_traces([points[number] for number in frontier_numbers], x_axis, y_axis, lower=lower)
    sizes = [model_size(point.row) for point in points]
    drawn_systems = {row.entry.slug for row in rows}
    omitted_rows = [row for row in scored_rows.rows if row.entry.slug not in drawn_systems]
    setting = "" if axis in ("parameters", *STATED_AXES) else " on this hardware"
    notes = drawing.omission_note(omitted_rows, f"no reliable {cost_name}{setting}")
    return Plot(
        data=[*frontier_traces, *_best_line(baselines, x_axis, lower=lower), *traces],
        layout=go.Layout(height=440, xaxis=x_axis, yaxis=y_axis, legend_itemsizing="constant", **labels),
        chosen={"x": axis},
        table=Table.from_columns(
            ("System", [point.name for point in points]),
            (scored_rows.title, [point.y for point in points], number_format),
            (costs.title, [point.x for point in points], ",.6g"),
            ("On the frontier", ["yes" if number in frontier_numbers else "no" for number in range(len(points))]),
            ("Model size", [size.text for size in sizes]),
            ("Provenance", [str(point.row.value("provenance") or "") or None for point in points]),
        ),
        caption=f"{capitalize_first(scored_rows.title)} of {drawing.inline_title(scored_rows.board)} against "
        f"{lowercase_first(costs.title)}, for {drawing.count_systems(len(points))}; the shaded area is worse and costs "
        "more than a system on the line. Only systems on the line and pinned ones have names. "
        f"{costs.origin}{_describe_sizes(sizes)}",
        subtitle=f"{scored_rows.board.title}, {scored_rows.title}; {costs.origin.rstrip('.')}",
        notes=[*notes, *([f"Also available: {'; '.join(costs.other_sources)}."] if costs.other_sources else [])],
        finding=_finding(points, frontier_numbers) if costs.title == TIMED else "",
    )


def _finding(points: Sequence[drawing.ChartPoint], frontier_numbers: Sequence[int]) -> str:
    """Return a sentence about the best system, empty for fewer than three systems or if several are equally good.

    Scores are compared without tests. `frontier_numbers` are the systems on the frontier by increasing latency.
    """
    best = points[frontier_numbers[-1]]
    if len(points) < 3:
        return ""
    if len(frontier_numbers) == 1:
        return _("None of these %(count)d systems is better or faster than %(name)s") % {
            "name": best.name,
            "count": len(points),
        }
    limits = [factor * 10.0**power for power in range(-3, 7) for factor in (1, 2, 5)]
    for limit in sorted((limit for limit in limits if limit <= best.x), reverse=True):
        faster = [point for point in points if point.x < limit]
        leaders = [points[number] for number in frontier_numbers if points[number].x < limit][-1:]
        if len(faster) > 1 and sum(point.y == leaders[0].y for point in faster) == 1:
            facts = {"name": leaders[0].name, "limit": f"{limit:,g}", "count": len(points)}
            return _("%(name)s scores best under %(limit)s ms among these %(count)d systems") % facts
    return ""


class ModelSize(NamedTuple):
    """Size of a model in megabytes (None if unknown), which may be an estimate from the number of parameters."""

    megabytes: float | None
    is_estimated: bool = False

    @property
    def text(self) -> str | None:
        """Size as text, `≈ 440 MB` if estimated, or None."""
        if self.megabytes is None:
            return None
        size, unit = (self.megabytes / 1000, "GB") if self.megabytes >= 1000 else (self.megabytes, "MB")
        return f"{'≈ ' if self.is_estimated else ''}{format_quantity(size, 2 if unit == 'GB' else 3)} {unit}"


def model_size(row: Row) -> ModelSize:
    """Return the size of a row's model: of its files, or estimated from its parameters in single precision."""
    files, parameters = row.value(FILE_SIZE.key), row.value(SIZE.key)
    if isinstance(files, (int, float)):
        return ModelSize(files)
    if not isinstance(parameters, (int, float)):
        return ModelSize(None)
    return ModelSize(parameters * BYTES_PER_PARAMETER, is_estimated=parameters > 0)


def _describe_sizes(sizes: Sequence[ModelSize]) -> str:
    """Return sentences that explain the areas of marks, empty if no model with parameters has a known size."""
    largest = max(sizes, key=lambda size: size.megabytes or 0.0)
    if not largest.megabytes:
        return ""
    sentences = [_("The area of a mark is the size of the model; the largest has %(size)s.") % {"size": largest.text}]
    if any(size.is_estimated for size in sizes):
        sentences.append(_("A dot in a hollow mark: the size is estimated, 4 bytes per parameter."))
    if any(size.megabytes is None for size in sizes):
        sentences.append(_("Small hollow marks: the size is unknown."))
    return "".join(f" {sentence}" for sentence in sentences)


def _points(scored_rows: _ScoredRows, costs: CostAxis) -> list[drawing.ChartPoint]:
    """Return a point for each row with a score and a positive cost, with the 95% interval of a dataset's scores."""
    numbers = sorted(costs.values)
    rows = [scored_rows.rows[number] for number in numbers]
    number_format, points = drawing.score_format(rows), []
    max_size = max((model_size(row).megabytes or 0.0 for row in rows), default=0.0)
    for number, row, name in zip(numbers, rows, drawing.distinct_names(rows), strict=True):
        score, cost, certainty = drawing.value(row, scored_rows.score), costs.values[number], row.certainty
        if score is None or cost <= 0:
            continue
        score_line, ends = f"{scored_rows.title}: {score:{number_format}}", None
        if scored_rows.request.dataset and certainty is not None:
            ends = certainty.low, certainty.high
            score_line += f" ({ends[0]:{number_format}} to {ends[1]:{number_format}})"
        lines = (
            score_line,
            f"{costs.title}: {format_quantity(cost)}",
            f"Model size: {model_size(row).text or 'unknown'}",
        )
        point = drawing.ChartPoint(row, name, cost, score, lines, ends)
        points.append(_sized(point, max_size) if max_size else point)
    return points


def _sized(point: drawing.ChartPoint, max_size: float) -> drawing.ChartPoint:
    """Return the point with a mark whose area shows the model's size relative to `max_size` megabytes."""
    size = model_size(point.row)
    if size.megabytes is None:
        return point._replace(size=SMALL_MARK, variant="-open")
    diameter = max(MIN_MARK, round(MAX_MARK * math.sqrt(size.megabytes / max_size), 1))
    return point._replace(size=diameter, variant="-open-dot" if size.is_estimated else "")


def _frontier_traces(
    best_points: Sequence[drawing.ChartPoint], x_axis: Mapping[str, Any], y_axis: Mapping[str, Any], *, lower: bool
) -> list[go.Scatter]:
    """Return the frontier as steps to the right edge, and the area that it dominates; a single point has only the area.

    `best_points` are its points by increasing cost.
    """
    right_edge, worst_score = 10 ** x_axis["range"][1], y_axis["range"][1 if lower else 0]
    xs, ys = [*(point.x for point in best_points), right_edge], [*(point.y for point in best_points), best_points[-1].y]
    corners = [(x, y) for y, *pair in zip(ys, xs, xs[1:], strict=False) for x in pair]
    corners += [(right_edge, worst_score), (xs[0], worst_score)]
    shade = drawing.area_trace("dominated", corners, drawing.BLUE, 0.08, showlegend=False)
    style = {"color": drawing.MUTED_INK, "width": 1.5, "shape": "hv"}
    return [shade, drawing.line_trace("Pareto frontier", xs[:-1], ys[:-1], style)][: len(best_points)]


def _best_line(baselines: Sequence[drawing.ChartPoint], x_axis: Mapping[str, Any], *, lower: bool) -> list[go.Scatter]:
    """Return a horizontal line at the score of the best baseline, or no line without baselines."""
    if not baselines:
        return []
    best = (min if lower else max)(baselines, key=lambda point: point.y)
    x_range = [10**end for end in x_axis["range"]]
    style = {"color": drawing.GREY, "width": 1.2, "dash": "5px,4px"}
    return [drawing.line_trace(f"{best.name} (baseline)", x_range, [best.y, best.y], style)]


def _costs(scored_rows: _ScoredRows, axis: str) -> CostAxis:
    """Return the costs for an axis: measured ones if the unfiltered board has any, otherwise those of one publication.

    A requested device selects reported costs. Sizes of models are not measured on a machine.
    """
    if axis == "parameters":
        return _model_sizes(scored_rows.rows)
    key, title = COST_AXES[axis]
    if axis in STATED_AXES:
        return CostAxis(_measured_costs(scored_rows, key)[1], title, "Stated in the runs.")
    reported_costs = _reported_costs(scored_rows, axis, title)
    if scored_rows.request.choice("device"):
        return reported_costs
    column, measured_values = _measured_costs(scored_rows, key)
    if not measured_values:
        column, unfiltered_values = _measured_costs(scored_rows.unfiltered, key)
        column = column if unfiltered_values else None
    if column is None:
        return reported_costs
    other_sources = sorted({*reported_costs.other_sources, *filter(None, [reported_costs.setting])})
    origin = f"Measured by Runboard {column.group.removeprefix(EFFICIENCY).strip()}."
    return CostAxis(measured_values, _with_unit(title, column.unit), origin, other_sources)


def _measured_costs(scored_rows: _ScoredRows, key: str) -> tuple[Column | None, dict[int, float]]:
    """Return the board's column of a measured quantity, or None, and the scored rows' values by row number."""
    column = scored_rows.board.column(key)
    if column is None:
        return None, {}
    return column, {
        number: float(cost)
        for number, row in enumerate(scored_rows.rows)
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

    A point needs both a score and a cost. Filters never change the setting, so that two pictures of a board are
    comparable. A requested device selects among the settings. A benchmark uses only the publication that is its source,
    if it has one, and the costs stated by teams in their runs.
    """
    request, source, device = scored_rows.request, None, scored_rows.request.choice("device")
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = [member.dataset_id for member in request.benchmark_page.members]
        source = request.benchmark_page.benchmark["source_id"]
    settings = reported_figures(axis, datasets, source)
    numbers = {reported: scored_rows.row_numbers(reported=reported) for reported in (True, False)}
    all_keys = {reported: scored_rows.unfiltered.row_numbers(reported=reported).keys() for reported in (True, False)}

    def priority(setting: ParetoSetting) -> tuple[int, int, str]:
        costs = settings[setting]
        return len(all_keys[setting.by_publication] & costs.keys()), len(costs), str(setting)

    candidates = [each for each in settings if not device or ("GPU" in each.hardware.upper()) == (device == "gpu")]
    setting = max(candidates, key=priority, default=None)
    own_numbers = {each: numbers[each.by_publication] for each in settings}
    visible_settings = [each for each, costs in settings.items() if own_numbers[each].keys() & costs.keys()]
    setting_names = sorted({str(each) for each in visible_settings if each != setting})
    if setting is None:
        return CostAxis({}, title, other_sources=setting_names)
    values = {own_numbers[setting][key]: cost for key, cost in settings[setting].items() if key in own_numbers[setting]}
    name = str(setting) if values else ""
    unit = setting.unit if setting.by_publication else f"{setting.unit}, self-reported"
    return CostAxis(values, _with_unit(title, unit), f"Reported by {setting}.", setting_names, name)


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
    """Source of comparable costs: one dataset, publication, machine, and unit.

    Costs that are not `by_publication` are self-reported in the headers of runs.
    """

    dataset_id: int
    dataset: str
    source: str
    source_key: str
    hardware: str
    unit: str
    by_publication: bool = True

    def __str__(self) -> str:
        suffix = f" on {self.hardware}" if self.hardware else ""
        return f"{self.source}{suffix}, {self.dataset}"


def reported_figures(
    axis: str, datasets: Collection[int], source_id: int | None
) -> dict[ParetoSetting, dict[Key, float]]:
    """Return the reported costs for an axis on these datasets, by setting and then by row.

    Doubtful figures are excluded. `source_id` restricts those of publications to one publication.
    """
    if axis not in REPORTED_NAMES:
        return {}
    names = dict(Dataset.objects.filter(pk__in=datasets).values_list("pk", "name"))
    settings: dict[ParetoSetting, dict[Key, float]] = {}
    for dataset, rows in present_rows(datasets).items():
        for _entry, row in rows.results:
            by_publication = row.provenance == REPORTED
            if by_publication and source_id not in (None, row.source_id):
                continue
            for figure in row.figures:
                if figure["name"] != REPORTED_NAMES[axis] or figure.get("doubtful"):
                    continue
                key, (cost, _) = figure_key(figure, {figure["name"]}), board_value(figure)
                if cost > 0:  # A logarithmic axis cannot show zero.
                    source = row.source if by_publication else SELF_REPORTED_SOURCE
                    facts = names[dataset], source, row.source_key or "", key.hardware, key.unit
                    setting = ParetoSetting(dataset, *facts, by_publication)
                    settings.setdefault(setting, {})[row.slug, row.configuration] = cost
    return settings


PARETO = Figure(
    slug="pareto",
    title="Which systems are best for their cost?",
    caption="Effectiveness against cost, with the Pareto frontier; the area of a mark is the size of the model.",
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
