"""What was measured, as data that can be written down and read again, also from somebody who is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt

from evaluation.efficiency.effort import OF_VARIANT
from evaluation.engines.base import SearchPart

_LONGEST_TEXT = 40
#: A measurement is noisy if the share of unsettled queries, the spread as a share of the mean, or the share of the
#: machine's processors that other work used is greater.
MOST_UNSETTLED, MOST_SPREAD, MOST_OTHER_WORK = 0.1, 0.1, 0.25
_TOO_LARGE = 2**63


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a query's quickest search: the mean, and what 50, 95 and 99 of 100 stay within (nearest rank)."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float] | npt.NDArray[np.float64]) -> Self:
        """The latency of queries whose quickest searches took so many seconds each; at least one."""
        milliseconds = np.asarray(seconds, dtype=np.float64) * 1000
        p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99], method="inverted_cdf").tolist()
        return cls(float(milliseconds.mean()), p50, p95, p99)


@dataclass(frozen=True, slots=True)
class EfficiencyFigures:
    """What a system cost under a protocol. None is what was not measured, or what there is not, never 0.

    `queries` counts the different ones that were timed, in `searches` searches of one query each; `batched` those that
    throughput is over, 0 where that is not told. `latency_ms` and
    `parts_ms` are of one search; parts need not add up to the whole. `peak_memory_bytes` is the resident memory of the
    whole process since its start, `energy_source` what `energy_joules_per_query` is the energy of. `stored_runs` counts
    the runs that the system began with: these were searched before, and that is in no figure.

    The searches were made in `rounds` with `threads` threads; `spread_ms` is the uncertainty of the mean latency,
    from the differences of groups of rounds, and None under protocol v1, which had one round. `unsettled` counts the
    queries whose fastest search no other one confirms, or that were always disturbed; `interruptions` counts the times
    that the kernel preempted the process, and `other_work` is the share of the machine's processors that other
    processes used meanwhile.

    `job_seconds` are those of indexing the corpus and searching all queries, where this job did both.
    `flops_per_query` and `flops_per_document` are floating point operations of a search and of encoding a document, as
    `evaluation.engines.operations` counts them, means over a sample.
    """

    protocol: str
    depth: int
    threads: int
    device: str
    searches: int
    queries: int
    documents: int
    latency_ms: Latency
    queries_per_second: float | None
    documents_per_second: float | None
    build_seconds: float | None
    index_bytes: int | None
    peak_memory_bytes: int | None
    peak_gpu_memory_bytes: int | None = None
    parameters: int | None = None
    energy_joules_per_query: float | None = None
    energy_source: str = ""
    stored_runs: int = 0
    rounds: int = 1
    spread_ms: float | None = None
    unsettled: int = 0
    interruptions: int = 0
    other_work: float | None = None
    batched: int = 0
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    job_seconds: float | None = None
    flops_per_query: float | None = None
    flops_per_document: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Return the figures from the values that `as_data` returned, also under an earlier protocol.

        Raises ValueError, naming the field, for anything else.
        """
        if not isinstance(data, Mapping):
            raise ValueError("figures are an object of named values")
        latency = data.get("latency_ms")
        parts = data.get("parts_ms", {})
        if not isinstance(latency, Mapping) or not isinstance(parts, Mapping):
            raise ValueError("latency_ms and parts_ms are objects of numbers")
        percentiles = {each.name: _number(each.name, latency.get(each.name)) for each in fields(Latency)}
        values: dict[str, Any] = {
            "latency_ms": Latency(**percentiles),
            "parts_ms": {name: _number(name, parts[name]) for name in get_args(SearchPart) if name in parts},
        }
        for each in fields(cls):
            value, kind = data.get(each.name, each.default), str(each.type)
            if kind == "str":
                values[each.name] = text = data.get(each.name, "")
                if not isinstance(text, str) or len(text) > _LONGEST_TEXT or not text.isprintable():
                    raise ValueError(f"{each.name} is a short text")
            elif kind.endswith("None") and (value is None or value is MISSING):
                values[each.name] = None
            elif kind.startswith(("int", "float")):
                number = _number(each.name, value)
                values[each.name] = int(number) if kind.startswith("int") else number
        return cls(**values)


def noise_reasons(figures: Mapping[str, Any]) -> list[str]:
    """Return the reasons why times in `EfficiencyFigures.as_data` are not those of a quiet machine, if any."""
    reasons = []
    unsettled, queries = figures.get("unsettled", 0), figures["queries"]
    spread, mean = figures.get("spread_ms") or 0.0, figures["latency_ms"]["mean"]
    others = figures.get("other_work") or 0.0
    if unsettled > MOST_UNSETTLED * queries:
        reasons.append(f"{unsettled} of {queries} queries had no stable time")
    if spread > MOST_SPREAD * mean:
        reasons.append(f"the mean is uncertain by {100 * spread / mean:.0f}%")
    if others > MOST_OTHER_WORK:
        reasons.append(f"other work used {100 * others:.0f}% of the processors")
    return reasons


def is_brief(figures: Mapping[str, Any]) -> bool:
    """Whether fewer searches, by `EfficiencyFigures.as_data`, were timed than of anything that there is time for."""
    return bool(figures["searches"] < OF_VARIANT.searches)


def _number(name: str, value: object) -> float:
    # Comparing takes whole numbers of any length; `math.isfinite` does not.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TOO_LARGE:
        raise ValueError(f"{name} is a number that is not negative, and below 2^63")
    return value
