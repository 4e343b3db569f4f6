"""A system's results by measure, and what is printed or known beside them, as tables of its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.columns.costs import COSTS, OVER_STORED_RUNS, currency_of, unit_with
from leaderboard.boards.system.depth import DepthPoint, DepthSeries, depth_of, depth_series
from leaderboard.boards.system.result import Result
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.numbers import significant
from leaderboard.results.history.measurements import Machine, Measured

#: What a row of the first table is of: a result, how its seeds spread, or one of these seeds.
RESULT, DEVIATION, SEED = "result", "deviation", "seed"


class MeasureHead(NamedTuple):
    """A measure, and which way is better."""

    label: str
    better: str


class MeasureRow(NamedTuple):
    """What `kind` says, one text for each measure: a dash where the result has none."""

    kind: str
    result: Result
    label: str
    cells: list[str]


class MeasureTable(NamedTuple):
    """Results by measure; `heads` are of all measures that any result has."""

    heads: list[MeasureHead]
    rows: list[MeasureRow]


class Beside(NamedTuple):
    """A figure that a source prints beside scores, or a fact of how the result was made; `doubt` says why it is one."""

    dataset: str
    dataset_slug: str
    configuration: str
    name: str
    value: str
    hardware: str
    doubt: str


def by_measure(results: Sequence[Result]) -> MeasureTable | None:
    """All measures of all results; None where each has its primary measure alone, which stands above."""
    measures = list(dict.fromkeys(name for result in results for name in _scores(result)))
    if not any(result.scores or result.seed_count for result in results):
        return None
    rows = [row for result in results for row in _rows(result, measures)]
    return MeasureTable([MeasureHead(name, better(name)) for name in measures], rows)


def _rows(result: Result, measures: Sequence[str]) -> list[MeasureRow]:
    def row(kind: str, label: str, scores: dict[str, float]) -> MeasureRow:
        cells = [numbers.written(scores.get(name), result.decimals) for name in measures]
        return MeasureRow(kind, result, label, cells)

    rows = [row(RESULT, result.dataset, _scores(result))]
    if result.seed_count:
        rows.append(row(DEVIATION, "± over seeds", dict(result.deviations)))
    for seed in result.seeds:
        first = {} if seed.value is None else {result.measure: seed.value}
        rows.append(row(SEED, f"seed {seed.label}", {**first, **dict(seed.scores)}))
    return rows


def _scores(result: Result) -> dict[str, float]:
    return {result.measure: result.value, **dict(result.scores)}


def beside(results: Sequence[Result]) -> list[Beside]:
    """Figures as their sources print them, and facts of results made here, in the order of the results."""
    found = []
    for result in results:
        where = (result.dataset, result.dataset_slug, result.configuration)
        for figure in result.figures:
            hardware = figure["hardware"] if figure["hardware"] != result.configuration else ""
            value = f"{figure['as_printed']} {figure['unit']}".strip()
            found.append(Beside(*where, figure["name"], value, hardware, figure["doubt"]))
        found += [Beside(*where, label, value, "", "") for label, value in result.fact_texts]
    return found


#: What a search consists of, as pages call it.
PARTS = {"query_encoding": "Query encoding", "first_stage": "First stage", "search": "Search"}


class Head(NamedTuple):
    """The head of a column of numbers."""

    label: str
    unit: str
    note: str


class CostRow(NamedTuple):
    """An entry on a machine; `cells` has a text for each head, a dash where there is nothing. `remark` is for all."""

    dataset: str
    dataset_slug: str
    configuration: str
    machine: Machine
    protocol: str
    day: str
    cells: list[str]
    remark: str


class CostTable(NamedTuple):
    """The columns that any row fills, and the rows."""

    heads: list[Head]
    rows: list[CostRow]


class NamedDepths(NamedTuple):
    """A re-ranker by depth on one dataset."""

    dataset: str
    dataset_slug: str
    series: DepthSeries


def cost_table(results: Iterable[Result]) -> CostTable | None:
    """What was measured of the results; None where nothing was."""
    found = [(result, measured) for result in results for measured in reversed(result.measured)]
    if not found:
        return None
    currency = currency_of(one for _, one in found)
    columns = [
        (head._replace(unit=unit_with(currency, head.unit)), [_text(read(one)) for _, one in found])
        for head, read in _COLUMNS
    ]
    columns = [(head, cells) for head, cells in columns if any(cell != "—" for cell in cells)]
    rows = [
        CostRow(
            result.dataset,
            result.dataset_slug,
            result.configuration,
            measured.machine,
            measured.protocol,
            measured.measured_at[:10],
            [cells[number] for _, cells in columns],
            OVER_STORED_RUNS if measured.over_stored_runs else "",
        )
        for number, (result, measured) in enumerate(found)
    ]
    return CostTable([head for head, _ in columns], rows)


def depths(results: Sequence[Result]) -> list[NamedDepths]:
    """For each dataset the entries that differ in depth alone, drawn against it; latency of one machine only."""
    of_dataset: dict[str, list[tuple[int, Result]]] = {}
    for result in results:
        depth = depth_of(result.configuration)
        if depth is not None:
            of_dataset.setdefault(result.dataset_slug, []).append((depth, result))
    found = []
    for slug, entries in of_dataset.items():
        machines = [one.machine for _, result in entries for one in result.measured]
        machine = max(machines, key=machines.count) if machines else None
        points = [
            DepthPoint(depth, result.value, _latency(result.measured, machine)) for depth, result in entries
        ]
        first = entries[0][1]
        series = depth_series(first.measure, points, first.decimals)
        if series is not None:
            found.append(NamedDepths(first.dataset, slug, series))
    return found


def _latency(measured: Iterable[Measured], machine: Machine | None) -> float | None:
    return next((one.latency["mean"] for one in measured if one.machine == machine), None)


def _text(value: float | None) -> str:
    if isinstance(value, int):  # a count, which is exact
        return f"{value:,}"
    return "—" if value is None else significant(value)


def _percentile(name: str) -> Any:
    return lambda measured: measured.latency[name]


def _part(name: str) -> Any:
    return lambda measured: measured.figures["parts_ms"].get(name)


_COLUMNS = [
    (Head(COSTS[0].label, COSTS[0].unit, "mean of single warm searches"), lambda one: one.latency["mean"]),
    (
        Head("±", "ms", "how far the mean may be off"),
        lambda one: one.figures.get("spread_ms"),
    ),
    *((Head(name, "ms", "latency of single searches"), _percentile(name)) for name in ("p50", "p95", "p99")),
    (
        Head("Searches", "", "how many were timed, one at a time"),
        lambda measured: measured.figures["searches"],
    ),
    *((Head(label, "ms", "part of the mean latency"), _part(name)) for name, label in PARTS.items()),
    (Head("BM25", "ms", "mean latency of BM25 in the same job"), lambda one: one.baseline_latency),
    *((Head(cost.label, cost.unit, cost.note), cost.value) for cost in COSTS[1:]),
]
