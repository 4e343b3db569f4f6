"""Protocol v1: how long a search takes, and what the system needs, measured where its index lies.

One search at a time, in one process with a declared number of threads, from a query's text to its top 100 with ids.
After 20 searches that are not counted, at least 200 are timed: the queries in their order, each as often as the
others; where there are more than 200, 200 that lie evenly over them. Nothing is kept between two searches. A system's
first stage and the encoding of the query are part of its time, and told apart.

Throughput is over all queries, or 1,000 that lie evenly over more, handed over in batches of 64.
What a system gives beside its main result, such as a re-ranker's lesser depths, is measured with less effort, because
the machine is held for it: 5 searches warm up, at least 50 are timed, and throughput is over 128 queries.
Build time, the rate of encoding, the size of the index and the peak of memory are those of the job that built it.
A figure of one protocol is never compared with one of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Query
from evaluation.efficiency.energy import EnergyMeter, open_meter
from evaluation.efficiency.measurements import Figures, Latency
from evaluation.efficiency.memory import peak_gpu_memory, peak_memory
from evaluation.engines.base import Engine, Retrieval

__all__ = ["PROTOCOL", "Figures", "Latency", "measure", "parameters_of"]

PROTOCOL = "v1"
#: How deep a timed search goes.
DEPTH = 100
WARM_UP_SEARCHES = 20
#: The least number of timed searches.
TIMED_SEARCHES = 200
#: The most queries that throughput is taken over, and how many the engine is handed at once.
BATCHED_QUERIES = 1000
BATCH = 64


@dataclass(frozen=True, slots=True)
class Effort:
    """How many searches warm up, how many are timed at least, and how many queries throughput is taken over at most."""

    warm_up: int
    searches: int
    batched: int


WHOLE = Effort(WARM_UP_SEARCHES, TIMED_SEARCHES, BATCHED_QUERIES)
#: For what a system gives beside its main result: model and index are warm from the retrieval.
OF_VARIANT = Effort(5, 50, 2 * BATCH)

#: Told the share of the measuring that is done, 0 to 1. It may raise to stop.
MeasureProgress = Callable[[float], None]


def measure(
    engine: Engine,
    queries: Sequence[Query],
    retrieval: Retrieval,
    *,
    threads: int,
    device: str = "cpu",
    checkpoint: Path | None = None,
    effort: Effort = WHOLE,
    progress: MeasureProgress | None = None,
    meter: EnergyMeter | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Figures:
    """What the engine, whose index is open, costs. `retrieval` says how it was built, `checkpoint` what model it runs.

    `threads` is how many cores it was given, which is declared, not found out. `meter` counts energy, by default with
    what the machine offers. `clock` gives seconds. Raises ValueError where there is no query.
    """
    if not queries:
        raise ValueError("there are no queries, so there is no search to time")
    report = progress or (lambda share: None)
    timed = timed_queries(queries, effort.searches)
    _warm_up(engine, timed[: effort.warm_up], report)
    engine.clock.seconds.clear()
    counter = meter or open_meter(device)
    before = counter.joules()
    seconds = _time_searches(engine, timed, report, clock)
    after = counter.joules()
    parts = {part: 1000 * spent / len(seconds) for part, spent in engine.clock.seconds.items()}
    throughput = _throughput(engine, spread(queries, effort.batched), clock)
    report(1.0)
    return Figures(
        protocol=PROTOCOL,
        depth=DEPTH,
        threads=threads,
        device=device,
        searches=len(seconds),
        queries=len(set(timed)),
        documents=retrieval.documents,
        latency_ms=Latency.of(seconds),
        parts_ms=parts,
        queries_per_second=throughput,
        documents_per_second=encoding_rate(retrieval),
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        index_bytes=retrieval.index_bytes,
        peak_memory_bytes=peak_memory(),
        peak_gpu_memory_bytes=peak_gpu_memory() if device == "cuda" else None,
        parameters=parameters_of(checkpoint),
        energy_joules_per_query=(
            max(after - before, 0.0) / len(seconds) if before is not None and after is not None else None
        ),
        energy_source=counter.source if before is not None and after is not None else "",
    )


def efforts(results: int) -> tuple[Effort, ...]:
    """The effort for each of so many results of one system, the main one last; at least one."""
    return (*[OF_VARIANT] * (results - 1), WHOLE)


def timed_queries(queries: Sequence[Query], searches: int = TIMED_SEARCHES) -> list[Query]:
    """The queries of the timed searches, in their order: few are cycled, each equally often, many are thinned out."""
    chosen = spread(queries, searches)
    return chosen * -(-searches // len(chosen))


def spread(queries: Sequence[Query], most: int) -> list[Query]:
    """At most `most` queries, evenly over all of them and in their order."""
    if len(queries) <= most:
        return list(queries)
    places = np.arange(most, dtype=np.int64) * len(queries) // most
    return [queries[place] for place in places.tolist()]


def parameters_of(checkpoint: Path | None) -> int | None:
    """How many weights the model of a rebuilt checkpoint has; None without a model."""
    return None if checkpoint is None else CheckpointDescription.read(checkpoint).parameters


def encoding_rate(retrieval: Retrieval) -> float | None:
    """Documents a second of what this job encoded itself, or indexed where nothing is encoded; None for nothing."""
    if retrieval.encoded_documents is None:
        return retrieval.documents / retrieval.build_seconds if retrieval.build_seconds > 0 else None
    if not retrieval.encoded_documents or retrieval.encoding_seconds <= 0:
        return None
    return retrieval.encoded_documents / retrieval.encoding_seconds


def _search(engine: Engine, queries: Sequence[Query]) -> None:
    for _ in engine.search(queries, DEPTH):
        pass


def _warm_up(engine: Engine, queries: Sequence[Query], report: MeasureProgress) -> None:
    report(0.0)
    for query in queries:
        _search(engine, [query])


def _time_searches(
    engine: Engine, timed: Sequence[Query], report: MeasureProgress, clock: Callable[[], float]
) -> list[float]:
    """The seconds of each search. Progress is told between two searches, and not counted."""
    seconds = []
    for number, query in enumerate(timed):
        started = clock()
        _search(engine, [query])
        seconds.append(clock() - started)
        report(number / len(timed))
    return seconds


def _throughput(engine: Engine, queries: Sequence[Query], clock: Callable[[], float]) -> float | None:
    """Queries a second, in batches; None where the clock is too coarse to say."""
    started = clock()
    for start in range(0, len(queries), BATCH):
        _search(engine, queries[start : start + BATCH])
    seconds = clock() - started
    return len(queries) / seconds if seconds > 0 else None
