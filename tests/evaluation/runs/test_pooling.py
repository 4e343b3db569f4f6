"""Pools: the union of what runs rank first, without what is judged, in an order that tells nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.order import trec_order
from evaluation.judgements.qrels import Qrels
from evaluation.runs import pooling
from evaluation.runs.pooling import PoolTooLarge, draw_pool, sole_finds
from evaluation.runs.score import ScoringTarget

Ranking = dict[str, dict[str, float]]

names = st.sampled_from(["a", "b", "c", "d", "é", "10", "9"])
rankings = st.dictionaries(
    names, st.dictionaries(names, st.sampled_from([0.5, 1.0, 2.0, 2.0000001]), min_size=1), max_size=4
)
judgements = st.dictionaries(names, st.dictionaries(names, st.integers(-1, 2), min_size=1), max_size=4)


def write(path: Path, ranking: Ranking) -> Path:
    """A run file."""
    path.write_text(
        "".join(
            f"{query} Q0 {document} 1 {score!r} t\n"
            for query, scores in ranking.items()
            for document, score in scores.items()
        )
    )
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(rankings, max_size=4), judged=judgements, depth=st.integers(1, 4), drop=st.booleans())
def test_a_pool_is_the_union_of_first_documents_without_judged_pairs(
    tmp_path: Path, runs: list[Ranking], judged: dict[str, dict[str, int]], depth: int, drop: bool
) -> None:
    qrels = Qrels.from_dict(judged)
    paths = [write(tmp_path / f"{number}.run", run) for number, run in enumerate(runs)]
    pool = draw_pool(paths, ScoringTarget(qrels, drop_self_matches=drop), depth=depth, seed=7)
    expected: set[tuple[str, str]] = set()
    by_run = []
    for run in runs:
        first = set()
        for query, scores in run.items():
            kept = [name for name in scores if not (drop and name == query)]
            order = trec_order(kept, [scores[name] for name in kept])[:depth]
            first |= {(query, kept[place]) for place in order.tolist()}
        new = {(query, name) for query, name in first if judged.get(query, {}).get(name, -1) < 0}
        by_run.append(len(new))
        expected |= new
    assert set(pool.pairs) == expected
    assert len(pool.pairs) == len(expected)
    assert pool.by_run == tuple(by_run)
    assert sum(runs * count for runs, count in pool.found_by.items()) == sum(by_run)
    queries = [query for query, _ in pool.pairs]
    assert sum(one != other for one, other in pairwise(queries)) == max(
        0, len(set(queries)) - 1
    )  # the pairs of a query stand together


def test_the_order_tells_nothing_of_runs_and_ranks(tmp_path: Path) -> None:
    documents = [f"d{number:02}" for number in range(40)]
    up = {query: {name: float(place) for place, name in enumerate(documents)} for query in ("q1", "q2")}
    down = {query: {name: -float(place) for place, name in enumerate(documents)} for query in ("q2", "q1")}
    one, other = write(tmp_path / "up", up), write(tmp_path / "down", down)
    first = draw_pool([one, other], ScoringTarget(), depth=40, seed=3)
    assert (
        first.pairs == draw_pool([other], ScoringTarget(), depth=40, seed=3).pairs
    )  # the pairs and the seed decide alone
    assert first.pairs != draw_pool([one, other], ScoringTarget(), depth=40, seed=4).pairs
    of_query = [name for query, name in first.pairs if query == "q1"]
    assert of_query not in (documents, documents[::-1])
    assert first.statistics() == {
        "pairs": 80, "queries": 2, "judged": 0, "other_queries": 0, "by_run": [80, 80], "found_by": {"2": 80},
    }  # fmt: skip


def test_only_the_datasets_queries_and_documents_are_pooled(tmp_path: Path) -> None:
    run = write(tmp_path / "run", {"q1": {"a": 3.0, "nowhere": 2.0, "b": 1.0}, "stranger": {"b": 1.0}})
    documents = DocumentIds.build(["a", "b"], tmp_path / "ids")
    target = ScoringTarget(query_ids={"q1"}, document_ids=documents)
    pool = draw_pool([run], target, depth=5, seed=1)
    assert set(pool.pairs) == {("q1", "a"), ("q1", "b")}
    assert pool.other_queries == 1
    # It takes its place, as where the run is scored.
    assert draw_pool([run], target, depth=2, seed=1).pairs == (("q1", "a"),)


def test_a_pool_that_nobody_could_judge_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "MAX_PAIRS", 3)
    run = write(tmp_path / "run", {"q1": dict.fromkeys("abcd", 1.0)})
    with pytest.raises(PoolTooLarge, match="more than 3 pairs at depth 10"):
        draw_pool([run], ScoringTarget(), depth=10, seed=1)
    with pytest.raises(ValueError, match="depth of a pool must be at least 1"):
        draw_pool([run], ScoringTarget(), depth=0, seed=1)


# --- one team left out


def test_a_team_alone_brought_what_no_other_team_found(tmp_path: Path) -> None:
    """Both runs of one team count as one finder; what was judged before the pool is nobody's."""
    runs = [
        (1, write(tmp_path / "a", {"q1": {"d1": 3, "d2": 2, "d3": 1}}), 2),
        (1, write(tmp_path / "b", {"q1": {"d2": 2, "d4": 1}}), 2),
        (2, write(tmp_path / "c", {"q1": {"d1": 2, "d5": 1}, "q2": {"d6": 1}}), 2),
    ]
    qrels = Qrels.from_dict({"q1": {"d1": 1, "d2": 1, "d3": 1, "d4": 0, "d5": 1}, "q2": {"d6": 1}})
    assert sole_finds(runs, ScoringTarget(qrels)) == {
        1: {b"q1": {b"d2", b"d4"}},
        2: {b"q1": {b"d5"}, b"q2": {b"d6"}},
    }
    before = Qrels.from_dict({"q1": {"d4": 0, "d5": 1}})
    assert sole_finds(runs, ScoringTarget(qrels), before) == {1: {b"q1": {b"d2"}}, 2: {b"q2": {b"d6"}}}
    without = qrels.without_pairs({b"q2": {b"d6"}, b"q1": {b"d2"}})
    assert without.as_dict() == {"q1": {"d1": 1, "d3": 1, "d4": 0, "d5": 1}, "q2": {}}
