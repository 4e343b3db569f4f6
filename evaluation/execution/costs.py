"""What a child says that its searches cost, held against what its parent knows: its clock, the job, and the protocol.

A child that times itself can always do less than it says. What it cannot do is to have taken longer than it ran, to
have searched faster than a function is called, or to have counted something else than the protocol counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluation.efficiency.effort import BATCH, LEAST_QUERIES, WHOLE, Effort, measuring_seconds
from evaluation.efficiency.measurements import EfficiencyFigures
from evaluation.efficiency.protocol import DEPTH, PROTOCOL, encoding_rate, job_seconds, parameters_of
from evaluation.efficiency.timing import THREADS
from evaluation.engines.base import Retrieval
from evaluation.execution.job import ExecutionJob

#: What `energy.open_meter` calls what it counts.
_ENERGY_SOURCES = ("", "CPU", "GPU", "CPU and GPU")
#: Milliseconds that a search takes at the very least: as long as calling it.
_FASTEST_MS = 0.0005
#: A batch takes no less than one of its searches alone; clocks and caches have their say.
_MOST_GAIN = 10 * BATCH
#: What a whole machine draws at most, in watts, and what its counters may be out by, in joules.
_MOST_WATTS, _COUNTER_STEP = 20_000.0, 1.0
_ROUNDING = 1.01
#: The share of its time that the searches of a system take at least of which not all that was asked for is timed.
_LEAST_USED = 0.1
#: Bytes of memory that no machine has.
_TOO_MUCH_MEMORY = 2**46


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the parent knows of a child's work: the job, how many queries it has, and the seconds that the child had."""

    job: ExecutionJob
    queries: int
    seconds: float


def validate_figures(
    figures: EfficiencyFigures, known: JobFacts, retrieval: Retrieval, effort: Effort = WHOLE
) -> EfficiencyFigures:
    """The figures, with what follows from the retrieval taken from there. Raises ValueError, saying what cannot be."""
    _check_counts(figures, known.queries, effort)
    declared = {
        "protocol": PROTOCOL,
        "depth": DEPTH,
        "threads": THREADS,
        "device": known.job.device,
        "documents": retrieval.documents,
    }
    for name, value in declared.items():
        if getattr(figures, name) != value:
            raise ValueError(f"{name} is {getattr(figures, name)!r:.40}, and not {value!r}")
    _check_times(figures)
    _check_resources(figures)
    return replace(
        figures,
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        documents_per_second=encoding_rate(retrieval),
        index_bytes=retrieval.index_bytes,
        job_seconds=job_seconds(retrieval),
        parameters=parameters_of(known.job.checkpoint),
        peak_memory_bytes=max(figures.peak_memory_bytes or 0, known.job.index_memory) or None,
        stored_runs=0,  # for the parent to say, which knows what it began with
    )


def uses_its_time(
    figures: EfficiencyFigures, known: JobFacts, retrieval: Retrieval, effort: Effort, results: int
) -> bool:
    """Whether as much was timed as the effort asks for, or that took a good part of the time for so many results.

    A quick system has no reason to time less, and could choose what suits it. Few queries that were quick beside the
    others say nothing of these.
    """
    if figures.queries == min(known.queries, effort.queries) and figures.searches >= effort.searches:
        return True
    own = replace(retrieval, build_seconds=retrieval.build_seconds - known.job.index_seconds)
    spent = figures.searches * figures.latency_ms.mean / 1000
    return spent >= _LEAST_USED * measuring_seconds(own) / results


def check_clock(figures: Sequence[EfficiencyFigures], known: JobFacts, retrieval: Retrieval) -> None:
    """Raise ValueError where building, searching and all timed searches took longer than the child ran.

    The last figures are those of the main result. Searches that an earlier child may have done are not counted.
    """
    told = retrieval.build_seconds - known.job.index_seconds
    told += 0.0 if known.job.resumes else retrieval.search_seconds
    for one in figures:
        told += one.searches * one.latency_ms.mean / 1000
        if one.queries_per_second:
            told += one.batched / one.queries_per_second
    if told > known.seconds:
        raise ValueError(f"{told:.3g} s are told, and it ran for {known.seconds:.3g} s")
    if retrieval.encoding_seconds > _ROUNDING * retrieval.build_seconds:
        raise ValueError("encoding took longer than building, which it is a part of")


def _check_counts(figures: EfficiencyFigures, queries: int, effort: Effort) -> None:
    """What was done is at most what the effort says, over so many queries; of a slow system it is less."""
    timed, rounds = figures.queries, figures.rounds
    if not min(LEAST_QUERIES, queries) <= timed <= min(queries, effort.queries) or not timed:
        raise ValueError(f"{timed} of {queries} queries were timed")
    most = max(2, -(-effort.searches // timed), effort.most_rounds)
    if not 2 <= rounds <= most:
        raise ValueError(f"{rounds} rounds are not 2 to {most}")
    if figures.searches != timed * rounds:
        raise ValueError(f"{figures.searches} searches are none of {timed} queries in {rounds} rounds")
    if figures.unsettled > timed or figures.spread_ms is None:
        raise ValueError("it is not told how well the latency is known")
    if figures.other_work is not None and figures.other_work > 1:
        raise ValueError("other work used more processors than there are")
    whole = min(queries, effort.batched) if figures.queries_per_second is not None else 0
    if figures.batched != whole and figures.batched not in range(BATCH, whole, BATCH):
        raise ValueError(f"throughput is over {figures.batched} of {queries} queries")


def _check_times(figures: EfficiencyFigures) -> None:
    latency = figures.latency_ms
    if not _FASTEST_MS <= latency.p50 <= latency.p95 <= latency.p99:
        raise ValueError("latencies are no percentiles of searches")
    # Half of all searches took p50 or longer, and one of a hundred p99.
    if latency.p50 > 2 * _ROUNDING * latency.mean or latency.p99 > 100 * _ROUNDING * latency.mean:
        raise ValueError("the mean latency is below what its percentiles allow")
    if any(part > _ROUNDING * latency.mean for part in figures.parts_ms.values()):
        raise ValueError("a part of a search takes longer than the search")
    rate = figures.queries_per_second
    if rate is not None and not 0 < rate <= _MOST_GAIN * 1000 / latency.p50:
        raise ValueError(f"{rate:.3g} queries a second are more than batches give")


def _check_resources(figures: EfficiencyFigures) -> None:
    for memory in (figures.peak_memory_bytes, figures.peak_gpu_memory_bytes):
        if memory is not None and memory > _TOO_MUCH_MEMORY:
            raise ValueError("no machine has so much memory")
    if figures.peak_memory_bytes == 0 or (
        figures.device == "cpu" and figures.peak_gpu_memory_bytes is not None
    ):
        raise ValueError("memory is told that was not used")
    joules = figures.energy_joules_per_query
    if figures.energy_source not in _ENERGY_SOURCES or (joules is None) != (figures.energy_source == ""):
        raise ValueError("energy is of no counter")
    if joules is not None and joules > _MOST_WATTS * figures.latency_ms.mean / 1000 + _COUNTER_STEP:
        raise ValueError("no machine draws so much")
