"""Measurement effort and efficiency figures. Figures may come from untrusted sources."""

# `EfficiencyFigures.from_data` reads the annotations of its fields as texts.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt

from evaluation.engines import Retrieval
from evaluation.engines.base import SearchPart

#: Number of queries in a batch when throughput is measured.
BATCH = 64
#: Maximum share of the time for building and searching that measurements may use, or `MIN_SECONDS` if that is more.
SHARE_OF_JOB, MIN_SECONDS = 0.1, 60.0
#: Share of the measuring time for warming up, and minimum number of timed queries (or all, if there are fewer).
SHARE_OF_WARM_UP, MIN_QUERIES = 0.1, 2


class TooSlow(Exception):
    """Searches are too slow to time the minimum number of queries within the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Numbers of searches for a measurement.

    After `warm_up` searches, at least `searches` searches of at most `queries` queries are timed, in `rounds` rounds or
    until these have taken `seconds`. If the interval of the mean is still wide, rounds continue up to `most_rounds` or
    `most_seconds`. Throughput is measured over at most `throughput_queries` queries.
    """

    warm_up: int
    searches: int
    queries: int
    throughput_queries: int
    rounds: int
    seconds: float
    most_rounds: int
    most_seconds: float

    def reduce(self, seconds: float, search_seconds: float, query_count: int) -> Effort:
        """Return the effort reduced to a budget.

        Args:
            seconds: Budget of all timed searches.
            search_seconds: Expected seconds of one search.
            query_count: Number of queries of the dataset.

        Raises:
            TooSlow: Fewer than two searches of `MIN_QUERIES` queries fit.
        """
        target = max(self.searches, 2 * min(self.queries, query_count))
        searches = count_affordable(target, seconds, search_seconds)
        timed_queries = min(self.queries, query_count, searches // 2)
        if timed_queries < min(MIN_QUERIES, query_count):
            raise TooSlow
        searches_kept = self.searches if searches == target else searches // timed_queries * timed_queries
        return replace(
            self,
            queries=timed_queries,
            searches=searches_kept,
            seconds=min(self.seconds, seconds),
            most_seconds=min(self.most_seconds, seconds),
        )


FULL_EFFORT = Effort(
    warm_up=20,
    searches=200,
    queries=100,
    throughput_queries=1000,
    rounds=10,
    seconds=10.0,
    most_rounds=40,
    most_seconds=30.0,
)
#: Effort for the variants of a system. The retrieval has already warmed up its model and index.
VARIANT_EFFORT = Effort(
    warm_up=5,
    searches=50,
    queries=25,
    throughput_queries=2 * BATCH,
    rounds=4,
    seconds=2.0,
    most_rounds=8,
    most_seconds=4.0,
)


def plan_efforts(result_count: int, *, brief: bool = False) -> tuple[Effort, ...]:
    """Return the effort for each of a system's results. Only the last gets the full effort, and none if `brief`."""
    return (*[VARIANT_EFFORT] * (result_count - 1), VARIANT_EFFORT if brief else FULL_EFFORT)


def measuring_seconds(retrieval: Retrieval) -> float:
    """Return the budget in seconds for measuring all results of a retrieval."""
    return max(MIN_SECONDS, SHARE_OF_JOB * (retrieval.build_seconds + retrieval.search_seconds))


def count_affordable(target: int, seconds: float, unit_seconds: float) -> int:
    return target if target * unit_seconds <= seconds else int(seconds / unit_seconds)


_LONGEST_TEXT = 40
#: Limits above which a measurement is noisy: share of unsettled queries, spread relative to the mean, and share of the
#: machine's processors used by other processes.
MAX_UNSETTLED, MAX_SPREAD, MAX_OTHER_WORK = 0.1, 0.1, 0.25
_TOO_LARGE = 2**63


@dataclass(frozen=True, slots=True)
class Latency:
    """Mean and percentiles (nearest rank) of the queries' fastest searches, in milliseconds."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def from_seconds(cls, seconds: Sequence[float] | npt.NDArray[np.float64]) -> Self:
        """Return the latency for the fastest search of each query, in seconds. At least one query is required."""
        milliseconds = np.asarray(seconds, dtype=np.float64) * 1000
        p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99], method="inverted_cdf").tolist()
        return cls(float(milliseconds.mean()), p50, p95, p99)


@dataclass(frozen=True, slots=True)
class EfficiencyFigures:
    """Costs of a system under a protocol. None means that a figure was not measured or does not apply.

    `queries` is the number of distinct timed queries, and `searches` the number of their searches. `batched` counts the
    queries of the throughput measurement, 0 if unknown. `latency_ms` and `parts_ms` refer to one search; the parts need
    not add up to the whole. `peak_memory_bytes` is the peak resident memory of the process since its start, and
    `energy_source` names the components included in `energy_joules_per_query`. `stored_runs` is the number of stored
    runs that the system starts from. Their costs are not included.

    The searches were made in `rounds` with `threads` threads. `spread_ms` is the uncertainty of the mean latency,
    estimated from groups of rounds, and None under protocol v1, which had one round. `unsettled` counts the queries
    with a fastest search that was not confirmed by another one, or was always disturbed. `interruptions` counts the
    kernel's preemptions of the process, and `other_work` is the share of the machine's processors that other processes
    used.

    `job_seconds` is the time for indexing the corpus and searching all queries, if one job did both. `flops_per_query`
    and `flops_per_document` are mean floating point operations of a search and of encoding a document, over a sample,
    as counted by `evaluation.engines.operations`. `model_bytes` is the size of the checkpoint's files.
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
    model_bytes: int | None = None

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Parse the output of `as_data`, also from earlier protocols.

        Raises:
            ValueError: A field is missing or invalid; the message names it.
        """
        if not isinstance(data, Mapping):
            raise ValueError("efficiency figures must be a JSON object")
        latency = data.get("latency_ms")
        parts = data.get("parts_ms", {})
        if not isinstance(latency, Mapping) or not isinstance(parts, Mapping):
            raise ValueError("latency_ms and parts_ms must be JSON objects of numbers")
        percentiles = {field_.name: _number(field_.name, latency.get(field_.name)) for field_ in fields(Latency)}
        values: dict[str, Any] = {
            "latency_ms": Latency(**percentiles),
            "parts_ms": {name: _number(name, parts[name]) for name in get_args(SearchPart) if name in parts},
        }
        for field_ in fields(cls):
            value, kind = data.get(field_.name, field_.default), str(field_.type)
            if kind == "str":
                values[field_.name] = text = data.get(field_.name, "")
                if not isinstance(text, str) or len(text) > _LONGEST_TEXT or not text.isprintable():
                    raise ValueError(f"{field_.name} must be printable text of at most {_LONGEST_TEXT} characters")
            elif kind.endswith("None") and (value is None or value is MISSING):
                values[field_.name] = None
            elif kind.startswith(("int", "float")):
                number = _number(field_.name, value)
                values[field_.name] = int(number) if kind.startswith("int") else number
        return cls(**values)


def noise_reasons(figures: Mapping[str, Any]) -> list[str]:
    """Return the reasons why the times in `EfficiencyFigures.as_data` are unreliable; empty if they are reliable."""
    reasons = []
    unsettled, queries = figures.get("unsettled", 0), figures["queries"]
    spread, mean = figures.get("spread_ms") or 0.0, figures["latency_ms"]["mean"]
    other_work = figures.get("other_work") or 0.0
    if unsettled > MAX_UNSETTLED * queries:
        reasons.append(f"{unsettled} of {queries} queries had no stable time")
    if spread > MAX_SPREAD * mean:
        reasons.append(f"the mean is uncertain by {100 * spread / mean:.0f}%")
    if other_work > MAX_OTHER_WORK:
        reasons.append(f"other work used {100 * other_work:.0f}% of the processors")
    return reasons


def is_brief(figures: Mapping[str, Any]) -> bool:
    """Return whether fewer searches were timed than a variant's effort requires."""
    return bool(figures["searches"] < VARIANT_EFFORT.searches)


def _number(name: str, value: object) -> float:
    # Comparisons accept integers of any size; `math.isfinite` does not.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TOO_LARGE:
        raise ValueError(f"{name} must be a non-negative number below 2^63")
    return value
