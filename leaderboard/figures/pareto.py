"""Effectiveness against what it costs, with the Pareto frontier, and approximate search: recall against throughput."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple

from leaderboard.boards.columns.about import SIZE
from leaderboard.boards.columns.costs import MILLISECONDS, key_of
from leaderboard.boards.model import EFFICIENCY, Board, Column, Row
from leaderboard.core.text.numbers import format_quantity
from leaderboard.figures import drawing
from leaderboard.figures.drawing import BLUE, GREY, SOFT, go, linear_axis, log_axis, sentence, uncapitalised
from leaderboard.figures.model import Figure, FigureChoice, FigureRequest, Plot, Table
from leaderboard.models import Dataset, Entry
from leaderboard.results.board_rows.entry_rows import REPORTED, SCORED
from leaderboard.results.board_rows.rows import present_rows

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

#: A system's slug and its configuration.
Key = tuple[str, str]


class CostAxis(NamedTuple):
    """Costs of rows by their place, the axis's title, where the costs are from, and other places to look.

    `where` is the publication, machine and dataset of costs that were not measured here.
    """

    values: Mapping[int, float]
    title: str
    origin: str = ""
    others: Sequence[str] = ()
    where: str = ""


class _ScoredRows:
    """The ranked rows of a board that have a score."""

    def __init__(self, request: FigureRequest) -> None:
        self.request, self.board = request, request.board()
        self.score, self.title = drawing.effectiveness(request, self.board)
        self.rows = [row for row in drawing.present(self.board) if drawing.value(row, self.score) is not None]

    @cached_property
    def whole(self) -> _ScoredRows:
        """The rows of the board without its facets."""
        return _ScoredRows(self.request.unfiltered()) if self.request.state.filtered else self

    @property
    def reported(self) -> dict[Key, int]:
        """The places of the rows that a publication reports."""
        return {
            (row.entry.slug, row.entry.configuration): number
            for number, row in enumerate(self.rows)
            if row.ranked_in != SCORED
        }


def has_costs(board: Board) -> bool:
    """Whether a dataset's board says what any row needs. A benchmark's does not have all that publications state."""
    keys = [
        column.key
        for column in board.columns
        if column.group.startswith(EFFICIENCY) or column.key == SIZE.key
    ]
    return bool(board.views) or any(row.value(key) for row in board.rows for key in keys)


def build(request: FigureRequest) -> Plot:
    """Draw one point for each system of the view that has a score and a cost from one source and one machine.

    Where no axis is asked for, it is the first that has points on the whole board, whatever its facets leave.
    """
    scored = _ScoredRows(request)
    axis = request.choice("x")
    if not request.asks("x"):
        axis = next((each for each in MEASURED if _costs(scored.whole, each).values), axis)
    costs = _costs(scored, axis)
    cost_name = MEASURED[axis][1].lower()
    if not costs.values:
        return Plot.empty(
            f"No system of this view has both a {scored.title} and a known {cost_name}"
            + (f" {uncapitalised(costs.origin)}" if costs.origin else ".")
            + (f" Elsewhere: {'; '.join(costs.others)}." if costs.others else "")
        )
    rows = [scored.rows[number] for number in sorted(costs.values)]
    form, points = drawing.score_format(rows), _points(scored, costs)
    lower = drawing.lower_is_better(scored.board)
    best = frontier(points, lower=lower)
    x_axis = log_axis(f"{costs.title}, log scale", [point.x for point in points])
    heights = [y for point in points for y in (point.y, *(point.ends or ()))]
    y_axis = linear_axis(sentence(scored.title), heights)
    baselines = [number for number, point in enumerate(points) if point.row.entry.is_baseline]
    traces, labels = drawing.traces_by_architecture(points, first=[*best, *baselines], log_x=True)
    frontier_traces = _frontier_traces([points[number] for number in best], x_axis, y_axis, lower=lower)
    reference = _reference([points[number] for number in baselines], x_axis, lower=lower)
    without = [row for number, row in enumerate(scored.rows) if number not in costs.values]
    notes = drawing.left_out_note(without, f"without a known {cost_name} there")
    return Plot(
        data=[*frontier_traces, *reference, *traces],
        layout=go.Layout(height=440, xaxis=x_axis, yaxis=y_axis, **labels),
        chosen={"x": axis},
        table=Table.of(
            ("System", [point.name for point in points]),
            (scored.title, [point.y for point in points], form),
            (costs.title, [point.x for point in points], ",.6g"),
            ("On the frontier", ["yes" if number in best else "no" for number in range(len(points))]),
        ),
        caption=f"{sentence(scored.title)} of {drawing.titled(scored.board)} against {uncapitalised(costs.title)}, "
        f"for {len(points)} systems; the shaded area is worse and costs more than a system on the line. "
        f"{costs.origin}",
        subtitle=f"{scored.board.title}, {scored.title}; {costs.origin.rstrip('.')}",
        notes=[*notes, *([f"Also known from: {'; '.join(costs.others)}."] if costs.others else [])],
    )


def _points(scored: _ScoredRows, costs: CostAxis) -> list[drawing.ChartPoint]:
    """Return the points, with the published 95% intervals of scores on a dataset."""
    drawn = {number: scored.rows[number] for number in sorted(costs.values)}
    form, points = drawing.score_format(list(drawn.values())), []
    for (number, row), name in zip(drawn.items(), drawing.names_of(list(drawn.values())), strict=True):
        score, cost, certainty = drawing.value(row, scored.score), costs.values[number], row.certainty
        if score is None or cost <= 0:
            continue
        score_line, ends = f"{scored.title}: {score:{form}}", None
        if scored.request.dataset and certainty is not None:
            ends = certainty.low, certainty.high
            score_line += f" ({ends[0]:{form}} to {ends[1]:{form}})"
        lines = (score_line, f"{costs.title}: {format_quantity(cost)}")
        points.append(drawing.ChartPoint(row, name, cost, score, lines, ends))
    return points


def _frontier_traces(
    best: Sequence[drawing.ChartPoint],
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    *,
    lower: bool,
) -> list[go.Scatter]:
    """The frontier as steps to the right edge, over the area that it dominates."""
    right, worst = 10 ** x_axis["range"][1], y_axis["range"][1 if lower else 0]
    xs, ys = [*(point.x for point in best), right], [*(point.y for point in best), best[-1].y]
    corners = [(x, y) for y, *across in zip(ys, xs, xs[1:], strict=False) for x in across]
    corners += [(right, worst), (xs[0], worst)]
    shade = drawing.area_trace("dominated", corners, BLUE, 0.08, showlegend=False)
    style = {"color": SOFT, "width": 1.5, "dash": "dot", "shape": "hv"}
    return [shade, drawing.line_trace("Pareto frontier", xs[:-1], ys[:-1], style)][: len(best)]


def _reference(
    baselines: Sequence[drawing.ChartPoint], x_axis: Mapping[str, Any], *, lower: bool
) -> list[go.Scatter]:
    """A line across at the score of the best baseline, by its own name."""
    if not baselines:
        return []
    best = (min if lower else max)(baselines, key=lambda point: point.y)
    across = [10**end for end in x_axis["range"]]
    style = {"color": GREY, "width": 1.2, "dash": "dash"}
    return [drawing.line_trace(f"{best.name} (baseline)", across, [best.y, best.y], style)]


def _costs(scored: _ScoredRows, axis: str) -> CostAxis:
    """Return costs measured here if the board, whatever its facets leave, has any, else those of one publication."""
    if axis == "parameters":
        return _sizes(scored.rows)
    key, title = MEASURED[axis]
    stated, filtered = _stated(scored, axis, title), scored.request.state.filtered
    if scored.request.choice("device"):
        return stated
    column, measured = _measured(scored.board, key, scored.rows)
    if not measured and filtered:
        whole = scored.whole.board
        column, elsewhere = _measured(whole, key, whole.rows)
        column = column if elsewhere else None
    if column is None or not (measured or filtered):
        return stated
    others = sorted({*stated.others, *([stated.where] if stated.values and stated.where else [])})
    origin = f"Measured here {column.group.removeprefix(EFFICIENCY).strip()}."
    return CostAxis(measured, _with_unit(title, column.unit), origin, others)


def _measured(board: Board, key: str, rows: Sequence[Row]) -> tuple[Column | None, dict[int, float]]:
    """Return the board's column of something measured, and its values by the rows' places."""
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
    _, kind = drawing.rows_of_kind([rows[number] for number in known])
    values = {number: count for number, count in known.items() if rows[number].ranked_in == kind}
    origin = "As publications state them." if kind == REPORTED else "Counted here, else as teams state them."
    return CostAxis(values, "Parameters (M)", origin)


def _stated(scored: _ScoredRows, axis: str, title: str) -> CostAxis:
    request, source = scored.request, None
    if request.dataset:
        datasets = [request.dataset_page.dataset["pk"]]
    else:
        datasets = [member.dataset_id for member in request.benchmark_page.members]
        source = request.benchmark_page.benchmark["source_id"]
    settings = reported_figures(axis, datasets, source)
    reported, known = scored.reported, scored.whole.reported
    setting, others = select_setting(settings, known.keys(), reported.keys(), request.choice("device"))
    named = sorted({str(other) for other in others})
    if setting is None:
        return CostAxis({}, title, others=named)
    values = {reported[key]: costs for key, costs in settings[setting].items() if key in reported}
    return CostAxis(
        values, _with_unit(title, setting.unit), f"As reported by {setting}.", named, str(setting)
    )


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def frontier(points: Sequence[drawing.ChartPoint], *, lower: bool = False) -> list[int]:
    """The places of the points that no other beats: at most their cost, and a better score; by cost."""
    sign = -1 if lower else 1
    order = sorted(range(len(points)), key=lambda number: (points[number].x, -sign * points[number].y))
    return [
        order[place] for place in drawing.running_best([points[number].y for number in order], lower=lower)
    ]


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
    settings: dict[ParetoSetting, dict[Key, float]] = {}
    for dataset, rows in present_rows(datasets).items():
        for _, row in rows.results:
            if row.provenance != REPORTED or source_id not in (None, row.source_id):
                continue
            for figure in row.figures:
                if figure["name"] != STATED[axis] or figure.get("doubtful"):
                    continue
                key, unit = key_of(figure, {figure["name"]}), str(figure.get("unit", ""))
                cost = round(float(figure["value"]) * MILLISECONDS.get(unit, 1.0), 6)
                if cost > 0:  # no logarithmic axis has a place for others
                    place = names[dataset], row.source, row.source_key or "", key.hardware, key.unit
                    setting = ParetoSetting(dataset, *place)
                    settings.setdefault(setting, {})[row.slug, row.configuration] = cost
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


RECALL, SPEED = "Recall of the exact top 100", "Queries per second"


def _recalls(entries: Sequence[int]) -> dict[int, float]:
    """By entry what its approximate index finds of the exact results. One query."""
    found = Entry.objects.filter(pk__in=entries, facts__recall_against_exact__isnull=False)
    return {pk: float(facts["recall_against_exact"]) for pk, facts in found.values_list("pk", "facts")}


def _timed(board: Board) -> list[int]:
    return [
        row.entry.pk for row in drawing.present(board) if _speed(row) and row.entry.architecture != "lexical"
    ]


def _speed(row: Row) -> float:
    """Return the queries per second of a row, 0 if they were not measured or are doubtful."""
    if row.measured is None or row.measured.doubt:
        return 0.0
    return row.measured.figures["queries_per_second"] or 0.0


def build_throughput(request: FigureRequest) -> Plot:
    """A point for each system with an approximate index whose searches were timed on the board's machine."""
    board = request.board()
    recalls = _recalls(_timed(board))
    rows = [row for row in drawing.present(board) if row.entry.pk in recalls and _speed(row)]
    speeds = [_speed(row) for row in rows]
    if not rows:
        return Plot.empty("No system of this view has an approximate index whose searches were timed.")
    points = [
        drawing.ChartPoint(row, name, recall, speed, (f"{RECALL}: {recall:.4f}", f"{SPEED}: {speed:,.4g}"))
        for row, name, speed in zip(rows, drawing.names_of(rows), speeds, strict=True)
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
        caption=f"Approximate indexes on {drawing.titled(board)}: recall of exact search against throughput. "
        f"{board.cost_group or 'All were timed on one machine'}.",
        subtitle=board.title,
    )


THROUGHPUT = Figure(
    slug="approximate-search",
    title="Approximate search",
    caption="What approximate indexes (HNSW, IVF, PQ) find of the exact results, against queries per second.",
    subjects=("dataset",),
    build=build_throughput,
    known=lambda board, datasets: len(_recalls(_timed(board))) > 1,
)
