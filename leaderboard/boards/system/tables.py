"""Tables of a system's page: results by measure, reported figures and facts, and costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from leaderboard.boards.columns.costs import (
    COSTS,
    OVER_STORED_RUNS,
    CostColumn,
    common_currency,
    latency_noise,
    latency_spread,
    unit_with_currency,
)
from leaderboard.boards.forest import ForestRow, Role, draw_forest
from leaderboard.boards.system.depth import Axis, DepthPoint, depth_series, variant_depth
from leaderboard.boards.system.page import Result
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.numbers import format_quantity
from leaderboard.results.board_rows.measurements import MeasuredEntry

#: Kinds of rows in the first table: a result, its spread over seeds, or one of its seeds.
RESULT, DEVIATION, SEED = "result", "deviation", "seed"


#: Maximum number of results that get a section of their own at the top of the page.
MAX_HIGHLIGHTED = 3


def headline(results: Sequence[Result]) -> dict[str, Any]:
    """Return the context of the page's headline: ranked results, and the numbers of leads and of gains.

    `few` has the ranked results, or none if there are more than three. Gains are over the baseline, and `better` counts
    those that are significant after correction.
    """
    ranked_results = [result for result in results if result.rank]
    compared_results = [result for result in ranked_results if result.delta is not None and not result.is_baseline]
    return {
        "ranked": len(ranked_results),
        "few": ranked_results if len(ranked_results) <= MAX_HIGHLIGHTED else [],
        "first": sum(result.rank == 1 for result in ranked_results),
        "compared": len(compared_results),
        "ahead": sum(numbers.direction(result.delta, result.measure) == "up" for result in compared_results),
        "tested": sum(result.better_than_baseline is not None for result in compared_results),
        "better": sum(result.direction == "up" for result in compared_results),
    }


def draw_differences(results: Sequence[Result], baseline: str) -> SafeString:
    """Return a plot of the differences from the baseline, the best first; empty for fewer than two."""
    compared_results = [result for result in results if result.delta is not None and not result.is_baseline]
    compared_results.sort(key=lambda result: (result.delta or 0.0) * (1 if better(result.measure) == "lower" else -1))
    roles: dict[str, Role] = {"up": "better", "down": "worse", "untested": "untested"}
    rows = [
        ForestRow(
            f"{result.dataset}, {result.configuration}" if result.configuration else result.dataset,
            result.delta or 0.0,
            result.certainty and result.certainty.delta_interval,
            roles.get(result.direction, "ns"),
            result.is_lost_by_correction,
        )
        for result in compared_results
    ]
    measures = {result.measure for result in compared_results}
    measure = measures.pop() if len(measures) == 1 else _("in the primary measures")
    return draw_forest(rows, measure, baseline) if len(rows) > 1 else SafeString("")


def measure_table(results: Sequence[Result]) -> dict[str, Any] | None:
    """Return the table of all measures, or None if every result has its primary measure only.

    Results of seed sets are followed by their deviations and seeds.
    """
    measures = list(dict.fromkeys(name for result in results for name in _all_scores(result)))
    if not any(result.scores or result.seed_count for result in results):
        return None
    rows: list[tuple[str, Result, str, Mapping[str, float | None]]] = []
    for result in results:
        rows.append((RESULT, result, result.dataset, _all_scores(result)))
        if result.seed_count:
            rows.append((DEVIATION, result, "± over seeds", result.deviations))
        for seed in result.seeds:
            rows.append((SEED, result, f"seed {seed.label}", {**dict(seed.scores), result.measure: seed.value}))
    table_rows = [
        {
            "kind": kind,
            "result": result,
            "label": label,
            "cells": [(name, numbers.format_value(scores.get(name), numbers.DECIMALS)) for name in measures],
        }
        for kind, result, label, scores in rows
    ]
    return {"heads": [{"label": name, "better": better(name)} for name in measures], "rows": table_rows}


def _all_scores(result: Result) -> dict[str, float]:
    return {result.measure: result.value, **dict(result.scores)}


def facts_table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return figures as printed by their sources and facts of scored results, in the order of the results.

    Rows that are equal for all results on several datasets come first, once, with an empty `origin`. `doubt` is the
    reason for a doubtful figure.
    """
    rows_by_result = [(result, _fact_rows(result)) for result in results]
    common_rows: list[dict[str, Any]] = []
    if len({result.dataset_slug for result in results}) > 1:
        common_rows = [row for row in rows_by_result[0][1] if all(row in rows for _, rows in rows_by_result)]
    return [{"origin": {}, **row} for row in common_rows] + [
        {"origin": {name: getattr(result, name) for name in ("dataset", "dataset_slug", "configuration")}, **row}
        for result, rows in rows_by_result
        for row in rows
        if row not in common_rows
    ]


def _fact_rows(result: Result) -> list[dict[str, Any]]:
    figure_rows = [
        {
            "name": figure["name"],
            "value": f"{figure['as_printed']} {figure['unit']}".strip(),
            "hardware": figure["hardware"] if figure["hardware"] != result.configuration else "",
            "doubt": figure["doubt"],
        }
        for figure in result.figures
    ]
    return figure_rows + [{"name": label, "value": value} for label, value in result.fact_texts]


def cost_table(results: Iterable[Result]) -> dict[str, Any] | None:
    """Return the table of all measurements of the results, or None if there are none.

    Columns without any value are omitted.
    """
    measurements = [(result, measurement) for result in results for measurement in reversed(result.measured)]
    if not measurements:
        return None
    currency = common_currency(item for _, item in measurements)
    columns = [
        (
            column._replace(unit=unit_with_currency(currency, column.unit)),
            [_text(column, item) for _, item in measurements],
        )
        for column in _COLUMNS
    ]
    columns = [(column, cells) for column, cells in columns if any(cell != "—" for cell in cells)]
    rows = [
        {
            "dataset": result.dataset,
            "dataset_slug": result.dataset_slug,
            "configuration": result.configuration,
            "machine": measurement.machine,
            "protocol": measurement.protocol,
            "day": measurement.measured_at[:10],
            "cells": [cells[number] for _, cells in columns],
            "remark": OVER_STORED_RUNS if measurement.over_stored_runs else "",
            "doubt": measurement.doubt,
        }
        for number, (result, measurement) in enumerate(measurements)
    ]
    return {"heads": [column for column, _ in columns], "rows": rows}


def depth_charts(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a chart per dataset of the results that differ in depth or vector size.

    Latencies are those on the machine with most measurements. Datasets with fewer than two depths have no chart.
    """
    entries_by_dataset: dict[tuple[str, Axis], list[tuple[float, Result]]] = {}
    for result in results:
        if axis_and_depth := variant_depth(result.configuration, result.facts):
            axis, depth = axis_and_depth
            entries_by_dataset.setdefault((result.dataset_slug, axis), []).append((depth, result))
    charts = []
    for (slug, axis), entries in entries_by_dataset.items():
        machines = [measurement.machine for _, result in entries for measurement in result.measured]
        machine = max(machines, key=machines.count) if machines else None
        points = []
        for depth, result in entries:
            reliable = [
                measurement
                for measurement in result.measured
                if measurement.machine == machine and not measurement.doubt
            ]
            points.append(DepthPoint(depth, result.value, reliable[0].latency["mean"] if reliable else None))
        first_result = entries[0][1]
        series = depth_series(first_result.measure, points, axis)
        if series is not None:
            charts.append({"dataset": first_result.dataset, "dataset_slug": slug, "series": series})
    return charts


def _text(column: CostColumn, measurement: MeasuredEntry) -> str:
    """Return a cost as text."""
    if column is _SPREAD:
        return latency_spread(measurement) or "—"
    value = column.value(measurement)
    if value is None:
        return "—"
    if isinstance(value, int):  # An exact count.
        return f"{value:,}"
    return format_quantity(value)


def _latency_percentile(name: str) -> CostColumn:
    return CostColumn("", name, "ms", "latency of single searches", lambda item: item.latency[name])


def _latency_part(name: str, label: str) -> CostColumn:
    return CostColumn("", label, "ms", "part of the mean latency", lambda item: item.figures["parts_ms"].get(name))


_LATENCY, *_OTHER_COSTS = COSTS
_SPREAD = CostColumn("", "±", "ms", "uncertainty of the mean, at least 3%: the difference between jobs", latency_noise)
_COLUMNS = [
    _LATENCY._replace(note="mean of single warm searches", whole_searches=False),
    _SPREAD,
    *(_latency_percentile(name) for name in ("p50", "p95", "p99")),
    CostColumn("", "Searches", "", "number of timed searches", lambda item: item.figures["searches"]),
    CostColumn("", "Queries", "", "number of distinct queries that were timed", lambda item: item.figures["queries"]),
    _latency_part("query_encoding", "Query encoding"),
    _latency_part("first_stage", "First stage"),
    _latency_part("search", "Search"),
    CostColumn("", "BM25", "ms", "mean latency of BM25 in the same job", lambda item: item.baseline_latency),
    *_OTHER_COSTS,
]
