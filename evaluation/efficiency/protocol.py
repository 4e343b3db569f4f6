"""Protocol v2: how long a search takes, and what the system needs, measured where its index lies.

One search at a time, in one process with a declared number of threads, from a query's text to its top 100 with ids.
After 20 searches that are not counted, up to 100 queries, which lie evenly over all, are searched in rounds: all in
their order, again and again. A query's time is that of its quickest search. Whatever else runs on the machine delays
searches and speeds none up, so this is what the system itself needs: beside busy loops on every core it differs by some
per cent from that of an idle machine, where a mean over all searches is several times as long. Nothing is kept between
two searches. A system's first stage and the encoding of the query are part of its time, and told apart.

There are at least 200 searches and two rounds, and ten rounds where these take less than ten seconds. Then rounds go on
over the queries that are not settled, up to thirty rounds or thirty seconds: those whose two quickest searches differ
by more than a tenth, or that were interrupted in every round (the kernel counts how often it takes a processor away).
How many are left is told. How well the mean is known is told too: rounds are divided into up to five groups, one after
the other, and the spread is the most that the mean rises by where one group is left out.

Throughput is over all queries, or 1,000 that lie evenly over more, handed over in batches of 64, once.

All searches together take at most a tenth of the seconds that building and searching took, or a minute if that is more.
If a search takes too long for this, warming up ends after a tenth of the time, fewer queries are timed, twice each,
and throughput is over fewer whole batches or is missing. If there is no time for two queries, there are no figures.
`searches`, `queries`, `rounds` and `batched` say what was done.

Floating point operations of a search are counted while it warms up, over those 20 searches, which lie evenly over the
queries; of BM25, over all that are timed, searched once more. Those of a document are counted over a sample
that is encoded again. Nothing is counted while it is timed.
What a system gives beside its main result, such as a re-ranker's lesser depths, is measured with less effort, because
the machine is held for it: 5 searches warm up, at least 50 are timed, and throughput is over 128 queries.
Build time, the rate of encoding, the size of the index and the peak of memory are those of the job that built it.
A figure of one protocol is never compared with one of another.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import numpy as np
import numpy.typing as npt

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Document, Query, count_documents, read_corpus
from evaluation.collections.blocks import read_table
from evaluation.efficiency.effort import BATCH, SHARE_OF_WARM_UP, WHOLE, Effort, affordable
from evaluation.efficiency.measurements import EfficiencyFigures, Latency
from evaluation.efficiency.meters import EnergyMeter, open_meter, peak_gpu_memory, peak_memory
from evaluation.engines import operations
from evaluation.engines.base import Engine, Retrieval, ShardedEngine
from evaluation.engines.index.term_search import TermEngine

__all__ = ["PROTOCOL", "EfficiencyFigures", "Latency", "measure", "parameters_of"]

PROTOCOL = "v2"
#: How deep a timed search goes.
DEPTH = 100
#: Seconds between two rounds: a short disturbance does not meet them all.
PAUSE_SECONDS = 0.1
#: Groups of rounds that the spread is over.
GROUPS = 5
#: A query is settled where its two quickest searches differ by no more than this share.
SETTLED = 0.1
#: How many documents are encoded again to count operations: one of 200, within these bounds.
_LEAST_DOCUMENTS, _MOST_DOCUMENTS = 4, 64

#: Seconds of searches, shape (rounds, queries).
Times = npt.NDArray[np.float64]

#: Told the share of the measuring that is done, 0 to 1. It may raise to stop.
MeasureProgress = Callable[[float], None]


def _interruptions() -> int:
    """How often a processor was taken from a thread of this process that could have worked on."""
    return getrusage(RUSAGE_SELF).ru_nivcsw


def measure(
    engine: Engine,
    queries: Sequence[Query],
    retrieval: Retrieval,
    *,
    threads: int,
    device: str = "cpu",
    checkpoint: Path | None = None,
    effort: Effort = WHOLE,
    budget: float = math.inf,
    progress: MeasureProgress | None = None,
    meter: EnergyMeter | None = None,
    clock: Callable[[], float] = perf_counter,
    interruptions: Callable[[], int] = _interruptions,
    pause: Callable[[float], None] = sleep,
) -> EfficiencyFigures:
    """What the engine, whose index is open, costs. `retrieval` says how it was built, `checkpoint` what model it runs.

    `threads` is how many cores it was given, which is declared, not found out. Searching takes about `budget` seconds
    at most, as far as the searches that warm up tell how long the others will take.
    `meter` counts energy, by default with what the machine offers. `clock` gives seconds, `interruptions` how often the
    process had to give up a processor. Raises ValueError where there is no query, and TooSlow.
    """
    if not queries:
        raise ValueError("there are no queries, so there is no search to time")
    report = progress or (lambda share: None)
    timed, counter = sample_evenly(queries, effort.queries), meter or open_meter(device)
    flops, warm = _warm_up(engine, timed, effort.warm_up, budget * SHARE_OF_WARM_UP, clock, report)
    left = budget - sum(warm)
    effort, in_batches = _affordable_effort(effort, left, warm, retrieval, len(queries))
    timed = sample_evenly(queries, effort.queries)
    engine.clock.seconds.clear()
    rounds = _TimedRounds(engine, timed, effort, clock, interruptions, pause)
    energy = rounds.run(report, counter)
    times = rounds.times()
    parts = _parts(engine, times)
    left = max(left - float(np.nansum(times)), 0.0)
    wanted = min(effort.batched, len(queries))
    if (batched := affordable(wanted, left, in_batches)) < wanted:
        batched -= batched % BATCH
    throughput = _throughput(engine, queries, batched, clock)
    if isinstance(engine, TermEngine) and checkpoint is None:  # quick, and differing more from query to query
        flops = _flops_of_searches(engine, timed)
    report(1.0)
    return EfficiencyFigures(
        protocol=PROTOCOL,
        depth=DEPTH,
        threads=threads,
        device=device,
        searches=int(np.isfinite(times).sum()),
        queries=len(timed),
        documents=retrieval.documents,
        latency_ms=Latency.of(np.nanmin(times, axis=0)),
        rounds=len(times),
        spread_ms=mean_spread(times),
        unsettled=len(rounds.unsettled()),
        parts_ms=parts,
        queries_per_second=throughput,
        batched=batched if throughput is not None else 0,
        documents_per_second=encoding_rate(retrieval),
        build_seconds=retrieval.build_seconds if retrieval.built_whole else None,
        index_bytes=retrieval.index_bytes,
        peak_memory_bytes=peak_memory(),
        peak_gpu_memory_bytes=peak_gpu_memory() if device == "cuda" else None,
        parameters=parameters_of(checkpoint),
        energy_joules_per_query=energy,
        energy_source=counter.source if energy is not None else "",
        job_seconds=job_seconds(retrieval),
        flops_per_query=flops or None,
    )


def _affordable_effort(
    effort: Effort, left: float, warm: Sequence[float], retrieval: Retrieval, queries: int
) -> tuple[Effort, float]:
    """As much of the effort as the seconds that are left suffice for, and the seconds of a search in batches.

    `warm` are the seconds of the searches that warmed up. Raises TooSlow.
    """
    # One quick query among them must not decide. A variant's searches are shorter than those of the job.
    in_job = retrieval.search_seconds / max(retrieval.queries, 1)
    alone = max(sum(warm) / len(warm), min(in_job, max(warm)))
    in_batches = min(alone, in_job)
    fits = in_batches * min(BATCH, queries) <= left / 2
    return effort.within(left / 2 if fits else left, alone, queries), in_batches


def sample_evenly(queries: Sequence[Query], most: int) -> list[Query]:
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


def job_seconds(retrieval: Retrieval) -> float | None:
    """Seconds from the corpus to the run of all queries; None where the index was not built by this job alone."""
    return retrieval.build_seconds + retrieval.search_seconds if retrieval.built_whole else None


def _search(engine: Engine, queries: Sequence[Query]) -> None:
    for _ in engine.search(queries, DEPTH):
        pass


def _warm_up(
    engine: Engine,
    timed: Sequence[Query],
    searches: int,
    most_seconds: float,
    clock: Callable[[], float],
    report: MeasureProgress,
) -> tuple[float, list[float]]:
    """Search so often, or until the time is over, for queries that lie evenly over those that are timed.

    Returns the mean operations of a search, and the seconds of each.
    """
    report(0.0)
    queries, taken = sample_evenly(timed, searches), list[float]()
    with operations.counting() as counted:
        for query in (queries * -(-searches // len(queries)))[:searches]:
            started = clock()
            _search(engine, [query])
            taken.append(clock() - started)
            if sum(taken) >= most_seconds:
                break
    return counted.flops / len(taken), taken


def _flops_of_searches(engine: Engine, queries: Sequence[Query]) -> float:
    """The mean operations of a search, over these queries."""
    with operations.counting() as counted:
        _search(engine, queries)
    return counted.flops / len(queries)


def flops_of_documents(engine: Engine, corpus: Path, folder: Path) -> float | None:
    """The mean operations of encoding a document, by itself and so without padding, over one of 200.

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
    """The timed searches, round by round, until enough is known."""

    def __init__(
        self,
        engine: Engine,
        timed: Sequence[Query],
        effort: Effort,
        clock: Callable[[], float],
        interruptions: Callable[[], int],
        pause: Callable[[float], None],
    ) -> None:
        self._engine, self._timed, self._effort = engine, timed, effort
        self._clock, self._interruptions, self._pause = clock, interruptions, pause
        self._undisturbed = np.zeros(len(timed), dtype=bool)
        self._seconds: list[list[float]] = []

    def times(self) -> Times:
        """The seconds of each search, shape (rounds, queries), NaN where a query was settled before."""
        return np.array(self._seconds, dtype=np.float64)

    def unsettled(self) -> list[int]:
        """The places of the queries whose quickest search no other confirms, or that were interrupted each time."""
        quickest, second = np.sort(self.times(), axis=0)[:2]  # NaN comes last
        settled = (second <= (1 + SETTLED) * quickest) & self._undisturbed
        return np.flatnonzero(~settled).tolist()

    def run(self, report: MeasureProgress, counter: EnergyMeter) -> float | None:
        """Search in rounds; returns the joules of a search. Progress is told between two searches, and not counted."""
        before = counter.joules()
        effort, everything = self._effort, range(len(self._timed))
        every = max(1, effort.searches // len(self._timed) // effort.rounds)
        spent, asked = 0.0, list(everything)
        while asked:
            if self._seconds and len(self._seconds) % every == 0:
                self._pause(PAUSE_SECONDS)
            self._round(asked, report)
            spent += float(np.nansum(self._seconds[-1]))
            rounds = len(self._seconds)
            if rounds < 2 or rounds * len(self._timed) < effort.searches:
                continue
            if rounds < effort.rounds and spent < effort.seconds:
                continue
            enough = rounds >= effort.most_rounds or spent >= effort.most_seconds
            asked = [] if enough else self.unsettled()
        after, searches = counter.joules(), int(np.isfinite(self.times()).sum())
        return None if before is None or after is None else max(after - before, 0.0) / searches

    def _round(self, asked: Sequence[int], report: MeasureProgress) -> None:
        done, wanted = len(self._seconds), max(self._effort.rounds, len(self._seconds) + 1)
        self._seconds.append([np.nan] * len(self._timed))
        for number in asked:
            before = self._interruptions()
            started = self._clock()
            _search(self._engine, [self._timed[number]])
            self._seconds[-1][number] = self._clock() - started
            self._undisturbed[number] |= self._interruptions() == before
            report((done + number / len(self._timed)) / wanted)


def mean_spread(times: Times) -> float:
    """By how many milliseconds the mean rises at most where one of up to five consecutive groups of rounds is left out.

    `times` are seconds of each search, shape (rounds, queries), of at least two rounds; NaN where there was none.
    """
    groups = np.array_split(np.arange(len(times)), min(GROUPS, len(times)))
    means = [_mean(np.delete(times, group, axis=0), times) for group in groups]
    return float(1000 * (max(means) - _mean(times, times)))


def _mean(some: Times, every: Times) -> float:
    """The mean of the queries' quickest searches among some rounds; of all, of a query that those have no search of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of columns without a number
        quickest = np.nanmin(some, axis=0)
    return float(np.where(np.isnan(quickest), np.nanmin(every, axis=0), quickest).mean())


def _parts(engine: Engine, times: Times) -> dict[str, float]:
    """Milliseconds of each part of a search: its share of all searches, of the mean over the quickest."""
    share = 1000 * _mean(times, times) / np.nansum(times)
    return {part: float(spent * share) for part, spent in engine.clock.seconds.items()}


def _throughput(
    engine: Engine, queries: Sequence[Query], most: int, clock: Callable[[], float]
) -> float | None:
    """Queries a second, in batches, over so many; None where that is no batch, or the clock is too coarse to say."""
    if most < min(BATCH, len(queries)):
        return None
    queries = sample_evenly(queries, most)
    started = clock()
    for start in range(0, len(queries), BATCH):
        _search(engine, queries[start : start + BATCH])
    seconds = clock() - started
    return len(queries) / seconds if seconds > 0 else None
