"""Measuring what a search costs: which searches are timed, what is told of them, and on which machine."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from evaluation.collections.beir import Document, Query
from evaluation.efficiency import (
    PROTOCOL,
    EfficiencyFigures,
    meters,
    noise_reasons,
    protocol,
)
from evaluation.efficiency.measurements import FULL_EFFORT, VARIANT_EFFORT, Latency, TooSlow, measuring_seconds
from evaluation.efficiency.meters import EnergyMeter, Moment, OtherWork, one_thread
from evaluation.efficiency.protocol import System, encoding_rate, mean_spread, measure, sample_evenly
from evaluation.engines import Engine, Resources, Retrieval, RetrievalTask, retrieve
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import SearchResult


class Ticking:
    """A clock that moves when the engine works, on a thread that nothing interrupts."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> Moment:
        return Moment(self.now, self.now, 0, 0)


class Scripted(Engine):
    """An engine whose search takes as many seconds as the query's text says, an eighth of it encoding."""

    def __init__(self, clock: Ticking) -> None:
        super().__init__({}, Resources())
        self.ticking = clock
        self.searched: list[tuple[int, str]] = []

    def build(self, corpus: Any, folder: Path, progress: Any = None) -> None:
        raise NotImplementedError

    def open(self, folder: Path) -> None:
        raise NotImplementedError

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        for query in queries:
            self.searched.append((len(queries), query.id))
            seconds = float(query.text)
            self.ticking.now += seconds
            self.clock.seconds["query_encoding"] = self.clock.seconds.get("query_encoding", 0) + seconds / 8
            yield SearchResult(query.id, [], np.empty(0, np.float32))

    def size(self) -> int:
        return 7

    documents = 3
    analyser_name = "none"


RETRIEVAL = Retrieval(
    engine="scripted",
    parameters={},
    analyser="none",
    documents=1000,
    queries=3,
    queries_without_results=0,
    lines=0,
    index_bytes=7,
    build_seconds=4.0,
    search_seconds=1.0,
)


#: A file of counters that does not exist, so that other work is unknown.
NO_STATISTICS = Path("/nowhere")


def measure_by(
    clock: Callable[[], Moment],
    system: System,
    queries: Sequence[Query],
    evict: Callable[[], None] = lambda: None,
    meter: EnergyMeter | None = None,
    **options: Any,
) -> EfficiencyFigures:
    """Measure with the readings of `clock`, without waiting, and without other work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "read_moment", clock)
        patch.setattr(protocol, "evict_caches", evict)
        patch.setattr(meters, "STATISTICS", NO_STATISTICS)
        if meter is not None:
            patch.setattr(protocol, "open_meter", lambda device: meter)
        return measure(system, queries, **options)


def figures_of(
    seconds: Sequence[float],
    retrieval: Retrieval = RETRIEVAL,
    device: str = "cpu",
    clock: Callable[[], Moment] | None = None,
    **options: Any,
) -> tuple[EfficiencyFigures, Scripted]:
    ticking = Ticking()
    engine = Scripted(ticking)
    queries = [Query(f"q{number}", repr(taken)) for number, taken in enumerate(seconds)]
    system = System(engine, retrieval, device)
    return measure_by(clock or ticking, system, queries, **options), engine


def test_few_queries_are_cycled_equally_often_after_twenty_searches_that_are_not_counted() -> None:
    figures, engine = figures_of([0.010, 0.020, 0.030])
    single = [name for size, name in engine.searched if size == 1]
    assert single[:20] == (["q0", "q1", "q2"] * 7)[:20]
    assert single[20:] == ["q0", "q1", "q2"] * 67
    assert (figures.searches, figures.queries, figures.rounds) == (201, 3, 67)
    assert figures.latency_ms.mean == pytest.approx(20)
    assert (figures.latency_ms.p50, figures.latency_ms.p95) == (pytest.approx(20), pytest.approx(30))
    assert figures.parts_ms == {"query_encoding": pytest.approx(2.5)}
    assert figures.queries_per_second == pytest.approx(3 / 0.060)


def test_caches_are_emptied_before_each_timed_search() -> None:
    clock, emptied = Ticking(), []
    engine = Scripted(clock)
    queries = [Query("q", "0.01"), Query("r", "0.01")]
    figures = measure_by(clock, System(engine, RETRIEVAL), queries, lambda: emptied.append(len(engine.searched)))
    assert emptied == list(range(20, 20 + figures.searches))  # once after each search, from the end of the warm-up


def test_of_many_queries_a_hundred_are_timed_that_lie_evenly_over_them_in_ten_rounds() -> None:
    queries = [Query(str(number), "") for number in range(1000)]
    assert [query.id for query in sample_evenly(queries, 100)] == [str(10 * number) for number in range(100)]
    figures, engine = figures_of([0.001] * 300)
    single = [name for size, name in engine.searched if size == 1]
    assert single[20:120] == single[120:220] == [f"q{3 * number}" for number in range(100)]
    assert (figures.searches, figures.queries, figures.rounds) == (1000, 100, 10)


def test_a_slow_system_is_searched_in_two_rounds_and_no_more() -> None:
    figures, _ = figures_of([0.5] * 300)
    assert (figures.searches, figures.queries, figures.rounds) == (200, 100, 2)


@pytest.mark.parametrize(
    ("queries", "seconds", "timed", "searches", "batched"),
    [
        (93, 13.0, 4, 8, 0),  # twenty minutes of searching: two rounds, and no batch
        (93, 1.3, 20, 40, 0),  # two minutes: a minute may be taken in any case
        (6980, 1.3, 100, 200, 448),
        (6980, 0.13, 100, 200, 448),  # fifteen minutes
        (6980, 0.01, 100, 1000, 1000),
    ],
)
def test_measuring_takes_a_tenth_of_the_job_and_says_how_often_was_searched(
    queries: int, seconds: float, timed: int, searches: int, batched: int
) -> None:
    """The system is a re-ranker, which takes as long for a query in a batch as for one alone."""
    whole = replace(RETRIEVAL, queries=queries, build_seconds=0.0, search_seconds=queries * seconds)
    budget = measuring_seconds(whole)
    assert budget == pytest.approx(max(60, queries * seconds / 10))
    figures, engine = figures_of([seconds] * queries, whole, budget=budget)
    assert (figures.queries, figures.searches, figures.batched) == (timed, searches, batched)
    assert (figures.queries_per_second is None) == (batched == 0)
    assert figures.latency_ms.mean == pytest.approx(1000 * seconds)
    assert engine.ticking.now <= budget


@pytest.mark.parametrize("seconds", [[0.05] + [13.0] * 92, [0.0001] + [1.3] * 6979])
def test_one_quick_query_does_not_decide_how_many_are_timed(seconds: list[float]) -> None:
    whole = replace(RETRIEVAL, queries=len(seconds), build_seconds=0.0, search_seconds=sum(seconds))
    _, engine = figures_of(seconds, whole, budget=measuring_seconds(whole))
    assert engine.ticking.now <= measuring_seconds(whole)


def test_where_nothing_settles_rounds_end_with_the_time() -> None:
    whole = replace(RETRIEVAL, queries=300, build_seconds=0.0, search_seconds=15.0)
    ticking, count = Ticking(), itertools.count()
    engine = Scripted(ticking)

    def read() -> Moment:
        return Moment(ticking.now, ticking.now, next(count), next(count))  # it waits, and is interrupted

    queries = [Query(f"q{number}", "0.05") for number in range(300)]
    figures = measure_by(read, System(engine, whole), queries, budget=12.0)
    assert ticking.now <= 12
    assert figures.unsettled == figures.queries


def test_what_two_queries_cannot_be_timed_of_in_that_time_is_not_measured() -> None:
    with pytest.raises(TooSlow):
        figures_of([13.0] * 50, budget=60.0)


class Disturbed:
    """A machine on which other work takes the processor from searches: each of those takes `delay` seconds longer.

    `slowdown` is by what factor a search is slower while caches are shared with others. Both are called with a number.
    `pauses`: the thread waits in every search, as for a disk.
    """

    def __init__(
        self,
        disturbs: Callable[[int], bool] = lambda search: False,
        delay: float = 0.0,
        slowdown: Callable[[int], float] = lambda search: 1.0,
        *,
        pauses: bool = False,
    ) -> None:
        self.disturbs, self.delay, self.slowdown, self.pauses = disturbs, delay, slowdown, pauses
        self.elapsed = self.processor = 0.0
        self.searches = self.interruptions = 0
        self._timing = False

    def clock(self) -> Moment:
        """Read the clocks; every second reading ends a search of a millisecond."""
        self._timing = not self._timing
        if not self._timing:
            own, disturbed = 0.001 * self.slowdown(self.searches), self.disturbs(self.searches)
            self.searches += 1
            self.interruptions += disturbed
            self.processor += own
            self.elapsed += own + self.delay * disturbed
        pauses = self.searches if self.pauses else 0
        return Moment(self.elapsed, self.processor, pauses, self.interruptions)

    def measured(self, **options: Any) -> EfficiencyFigures:
        """Measure a system whose search takes a millisecond there."""
        meter = EnergyMeter("", [])
        return figures_of([0.0] * 100, clock=self.clock, meter=meter, **options)[0]


#: Searches that warm up, and those of one round.
WARM_UP, ROUND = 20, 100


def round_number(search: int) -> int:
    """Return the round of timed searches that a search belongs to."""
    return (search - WARM_UP) // ROUND


def test_time_that_the_kernel_gave_to_other_work_does_not_count() -> None:
    quiet = Disturbed().measured()
    busy = Disturbed(lambda search: True, 0.004).measured()
    assert quiet.latency_ms == busy.latency_ms
    assert busy.latency_ms.mean == pytest.approx(1.0)
    assert (busy.spread_ms, busy.unsettled, busy.rounds) == (pytest.approx(0), 0, 10)
    assert (quiet.interruptions, busy.interruptions) == (0, 1000)


def test_all_elapsed_time_counts_if_a_search_waited_or_used_a_gpu() -> None:
    assert Disturbed(lambda search: True, 0.004, pauses=True).measured().latency_ms.mean == pytest.approx(5.0)
    on_gpu = Disturbed(lambda search: True, 0.004).measured(device="cuda")
    assert on_gpu.latency_ms.mean == pytest.approx(5.0)
    assert on_gpu.unsettled == 100, "each of its searches was interrupted"


def test_the_fastest_of_waiting_searches_counts_and_has_a_spread() -> None:
    generator = np.random.default_rng(7)
    busy = Disturbed(lambda search: generator.random() < 0.6, 0.004, pauses=True).measured()
    assert busy.latency_ms.mean == pytest.approx(1.0, rel=0.05)
    assert busy.unsettled == 0
    assert 0 < (busy.spread_ms or 0) < 0.5
    assert busy.rounds > 10


def test_rounds_go_on_until_a_second_group_of_rounds_confirms_the_time() -> None:
    """Caches are shared for nine rounds, which slows searches down without an interruption."""
    found = Disturbed(slowdown=lambda search: 2.5 if round_number(search) < 9 else 1.0).measured()
    assert found.latency_ms.mean == pytest.approx(1.0)
    assert 10 < found.rounds < FULL_EFFORT.most_rounds
    assert found.spread_ms == pytest.approx(0.0)
    assert not noise_reasons(found.as_data())


def test_a_time_that_occurs_in_one_group_of_rounds_is_noisy() -> None:
    found = Disturbed(slowdown=lambda search: 1.0 if round_number(search) == 9 else 2.5).measured()
    assert (found.latency_ms.mean, found.rounds) == (pytest.approx(1.0), FULL_EFFORT.most_rounds)
    assert found.spread_ms == pytest.approx(1.5)
    assert "the mean is uncertain by 150%" in noise_reasons(found.as_data())


def test_unsettled_queries_are_counted_and_measuring_ends() -> None:
    def slowdown(search: int) -> float:
        """Let some of the queries be quicker in every round."""
        return 0.8 ** round_number(search) if search >= WARM_UP and (search - WARM_UP) % ROUND < 30 else 1.0

    found = Disturbed(slowdown=slowdown).measured()
    assert found.rounds == FULL_EFFORT.most_rounds
    assert found.unsettled == 30
    assert "30 of 100 queries had no stable time" in noise_reasons(found.as_data())


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ({}, 0),
        ({"unsettled": 10}, 0),
        ({"unsettled": 11}, 1),
        ({"spread_ms": 0.1}, 0),
        ({"spread_ms": 0.11}, 1),
        ({"other_work": 0.25}, 0),
        ({"other_work": 0.26}, 1),
        ({"other_work": 0.9, "spread_ms": 0.5, "unsettled": 100}, 3),
        ({"other_work": None, "spread_ms": None}, 0),
    ],
)
def test_a_measurement_is_noisy_from_fixed_bounds_on(change: dict[str, Any], reasons: int) -> None:
    figures = Disturbed().measured().as_data()
    assert figures["latency_ms"]["mean"] == pytest.approx(1.0)
    figures["latency_ms"]["mean"] = 1.0
    assert len(noise_reasons({**figures, "other_work": 0.0, **change})) == reasons


def test_other_work_is_the_share_of_processors_that_other_processes_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = tmp_path / "stat"
    monkeypatch.setattr(meters, "STATISTICS", statistics)

    def write(busy: float, idle: float) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        statistics.write_text(f"cpu  {int(busy * tick)} 0 0 {int(idle * tick)} 0 0 0 0 0 0\ncpu0 1 1 1\n")

    write(100, 50)
    other_work = OtherWork()
    write(100 + 30, 50 + 10)  # 40 seconds of processors, 30 of them busy: nearly all for others
    assert other_work.share() == pytest.approx(0.75, abs=0.01)
    write(100, 50)
    assert other_work.share() is None, "the counters did not move"
    statistics.unlink()
    assert OtherWork().share() is None


def test_searches_are_timed_with_one_thread_and_batches_with_all() -> None:
    torch, faiss = pytest.importorskip("torch"), pytest.importorskip("faiss")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == faiss.omp_get_max_threads() == 1
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
            assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert Disturbed().measured().threads == 1


def test_the_spread_is_the_most_that_the_mean_rises_by_without_one_group_of_rounds() -> None:
    rounds = np.array([[0.001], [0.009], [0.002], [0.009], [0.003], [0.009], [0.004], [0.009], [0.005], [0.009]])
    assert mean_spread(rounds) == pytest.approx(1.0), "without the first two the quickest takes 2 ms"
    assert mean_spread(np.array([[0.001], [0.004]])) == pytest.approx(3.0)


def test_what_stands_beside_the_main_result_holds_the_machine_less_long() -> None:
    figures, engine = figures_of([0.001] * 300, effort=VARIANT_EFFORT)
    single = [name for size, name in engine.searched if size == 1]
    assert single[:5] == [
        "q0",
        "q60",
        "q120",
        "q180",
        "q240",
    ]  # evenly over all: operations are counted of them
    assert single[5:10] == ["q0", "q12", "q24", "q36", "q48"]
    assert len(single) == 105
    assert (figures.searches, figures.queries, figures.rounds) == (100, 25, 4)
    assert len(engine.searched) == 105 + 128


def test_a_single_query_is_enough_and_none_is_refused() -> None:
    figures, _ = figures_of([0.001])
    assert (figures.searches, figures.queries) == (200, 1)
    with pytest.raises(ValueError, match="no search to time"):
        figures_of([])


def test_percentiles_are_times_that_occurred() -> None:
    latency = Latency.from_seconds([number / 1000 for number in range(1, 101)])
    assert (latency.mean, latency.p50, latency.p95, latency.p99) == (50.5, 50, 95, 99)


def test_progress_may_stop_the_measuring() -> None:
    class Stopped(Exception):
        pass

    def stop(share: float) -> None:
        if share > 0.5:
            raise Stopped

    with pytest.raises(Stopped):
        figures_of([0.001], progress=stop)


def test_energy_is_counted_over_the_timed_searches_alone() -> None:
    readings = (52.0 * search + spent for search in count() for spent in (0.0, 2.0))  # 50 to fill the caches
    figures, _ = figures_of([0.001], meter=EnergyMeter("CPU", [lambda: next(readings)]))
    assert (figures.energy_joules_per_query, figures.energy_source) == (2.0, "CPU")
    figures, _ = figures_of([0.001], meter=EnergyMeter("", []))
    assert (figures.energy_joules_per_query, figures.energy_source) == (None, "")


def test_rates_and_build_times_are_told_only_of_what_was_done_here() -> None:
    assert encoding_rate(RETRIEVAL) == 250
    assert RETRIEVAL.built_whole
    some = replace(RETRIEVAL, encoded_documents=400, encoding_seconds=2.0)
    assert encoding_rate(some) == 200
    assert not some.built_whole
    assert encoding_rate(replace(RETRIEVAL, encoded_documents=0)) is None


def test_bm25_is_measured_where_it_was_built(tmp_path: Path) -> None:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_text(
        "".join(json.dumps({"_id": f"d{n}", "text": f"word{n % 7} word{n % 11}"}) + "\n" for n in range(300))
    )
    queries.write_text("".join(json.dumps({"_id": f"q{n}", "text": f"word{n}"}) + "\n" for n in range(8)))
    found: list[EfficiencyFigures] = []
    retrieve(
        RetrievalTask("bm25", corpus, queries, tmp_path / "run.txt"),
        before_cleanup=lambda engine, asked, done: found.append(measure(System(engine, done), asked)),
    )
    [figures] = found
    assert (figures.protocol, figures.depth, figures.queries) == (PROTOCOL, 100, 8)
    assert 200 <= figures.searches == 8 * figures.rounds
    latency = figures.latency_ms
    assert 0 < latency.p50 <= latency.p95 <= latency.p99
    assert figures.documents == 300
    assert figures.index_bytes > 0
    assert figures.build_seconds is not None
    assert figures.peak_memory_bytes is not None
    assert figures.peak_memory_bytes > 10_000_000
    assert (figures.parameters, figures.peak_gpu_memory_bytes) == (None, None)
    assert EfficiencyFigures.from_data(json.loads(json.dumps(figures.as_data()))) == figures


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"index_bytes": -1}, "index_bytes"),
        ({"searches": True}, "searches"),
        ({"build_seconds": "soon"}, "build_seconds"),
        ({"latency_ms": {"mean": float("nan"), "p50": 1, "p95": 1, "p99": 1}}, "mean"),
        ({"latency_ms": None}, "latency_ms"),
        ({"device": "x" * 100}, "device"),
    ],
)
def test_figures_of_a_stranger_are_refused_by_field(change: dict[str, Any], named: str) -> None:
    figures, _ = figures_of([0.001])
    with pytest.raises(ValueError, match=named):
        EfficiencyFigures.from_data({**figures.as_data(), **change})


def test_figures_that_are_missing_stay_missing_and_unknown_ones_are_dropped() -> None:
    figures, _ = figures_of([0.001])
    data = {**figures.as_data(), "build_seconds": None, "favourite_colour": "blue"}
    assert EfficiencyFigures.from_data(data).build_seconds is None
    assert "favourite_colour" not in EfficiencyFigures.from_data(data).as_data()


def test_a_document_collection_of_one_is_measured_too(tmp_path: Path) -> None:
    description = describe_engine("bm25")
    engine = description.create(description.complete({}), Resources())
    engine.build([Document("d", "", "one word")], tmp_path)
    system = System(engine, replace(RETRIEVAL, documents=1))
    figures = measure(system, [Query("q", "nothing here")])
    assert figures.documents == 1
