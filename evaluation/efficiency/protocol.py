"""Protocol v4 for measuring the search time and resources of a system.

Searches run one at a time, in one process and one thread, from the text of a query to its top 100 document ids. After
20 warm-up searches, an evenly spaced sample of up to 100 queries is searched in rounds, each time in the same order.
The time of a query is that of its fastest search. Time in which the kernel gave the processor to other work is
excluded: for a thread that never waited, only its processor time is included. For searches that wait, or that use a
GPU, all elapsed time is included.
Results are not cached. The first stage of a system and the encoding of the query are included, and also reported
separately.

Before each timed search the processor's caches are filled with other data, so that the index and the model are read
from memory, as when queries arrive one by one. Otherwise a search would be up to four times faster whenever no
other process or virtual machine on the host competes for a shared cache.

At least 200 searches are timed, in two or more rounds, and in ten rounds if these take less than ten seconds. Rounds
continue until the interval of the mean is narrow, but at most for forty rounds or thirty seconds, including the time to
fill caches. For the interval, rounds are divided into up to five consecutive groups. The spread is the largest increase
of the mean when one group is omitted, so a time that occurred in only one group increases it. `unsettled` counts the
queries whose two fastest searches differ by more than a tenth, or that were interrupted in every round. `other_work` is
the share of the machine's processors that other processes used.

Throughput is measured once, with all threads of the job, in batches of 64, over all queries or an evenly spaced sample
of 1,000.

All searches together take at most a tenth of the time for building and searching, or a minute if that is more. If
searches are too slow for this, warm-up ends after a tenth of the time, fewer queries are timed, twice each, and
throughput is measured over fewer whole batches or not at all. If not even two queries can be timed, there are no
figures. `searches`, `queries`, `rounds`, and `batched` report the actual numbers.

Floating point operations of a search are counted during warm-up, over 20 evenly spaced searches; for BM25, in another
search of all timed queries. Operations for a document are counted over a sample that is encoded again. Timed searches
are never counted.

Variants of a system, such as smaller depths of a re-ranker, and the demo's variants of BM25 are measured with less
effort, because the machine is reserved for the measurement: 5 warm-up searches, at least 50 timed searches, and
throughput over 128 queries.

Build time, encoding rate, index size, and peak memory are measured in the job that built the index. Figures of
different protocols are never compared.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Query, count_documents, read_corpus, read_table
from evaluation.efficiency.measurements import (
    BATCH,
    FULL_EFFORT,
    MAX_UNSETTLED,
    SHARE_OF_WARM_UP,
    EfficiencyFigures,
    Effort,
    Latency,
    count_affordable,
)
from evaluation.efficiency.meters import (
    THREADS,
    EnergyMeter,
    OtherWork,
    evict_caches,
    one_thread,
    open_meter,
    peak_gpu_memory,
    peak_memory,
    read_moment,
    search_time,
)
from evaluation.engines import Engine, Retrieval, ShardedEngine, operations
from evaluation.engines.index.term_search import TermEngine

PROTOCOL = "v4"
#: Number of documents that a timed search retrieves.
DEPTH = 100
#: Maximum number of groups of rounds for the spread.
GROUPS = 5
#: Maximum relative difference between a settled query's two fastest searches.
SETTLED_DIFFERENCE = 0.1
#: Spread relative to the mean at which rounds may end.
NARROW = 0.03
#: Bounds of the number of documents, one in 200, that are encoded again to count operations.
_MIN_DOCUMENTS, _MAX_DOCUMENTS = 4, 64

#: Seconds of searches, shape (rounds, queries).
Times = npt.NDArray[np.float64]

#: Progress callback: fraction done, 0 to 1. May raise to abort.
MeasureProgress = Callable[[float], None]


@cache
def peak_before_eviction() -> int:
    """Return the peak memory in bytes at the first call, before the caches are filled with other data."""
    return peak_memory()


@dataclass(frozen=True, slots=True)
class System:
    """An engine with an open index.

    Attributes:
        engine: The engine, ready to search.
        retrieval: Statistics of building the index and searching.
        device: "cpu" or "cuda".
        checkpoint: Folder of the engine's model, if it has one.
    """

    engine: Engine
    retrieval: Retrieval
    device: str = "cpu"
    checkpoint: Path | None = None


def measure(
    system: System,
    queries: Sequence[Query],
    effort: Effort = FULL_EFFORT,
    budget: float = math.inf,
    progress: MeasureProgress = lambda share: None,
) -> EfficiencyFigures:
    """Measure search times, throughput, energy, and memory of a system, and add the figures of building its index.

    Args:
        system: System with an open index.
        queries: All queries of the dataset.
        effort: Number of searches to time.
        budget: Seconds for all searches, including warm-up.
        progress: Callback for the fraction done. May raise to abort.

    Raises:
        ValueError: There are no queries.
        TooSlow: Not even two queries can be timed within the budget.
    """
    if not queries:
        raise ValueError("cannot measure without queries: there is no search to time")
    engine, retrieval = system.engine, system.retrieval
    timed_queries, meter = sample_evenly(queries, effort.queries), open_meter(system.device)
    with one_thread():
        progress(0.0)
        flops, warm_up_seconds = _warm_up(engine, timed_queries, effort.warm_up, budget * SHARE_OF_WARM_UP)
        remaining = budget - sum(warm_up_seconds)
        effort, batch_search_seconds = _affordable_effort(effort, remaining, warm_up_seconds, retrieval, len(queries))
        timed_queries = sample_evenly(queries, effort.queries)
        engine.clock.seconds.clear()
        rounds = _TimedRounds(engine, timed_queries, effort, system.device)
        energy = rounds.run(progress, meter)
    remaining = max(remaining - rounds.elapsed, 0.0)
    target = min(effort.throughput_queries, len(queries))
    if (batched := count_affordable(target, remaining, batch_search_seconds)) < target:
        batched -= batched % BATCH
    figures = rounds.figures()  # before other searches add to the engine's clock
    throughput = _throughput(engine, queries, batched)
    if isinstance(engine, TermEngine) and system.checkpoint is None:
        with operations.count_operations() as operation_count:  # Searches are fast, but differ more between queries.
            _search(engine, timed_queries)
        flops = operation_count.flops / len(timed_queries)
    progress(1.0)
    return EfficiencyFigures(
        **figures,
        device=system.device,
        documents=retrieval.documents,
        documents_per_second=encoding_rate(retrieval),
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        index_bytes=retrieval.index_bytes,
        job_seconds=job_seconds(retrieval),
        queries_per_second=throughput,
        batched=batched if throughput is not None else 0,
        peak_gpu_memory_bytes=peak_gpu_memory() if system.device == "cuda" else None,
        parameters=count_parameters(system.checkpoint),
        energy_joules_per_query=energy,
        energy_source=meter.source if energy is not None else "",
        flops_per_query=flops or None,
    )


def _affordable_effort(
    effort: Effort, remaining: float, warm_up_seconds: Sequence[float], retrieval: Retrieval, queries: int
) -> tuple[Effort, float]:
    """Reduce the effort to a budget, and return it with the expected seconds of a search in batches.

    Args:
        effort: Effort to reduce.
        remaining: Remaining budget in seconds.
        warm_up_seconds: Seconds of each warm-up search.
        retrieval: Statistics of the job that searched all queries.
        queries: Number of queries of the dataset.

    Raises:
        TooSlow: Not even two queries can be timed.
    """
    # A single fast query must not determine the estimate. Searches of a variant are shorter than searches of the job.
    job_search_seconds = retrieval.search_seconds / max(retrieval.queries, 1)
    single_seconds = max(sum(warm_up_seconds) / len(warm_up_seconds), min(job_search_seconds, max(warm_up_seconds)))
    batch_search_seconds = min(single_seconds, job_search_seconds)
    fits_budget = batch_search_seconds * min(BATCH, queries) <= remaining / 2
    return effort.reduce(remaining / 2 if fits_budget else remaining, single_seconds, queries), batch_search_seconds


def sample_evenly(queries: Sequence[Query], limit: int) -> list[Query]:
    """Return at most `limit` evenly spaced queries, in their order."""
    if len(queries) <= limit:
        return list(queries)
    positions = np.arange(limit, dtype=np.int64) * len(queries) // limit
    return [queries[position] for position in positions.tolist()]


def count_parameters(checkpoint: Path | None) -> int | None:
    return None if checkpoint is None else CheckpointDescription.read(checkpoint).parameters or None


def encoding_rate(retrieval: Retrieval) -> float | None:
    """Return the documents per second that this job encoded, or indexed if its engine does not encode.

    Returns None if nothing was encoded.
    """
    if retrieval.encoded_documents is None:
        return retrieval.documents / retrieval.build_seconds if retrieval.build_seconds > 0 else None
    if not retrieval.encoded_documents or retrieval.encoding_seconds <= 0:
        return None
    return retrieval.encoded_documents / retrieval.encoding_seconds


def job_seconds(retrieval: Retrieval) -> float | None:
    """Return the seconds from corpus to run, or None if this job did not build the whole index."""
    return retrieval.build_seconds + retrieval.search_seconds if retrieval.built_whole else None


def _search(engine: Engine, queries: Sequence[Query]) -> None:
    for _ in engine.search(queries, DEPTH):
        pass


def _warm_up(
    engine: Engine, timed_queries: Sequence[Query], searches: int, most_seconds: float
) -> tuple[float, list[float]]:
    """Search evenly spaced queries up to `searches` times or for `most_seconds`.

    Returns:
        The mean floating point operations of a search, and the seconds of each search.
    """
    queries, durations = sample_evenly(timed_queries, searches), list[float]()
    with operations.count_operations() as operation_count:
        for query in (queries * -(-searches // len(queries)))[:searches]:
            start = read_moment().elapsed
            _search(engine, [query])
            durations.append(read_moment().elapsed - start)
            if sum(durations) >= most_seconds:
                break
    return operation_count.flops / len(durations), durations


def flops_per_document(engine: Engine, corpus: Path, folder: Path) -> float | None:
    """Return the mean operations of encoding a document without padding, over a sample of one in 200.

    The sample has 4 to 64 evenly spaced documents, which are encoded again inside `folder`. Returns None if the engine
    does not encode documents.
    """
    if not isinstance(engine, ShardedEngine):
        return None
    total = count_documents(corpus)
    sample_size = min(max(total // 200, _MIN_DOCUMENTS), _MAX_DOCUMENTS, total)
    positions = [number * total // sample_size for number in range(sample_size)]
    selected_positions = set(positions)
    if read_table(corpus) is not None:
        documents = [next(read_corpus(corpus, first_document=position)) for position in positions]
    else:
        documents = [document for number, document in enumerate(read_corpus(corpus)) if number in selected_positions]
    flops = 0
    for document in documents:
        with TemporaryDirectory(dir=folder) as shard_folder, operations.count_operations() as operation_count:
            engine.encode_shard([document], Path(shard_folder))
        flops += operation_count.flops
    return flops / len(documents) if flops else None


class _TimedRounds:
    """Timed searches in rounds, until the interval of their mean is narrow or the effort is exhausted."""

    def __init__(self, engine: Engine, timed_queries: Sequence[Query], effort: Effort, device: str) -> None:
        self._engine, self._timed_queries, self._effort, self._device = engine, timed_queries, effort, device
        self._confirmed = np.zeros(len(timed_queries), dtype=bool)
        self._seconds: list[list[float]] = []
        self._joules = 0.0
        self._evicting = 0.0
        self._peak_memory = peak_before_eviction()
        self.elapsed = 0.0
        self.interruptions = 0
        self.other_work: float | None = None

    def times(self) -> Times:
        """Return the seconds of each search, shape (rounds, queries)."""
        return np.array(self._seconds, dtype=np.float64)

    def figures(self) -> dict[str, Any]:
        """Return the fields of `EfficiencyFigures` that follow from the timed searches.

        `parts_ms` scales the total time of each part to the mean latency.
        """
        times = self.times()
        share = 1000 * float(times.min(axis=0).mean()) / self.elapsed if self.elapsed else 0.0
        return {
            "protocol": PROTOCOL,
            "depth": DEPTH,
            "threads": THREADS,
            "searches": times.size,
            "queries": len(self._timed_queries),
            "rounds": len(times),
            "latency_ms": Latency.from_seconds(times.min(axis=0)),
            "spread_ms": mean_spread(times),
            "unsettled": self.count_unsettled(),
            "interruptions": self.interruptions,
            "other_work": self.other_work,
            "peak_memory_bytes": self._peak_memory,
            "parts_ms": {part: seconds * share for part, seconds in self._engine.clock.seconds.items()},
        }

    def count_unsettled(self) -> int:
        """Count the queries without a confirmed fastest search, or with a disturbance in every round."""
        quickest, second = np.sort(self.times(), axis=0)[:2]
        return int((~((second <= (1 + SETTLED_DIFFERENCE) * quickest) & self._confirmed)).sum())

    def run(self, report: MeasureProgress, meter: EnergyMeter) -> float | None:
        """Search in rounds until the effort is reached, and return the joules per search.

        Returns None without energy counters.
        """
        other_work = OtherWork()
        while not self._is_enough():
            self._run_round(report, meter)
        self.other_work = other_work.share()
        return max(self._joules, 0.0) / self.times().size if meter.counters else None

    def _is_enough(self) -> bool:
        """Return whether the rounds may end: before one that exceeds the maximum effort, or with stable times.

        At least two rounds and the minimum number of searches are required.
        """
        effort, rounds = self._effort, len(self._seconds)
        if rounds < 2 or rounds * len(self._timed_queries) < effort.searches:
            return False
        seconds = self.elapsed + self._evicting
        if rounds >= effort.most_rounds or seconds * (rounds + 1) / rounds > effort.most_seconds:
            return True  # another round would take too long
        if rounds < effort.rounds and seconds < effort.seconds:
            return False
        mean = 1000 * float(self.times().min(axis=0).mean())
        is_settled = self.count_unsettled() <= MAX_UNSETTLED * len(self._timed_queries)
        return is_settled and mean_spread(self.times()) <= NARROW * mean

    def _run_round(self, report: MeasureProgress, meter: EnergyMeter) -> None:
        """Search every query once with cold caches, adding to the times, energy, and interruptions of all rounds."""
        rounds_done, expected_rounds = len(self._seconds), max(self._effort.rounds, len(self._seconds) + 1)
        seconds = []
        for number, query in enumerate(self._timed_queries):
            eviction_start = perf_counter()
            evict_caches()
            self._evicting += perf_counter() - eviction_start
            joules = meter.joules() or 0.0
            start = read_moment()
            _search(self._engine, [query])
            end = read_moment()
            self._joules += (meter.joules() or 0.0) - joules
            timing = search_time(start, end, device=self._device)
            seconds.append(timing.seconds)
            self.elapsed += timing.elapsed
            self.interruptions += end.interruptions - start.interruptions
            self._confirmed[number] |= timing.undisturbed
            report((rounds_done + number / len(self._timed_queries)) / expected_rounds)
        self._seconds.append(seconds)


def mean_spread(times: Times) -> float:
    """Return the largest increase of the mean, in ms, when one of up to five groups of rounds is omitted.

    Args:
        times: Seconds of each search, shape (rounds, queries), with at least two rounds. Groups are consecutive rounds.
    """
    groups = np.array_split(np.arange(len(times)), min(GROUPS, len(times)))
    means = [np.delete(times, group, axis=0).min(axis=0).mean() for group in groups]
    return float(1000 * (max(means) - times.min(axis=0).mean()))


def _throughput(engine: Engine, queries: Sequence[Query], limit: int) -> float | None:
    """Return queries per second in batches, over at most `limit` queries.

    Returns None if there is no whole batch or the clock is too coarse.
    """
    if limit < min(BATCH, len(queries)):
        return None
    queries = sample_evenly(queries, limit)
    start_time = read_moment().elapsed
    for start in range(0, len(queries), BATCH):
        _search(engine, queries[start : start + BATCH])
    seconds = read_moment().elapsed - start_time
    return len(queries) / seconds if seconds > 0 else None
