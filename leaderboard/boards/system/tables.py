"""A system's results by measure, what is printed or known beside them, and their costs, as tables of its page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from leaderboard.boards.columns.costs import (
    COSTS,
    DOUBTFUL_MARK,
    OVER_STORED_RUNS,
    CostColumn,
    currency_of,
    latency_noise,
    no_noise,
    unit_with_currency,
)
from leaderboard.boards.system.depth import Axis, DepthPoint, depth_of, depth_series
from leaderboard.boards.system.page import Result
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.numbers import format_quantity
from leaderboard.results.board_rows.measurements import MeasuredEntry

#: What a row of the first table is of: a result, how its seeds spread, or one of these seeds.
RESULT, DEVIATION, SEED = "result", "deviation", "seed"


#: So many results at most have a part of their own at the head of the page.
FEW_RESULTS = 3


def headline(results: Sequence[Result]) -> dict[str, Any]:
    """What the page says first: the ranked results where these are few, and how many lead or beat the baseline."""
    ranked = [result for result in results if result.rank]
    compared = [result for result in ranked if result.delta is not None and not result.is_baseline]
    tested = [one.better_than_baseline for one in compared if one.better_than_baseline is not None]
    return {
        "ranked": len(ranked),
        "few": ranked if len(ranked) <= FEW_RESULTS else [],
        "first": sum(result.rank == 1 for result in ranked),
        "compared": len(compared),
        "ahead": sum(numbers.direction(one.delta, one.measure) == "up" for one in compared),
        "tested": len(tested),
        "better": sum(tested),
    }


def measure_table(results: Sequence[Result]) -> dict[str, Any] | None:
    """All measures of all results; None where each has its primary measure alone, which stands above."""
    measures = list(dict.fromkeys(name for result in results for name in _scores(result)))
    if not any(result.scores or result.seed_count for result in results):
        return None
    rows: list[tuple[str, Result, str, Mapping[str, float | None]]] = []
    for result in results:
        rows.append((RESULT, result, result.dataset, _scores(result)))
        if result.seed_count:
            rows.append((DEVIATION, result, "± over seeds", result.deviations))
        for seed in result.seeds:
            rows.append(
                (SEED, result, f"seed {seed.label}", {**dict(seed.scores), result.measure: seed.value})
            )
    shown = [
        {
            "kind": kind,
            "result": result,
            "label": label,
            "cells": [numbers.format_value(scores.get(name), numbers.DECIMALS) for name in measures],
        }
        for kind, result, label, scores in rows
    ]
    return {"heads": [{"label": name, "better": better(name)} for name in measures], "rows": shown}


def _scores(result: Result) -> dict[str, float]:
    return {result.measure: result.value, **dict(result.scores)}


def facts_table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Figures as their sources print them, and facts of results made here, in the order of the results.

    `doubt` says why a figure is doubtful.
    """
    found = []
    for result in results:
        where = {
            "dataset": result.dataset,
            "dataset_slug": result.dataset_slug,
            "configuration": result.configuration,
        }
        for figure in result.figures:
            hardware = figure["hardware"] if figure["hardware"] != result.configuration else ""
            value = f"{figure['as_printed']} {figure['unit']}".strip()
            shown = {"name": figure["name"], "value": value, "hardware": hardware, "doubt": figure["doubt"]}
            found.append({**where, **shown})
        found += [{**where, "name": label, "value": value} for label, value in result.fact_texts]
    return found


def cost_table(results: Iterable[Result]) -> dict[str, Any] | None:
    """Return the table of all measurements of the results; None where nothing was measured."""
    found = [(result, measured) for result in results for measured in reversed(result.measured)]
    if not found:
        return None
    currency = currency_of(one for _, one in found)
    columns = [
        (
            head._replace(unit=unit_with_currency(currency, head.unit)),
            [_text(head.value(one), doubtful=head.is_timed and bool(one.doubt)) for _, one in found],
        )
        for head in _COLUMNS
    ]
    columns = [(head, cells) for head, cells in columns if any(cell != "—" for cell in cells)]
    rows = [
        {
            "dataset": result.dataset,
            "dataset_slug": result.dataset_slug,
            "configuration": result.configuration,
            "machine": measured.machine,
            "protocol": measured.protocol,
            "day": measured.measured_at[:10],
            "cells": [cells[number] for _, cells in columns],
            "remark": OVER_STORED_RUNS if measured.over_stored_runs else "",
            "doubt": measured.doubt,
        }
        for number, (result, measured) in enumerate(found)
    ]
    return {"heads": [head for head, _ in columns], "rows": rows}


def depth_charts(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each dataset the entries that differ in depth alone, or in dimensions; latency of one machine only."""
    of_dataset: dict[tuple[str, Axis], list[tuple[float, Result]]] = {}
    for result in results:
        if place := depth_of(result.configuration, result.facts):
            axis, depth = place
            of_dataset.setdefault((result.dataset_slug, axis), []).append((depth, result))
    found = []
    for (slug, axis), entries in of_dataset.items():
        machines = [one.machine for _, result in entries for one in result.measured]
        machine = max(machines, key=machines.count) if machines else None
        points = []
        for depth, result in entries:
            quiet = [one for one in result.measured if one.machine == machine and not one.doubt]
            points.append(DepthPoint(depth, result.value, quiet[0].latency["mean"] if quiet else None))
        first = entries[0][1]
        series = depth_series(first.measure, points, axis)
        if series is not None:
            found.append({"dataset": first.dataset, "dataset_slug": slug, "series": series})
    return found


def _text(value: float | None, *, doubtful: bool) -> str:
    if isinstance(value, int):  # a count, which is exact
        return f"{value:,}"
    return "—" if value is None else format_quantity(value) + (f" {DOUBTFUL_MARK}" if doubtful else "")


def _extra(
    label: str, unit: str, note: str, value: Callable[[MeasuredEntry], float | None], *, timed: bool = False
) -> CostColumn:
    """Return a column that boards do not have."""
    return CostColumn("", label, unit, note, value, latency_noise if timed else no_noise)


def _percentile(name: str) -> CostColumn:
    return _extra(name, "ms", "latency of single searches", lambda one: one.latency[name], timed=True)


def _part(name: str, label: str) -> CostColumn:
    note = "part of the mean latency"
    return _extra(label, "ms", note, lambda one: one.figures["parts_ms"].get(name), timed=True)


_LATENCY, *_OTHERS = COSTS
_COLUMNS = [
    _LATENCY._replace(note="mean of single warm searches", whole_searches=False),
    _extra("±", "ms", "uncertainty of the mean", lambda one: one.figures.get("spread_ms")),
    *(_percentile(name) for name in ("p50", "p95", "p99")),
    _extra("Searches", "", "number of timed searches", lambda one: one.figures["searches"]),
    _extra("Queries", "", "number of distinct queries that were timed", lambda one: one.figures["queries"]),
    _part("query_encoding", "Query encoding"),
    _part("first_stage", "First stage"),
    _part("search", "Search"),
    _extra(
        "BM25", "ms", "mean latency of BM25 in the same job", lambda one: one.baseline_latency, timed=True
    ),
    *_OTHERS,
]
