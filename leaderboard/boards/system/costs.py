"""What a system's page says of its costs and its facts: one row for each entry and machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.columns.costs import COSTS, OVER_STORED_RUNS, currency_of, unit_with
from leaderboard.boards.system.depth import DepthPoint, DepthSeries, depth_of, depth_series
from leaderboard.boards.system.result import Result
from leaderboard.core.text.numbers import significant
from leaderboard.results.history.measurements import Machine, Measured

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
