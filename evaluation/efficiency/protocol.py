"""Protocol v4 for the time of a search and the resources of a system, measured where its index is.

One search at a time, in one process and one thread, from a query's text to its top 100 with ids. After 20 searches
that are not counted, up to 100 queries, spaced evenly over all, are searched in rounds, each in the same
order. A query's time is that of its fastest search. The time for which the kernel gave the processor to other work is
excluded: a thread that never waited by itself needed only its own processor time. Searches that wait, and
those on a GPU, count with all their elapsed time. Results are not cached. A system's first stage and the encoding of
the query are part of its time, and reported separately.

Before each timed search the processor's caches are filled with other data, so that the index and the model are read
from memory, as when queries arrive one by one. Otherwise a search is up to four times faster if other work on the host,
also in other virtual machines, happens to leave a shared cache to it.

There are at least 200 searches and two rounds, and ten rounds if these take less than ten seconds. Rounds continue
until the interval of the mean is narrow, or until forty rounds or thirty seconds, with the time to fill caches. For the
interval, rounds are divided into up to five consecutive groups: the spread is the largest increase of the mean when one
group is left out, so a time that occurred in only one group widens it. `unsettled` counts the queries whose two fastest
searches differ by more than a tenth, or that were interrupted whenever they waited. `other_work` is the share of the
machine's processors that other processes used meanwhile.

Throughput is over all queries, or 1,000 that are spaced evenly over more, in batches of 64, once, with all threads of
the job.

All searches together take at most a tenth of the seconds that building and searching took, or a minute if that is more.
If a search takes too long for this, warming up ends after a tenth of the time, fewer queries are timed, twice each,
and throughput is over fewer whole batches or is missing. If there is no time for two queries, there are no figures.
`searches`, `queries`, `rounds` and `batched` say what was done.

Floating point operations of a search are counted while it warms up, over those 20 searches, which are spaced evenly
over the queries; for BM25, over all that are timed, searched once more. Those of a document are counted over a sample
that is encoded again. Nothing is counted while it is timed.
Variants of a system, such as a re-ranker's lesser depths, are measured with less effort, because the machine is held
for it: 5 searches warm up, at least 50 are timed, and throughput is over 128 queries.
Build time, the rate of encoding, the size of the index and the peak of memory are those of the job that built it.
A figure of one protocol is never compared with one of another.
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
from evaluation.collections.beir import Document, Query, count_documents, read_corpus, read_table
from evaluation.efficiency.measurements import (
    BATCH,
    MOST_UNSETTLED,
    SHARE_OF_WARM_UP,
    WHOLE,
    EfficiencyFigures,
    Effort,
    Latency,
    affordable,
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
    time_between,
)
from evaluation.engines import Engine, Retrieval, ShardedEngine, operations
from evaluation.engines.index.term_search import TermEngine

__all__ = ["PROTOCOL", "EfficiencyFigures", "Latency", "measure", "parameters_of"]

PROTOCOL = "v4"
#: How deep a timed search goes.
DEPTH = 100
#: Groups of rounds that the spread is over.
GROUPS = 5
#: A query is settled where its two quickest searches differ by no more than this share.
SETTLED = 0.1
#: Rounds end where the spread is within this share of the mean.
NARROW = 0.03
#: How many documents are encoded again to count operations: one of 200, within these bounds.
_LEAST_DOCUMENTS, _MOST_DOCUMENTS = 4, 64

#: Seconds of searches, shape (rounds, queries).
Times = npt.NDArray[np.float64]

#: Told the share of the measuring that is done, 0 to 1. It may raise to stop.
MeasureProgress = Callable[[float], None]


@cache
def peak_before_eviction() -> int:
    """Return the peak of memory in bytes when it was asked for first, before caches were filled with other data."""
    return peak_memory()


@dataclass(frozen=True, slots=True)
class System:
    """An engine whose index is open.

    Attributes:
        engine: The engine, ready to search.
        retrieval: How the index was built.
        device: Where the engine computes, "cpu" or "cuda".
        checkpoint: The folder of the model that it runs, if any.
    """

    engine: Engine
    retrieval: Retrieval
    device: str = "cpu"
    checkpoint: Path | None = None


def measure(
    system: System,
    queries: Sequence[Query],
    effort: Effort = WHOLE,
    budget: float = math.inf,
    progress: MeasureProgress = lambda share: None,
) -> EfficiencyFigures:
    """Measure the costs of a system.

    Args:
        system: The system.
        queries: All queries of the dataset. Raises ValueError if there are none.
        effort: How many searches to time.
        budget: Seconds that searching may take, by the searches that warm up. Raises TooSlow for less than two queries.
        progress: Called with the share done; may raise to stop.
    """
    if not queries:
        raise ValueError("there are no queries, so there is no search to time")
    engine, retrieval = system.engine, system.retrieval
    timed, meter = sample_evenly(queries, effort.queries), open_meter(system.device)
    with one_thread():
        progress(0.0)
        flops, warm = _warm_up(engine, timed, effort.warm_up, budget * SHARE_OF_WARM_UP)
        left = budget - sum(warm)
        effort, in_batches = _affordable_effort(effort, left, warm, retrieval, len(queries))
        timed = sample_evenly(queries, effort.queries)
        engine.clock.seconds.clear()
        rounds = _TimedRounds(engine, timed, effort, system.device)
        energy = rounds.run(progress, meter)
    left = max(left - rounds.elapsed, 0.0)
    wanted = min(effort.batched, len(queries))
    if (batched := affordable(wanted, left, in_batches)) < wanted:
        batched -= batched % BATCH
    figures = rounds.figures()  # before other searches add to the engine's clock
    throughput = _throughput(engine, queries, batched)
    if isinstance(engine, TermEngine) and system.checkpoint is None:
        with operations.counting() as counted:  # quick, and differing more from query to query
            _search(engine, timed)
        flops = counted.flops / len(timed)
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
        parameters=parameters_of(system.checkpoint),
        energy_joules_per_query=energy,
        energy_source=meter.source if energy is not None else "",
        flops_per_query=flops or None,
    )


def _affordable_effort(
    effort: Effort, left: float, warm: Sequence[float], retrieval: Retrieval, queries: int
) -> tuple[Effort, float]:
    """Return as much of the effort as the seconds left suffice for, and the seconds of a search in batches.

    `warm` are the seconds of the searches that warmed up. Raises TooSlow.
    """
    # One quick query among them must not decide. A variant's searches are shorter than those of the job.
    in_job = retrieval.search_seconds / max(retrieval.queries, 1)
    alone = max(sum(warm) / len(warm), min(in_job, max(warm)))
    in_batches = min(alone, in_job)
    fits = in_batches * min(BATCH, queries) <= left / 2
    return effort.within(left / 2 if fits else left, alone, queries), in_batches


def sample_evenly(queries: Sequence[Query], most: int) -> list[Query]:
    """Return at most `most` queries, evenly over all of them and in their order."""
    if len(queries) <= most:
        return list(queries)
    places = np.arange(most, dtype=np.int64) * len(queries) // most
    return [queries[place] for place in places.tolist()]


def parameters_of(checkpoint: Path | None) -> int | None:
    """Return the number of weights of a rebuilt checkpoint, None without a model."""
    return None if checkpoint is None else CheckpointDescription.read(checkpoint).parameters


def encoding_rate(retrieval: Retrieval) -> float | None:
    """Return documents a second that this job encoded, or indexed if nothing is encoded; None for nothing."""
    if retrieval.encoded_documents is None:
        return retrieval.documents / retrieval.build_seconds if retrieval.build_seconds > 0 else None
    if not retrieval.encoded_documents or retrieval.encoding_seconds <= 0:
        return None
    return retrieval.encoded_documents / retrieval.encoding_seconds


def job_seconds(retrieval: Retrieval) -> float | None:
    """Return seconds from the corpus to the run of all queries, None if this job did not build the whole index."""
    return retrieval.build_seconds + retrieval.search_seconds if retrieval.built_whole else None


def _search(engine: Engine, queries: Sequence[Query]) -> None:
    for _ in engine.search(queries, DEPTH):
        pass


def _warm_up(
    engine: Engine, timed: Sequence[Query], searches: int, most_seconds: float
) -> tuple[float, list[float]]:
    """Search so often, or until the time is over, for queries that lie evenly over those that are timed.

    Returns the mean operations of a search, and the seconds of each.
    """
    queries, taken = sample_evenly(timed, searches), list[float]()
    with operations.counting() as counted:
        for query in (queries * -(-searches // len(queries)))[:searches]:
            started = read_moment().elapsed
            _search(engine, [query])
            taken.append(read_moment().elapsed - started)
            if sum(taken) >= most_seconds:
                break
    return counted.flops / len(taken), taken


def flops_of_documents(engine: Engine, corpus: Path, folder: Path) -> float | None:
    """Return the mean operations of encoding a document, by itself and so without padding, over one of 200.

    At least 4 documents are encoded again inside `folder`, and 64 at most, which lie evenly over all. None where
    documents are not encoded.
    """
    if not isinstance(engine, ShardedEngine):
        return None
    flops, documents = 0, _sample_documents(corpus)
    for document in documents:
        with TemporaryDirectory(dir=folder) as place, operations.counting() as found:
            engine.encode_shard([document], Path(place))
        flops += found.flops
    return flops / len(documents) if flops else None


def _sample_documents(corpus: Path) -> list[Document]:
    total = count_documents(corpus)
    wanted = min(max(total // 200, _LEAST_DOCUMENTS), _MOST_DOCUMENTS, total)
    places = [number * total // wanted for number in range(wanted)]
    if read_table(corpus) is not None:
        return [next(read_corpus(corpus, first=place)) for place in places]
    chosen = set(places)
    return [document for number, document in enumerate(read_corpus(corpus)) if number in chosen]


class _TimedRounds:
    """The timed searches, round by round, until the interval of their mean is narrow or the effort is spent."""

    def __init__(self, engine: Engine, timed: Sequence[Query], effort: Effort, device: str) -> None:
        self._engine, self._timed, self._effort, self._device = engine, timed, effort, device
        self._confirmed = np.zeros(len(timed), dtype=bool)
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
        """Return the figures of the searches; `parts_ms` scales the time of each part over all searches to the mean."""
        times = self.times()
        share = 1000 * float(times.min(axis=0).mean()) / self.elapsed if self.elapsed else 0.0
        return {
            "protocol": PROTOCOL,
            "depth": DEPTH,
            "threads": THREADS,
            "searches": times.size,
            "queries": len(self._timed),
            "rounds": len(times),
            "latency_ms": Latency.of(times.min(axis=0)),
            "spread_ms": mean_spread(times),
            "unsettled": self.unsettled(),
            "interruptions": self.interruptions,
            "other_work": self.other_work,
            "peak_memory_bytes": self._peak_memory,
            "parts_ms": {part: spent * share for part, spent in self._engine.clock.seconds.items()},
        }

    def unsettled(self) -> int:
        """Count the queries whose fastest search no other one confirms, or that were disturbed in every round."""
        quickest, second = np.sort(self.times(), axis=0)[:2]
        return int((~((second <= (1 + SETTLED) * quickest) & self._confirmed)).sum())

    def run(self, report: MeasureProgress, meter: EnergyMeter) -> float | None:
        """Search in rounds and return the joules of a search. Progress is reported between timed searches."""
        others = OtherWork()
        while not self._is_enough():
            self._round(report, meter)
        self.other_work = others.share()
        return max(self._joules, 0.0) / self.times().size if meter.counters else None

    def _is_enough(self) -> bool:
        effort, rounds = self._effort, len(self._seconds)
        if rounds < 2 or rounds * len(self._timed) < effort.searches:
            return False
        seconds = self.elapsed + self._evicting
        if rounds >= effort.most_rounds or seconds * (rounds + 1) / rounds > effort.most_seconds:
            return True  # another round would take too long
        if rounds < effort.rounds and seconds < effort.seconds:
            return False
        mean = 1000 * float(self.times().min(axis=0).mean())
        settled = self.unsettled() <= MOST_UNSETTLED * len(self._timed)
        return settled and mean_spread(self.times()) <= NARROW * mean

    def _round(self, report: MeasureProgress, meter: EnergyMeter) -> None:
        done, wanted = len(self._seconds), max(self._effort.rounds, len(self._seconds) + 1)
        seconds = []
        for number, query in enumerate(self._timed):
            before = perf_counter()
            evict_caches()
            self._evicting += perf_counter() - before
            joules = meter.joules() or 0.0
            start = read_moment()
            _search(self._engine, [query])
            end = read_moment()
            self._joules += (meter.joules() or 0.0) - joules
            timing = time_between(start, end, device=self._device)
            seconds.append(timing.seconds)
            self.elapsed += timing.elapsed
            self.interruptions += end.interruptions - start.interruptions
            self._confirmed[number] |= timing.undisturbed
            report((done + number / len(self._timed)) / wanted)
        self._seconds.append(seconds)


def mean_spread(times: Times) -> float:
    """Return the largest increase of the mean, in ms, when one of up to five groups of rounds is left out.

    Groups are consecutive. `times` are seconds of each search, shape (rounds, queries), with at least two rounds.
    """
    groups = np.array_split(np.arange(len(times)), min(GROUPS, len(times)))
    means = [np.delete(times, group, axis=0).min(axis=0).mean() for group in groups]
    return float(1000 * (max(means) - times.min(axis=0).mean()))


def _throughput(engine: Engine, queries: Sequence[Query], most: int) -> float | None:
    """Return queries per second in batches, over at most `most`, or None without a whole batch or a fine clock."""
    if most < min(BATCH, len(queries)):
        return None
    queries = sample_evenly(queries, most)
    started = read_moment().elapsed
    for start in range(0, len(queries), BATCH):
        _search(engine, queries[start : start + BATCH])
    seconds = read_moment().elapsed - started
    return len(queries) / seconds if seconds > 0 else None
