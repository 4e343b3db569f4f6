"""What a model's job cost, on its status page and in the API: the figures of the board's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.boards.columns.costs import COSTS, OVER_STORED_RUNS, spread_of_latency, times_baseline
from leaderboard.core.text.numbers import significant
from leaderboard.models import Measurement
from leaderboard.results.history.measurements import Machine, Measured

#: Columns that a sentence of their own stands for.
_TOLD = frozenset({"mean-latency", "times-bm25", "cost-per-million"})


@dataclass(frozen=True, slots=True)
class Costs:
    """A measurement in words. `spread` is p50, p95 and p99; `figures` are labels and values of all else."""

    latency_ms: float
    spread: str
    hardware: str
    machine: str
    remark: str
    times_bm25: str
    bm25_ms: float | None
    figures: Sequence[tuple[str, str]]
    data: dict[str, Any]


def costs_of(measurement: Measurement) -> Costs:
    """The measurement as a board would show it."""
    measured = _read(measurement)
    ratio = None if measured.over_stored_runs else times_baseline(measured)
    others = [(each, each.value(measured)) for each in COSTS if each.key not in _TOLD]
    return Costs(
        latency_ms=measured.latency["mean"],
        spread=spread_of_latency(measured),
        hardware=measured.machine.name,
        machine=measured.machine.slug,
        remark=OVER_STORED_RUNS if measured.over_stored_runs else "",
        times_bm25="" if ratio is None else significant(ratio),
        bm25_ms=measured.baseline_latency,
        figures=[
            (each.label, f"{significant(value)} {each.unit}".strip())
            for each, value in others
            if value is not None
        ],
        data={**measured.as_data(), "times_bm25": ratio},
    )


def _read(measurement: Measurement) -> Measured:
    """The measurement as boards read theirs."""
    entry, hardware = measurement.entry, measurement.hardware
    return Measured(
        entry.dataset_id,
        entry.pk,
        entry.system_id,
        entry.configuration,
        Machine(hardware.slug, hardware.name),
        measurement.protocol,
        measurement.measured_at.isoformat(),
        measurement.figures,
        measurement.baseline,
    )
