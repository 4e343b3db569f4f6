"""Scores against pytrec_eval, for every measure that it has, and the rules it leaves to its callers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.order import trec_order
from evaluation.judgements.qrels import Qrels
from evaluation.measures.registry import DEFAULT_MEASURES, parse_measure
from evaluation.runs.score import InvalidRun, ScoredRun, ScoringTarget, score_run

QUIET = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

#: Our name and pytrec_eval's for everything both compute.
COMPARED = {
    name: parse_measure(name).trec_eval or ""
    for name in ("nDCG", "nDCG@1", "nDCG@3", "nDCG@10", "AP", "AP@2", "AP@10", "RR", "P@1", "P@5", "P@10", "R@2",
                 "R@10", "Rprec", "Bpref", "Success@1", "Success@5")
}  # fmt: skip

# ids whose order by bytes, by length and by code point differ; long ones share their first 16 bytes
DOCUMENTS = [
    "a",
    "A",
    "b",
    "aa",
    "é",
    "Z9",
    "10",
    "9",
    "\u00a0x",
    "𝒳",
    *(f"a-document-id-that-is-long-{n}" for n in range(6)),
]
# text as it may stand in a file: ties, ties in float32 only, whole numbers beyond 2**24, subnormal and huge ones
SCORES = ["1", "1.0", "0.1", "0.100000001", "-0", "0", "-2.5", "16777216", "16777217", "1e-45", "7e-46", "3.4e38",
          "+.5", "1e-3", "5.", "0.30000000000000004", "0.29999998211860657", "1.000000059604644775390625",
          "12345678901234567890",
          "1.00000005960464477539062500000001"]  # fmt: skip

queries = st.sampled_from(["1", "2", "10", "q-é", "a-query-id-of-more-than-sixteen-bytes"])
judgements = st.dictionaries(
    queries, st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 3), min_size=1), min_size=1
)
rankings = st.dictionaries(
    queries, st.dictionaries(st.sampled_from(DOCUMENTS), st.sampled_from(SCORES), min_size=1), min_size=1
)


def write_run(path: Path, run: dict[str, dict[str, str]], order: random.Random | None = None) -> Path:
    lines = [f"{query} Q0 {name} 1 {score} tag\n" for query, scores in run.items() for name, score in scores.items()]
    if order:
        order.shuffle(lines)
    path.write_text("".join(lines))
    return path


def judged_by_pytrec_eval(
    qrels: dict[str, dict[str, int]], run: dict[str, dict[str, str]], level: int = 1
) -> dict[str, dict[str, float]]:
    kept = {query: {name: grade for name, grade in graded.items() if grade >= 0} for query, graded in qrels.items()}
    scores = {query: {name: float(score) for name, score in scored.items()} for query, scored in run.items()}
    result = {}
    for query, graded in kept.items():
        if not graded or query not in scores:
            continue
        evaluator = pytrec_eval.RelevanceEvaluator({query: graded}, set(COMPARED.values()), relevance_level=level)
        result.update(evaluator.evaluate({query: scores[query]}))
    return result


def values_of(scored: ScoredRun, measure: str) -> dict[str, float]:
    column = [each.name for each in scored.measures].index(measure)
    return dict(zip(scored.query_ids, scored.per_query[:, column].tolist(), strict=True))


@given(judgements, rankings, st.integers(1, 3), st.integers(0, 2**32))
@QUIET
def test_every_value_equals_pytrec_eval(
    tmp_path: Path, qrels: dict[str, dict[str, int]], run: dict[str, dict[str, str]], level: int, order: int
) -> None:
    # lines in any order, queries interleaved
    path = write_run(tmp_path / "run.txt", run, random.Random(order))
    target = ScoringTarget(Qrels.from_dict(qrels), ["1", "2", "10", *run], hidden=False, relevance_level=level)
    expected = judged_by_pytrec_eval(qrels, run, level)
    scored = score_run(path, target, COMPARED)
    for name, theirs in COMPARED.items():
        ours = values_of(scored, name)
        assert set(ours) == set(qrels)
        for query, value in ours.items():
            if query in expected:
                assert value == pytest.approx(expected[query][theirs], abs=1e-9), (name, query)
            else:
                assert value == 0
        assert scored.means[name] == pytest.approx(sum(ours.values()) / len(qrels), abs=1e-12)


@given(rankings)
@QUIET
def test_ranks_are_in_trec_order(tmp_path: Path, run: dict[str, dict[str, str]]) -> None:
    """The reader's ranks and the order that exports and pages use are one."""
    for query, scores in run.items():
        path = write_run(tmp_path / "run.txt", {query: scores})
        names = list(scores)
        order = trec_order(names, [float(score) for score in scores.values()])
        for rank, index in enumerate(order.tolist(), 1):
            scored = score_run(path, ScoringTarget(Qrels.from_dict({query: {names[index]: 1}})), ["RR"])
            assert scored.means["RR"] == 1 / rank


def test_a_large_run_equals_pytrec_eval_in_any_order_of_lines(tmp_path: Path) -> None:
    generator = random.Random(4)
    names = [f"d{number}" for number in range(3000)]
    qrels = {str(q): {name: generator.randint(0, 3) for name in generator.sample(names, 60)} for q in range(40)}
    run = {
        query: {name: f"{generator.randint(1, 400) / 7:.5f}" for name in generator.sample(names, 1000)}
        for query in list(qrels)[:-3]
    }
    expected = judged_by_pytrec_eval(qrels, run)
    target = ScoringTarget(Qrels.from_dict(qrels), qrels)
    for order in (None, random.Random(1)):
        scored = score_run(write_run(tmp_path / "run.txt", run, order), target, COMPARED)
        assert scored.missing_queries == 3
        for name, theirs in COMPARED.items():
            for query, value in values_of(scored, name).items():
                assert value == pytest.approx(expected.get(query, {}).get(theirs, 0), abs=1e-9), (name, query)


def score(
    tmp_path: Path, run: str, qrels: dict[str, dict[str, int]], *measures: str, **options: object
) -> dict[str, float]:
    path = tmp_path / "run.txt"
    path.write_text(run)
    return score_run(path, ScoringTarget(Qrels.from_dict(qrels), **options), measures).means  # type: ignore[arg-type]


def lines_of(query: str, *documents: str) -> str:
    """A run of one query with these documents, best first."""
    return "".join(f"{query} Q0 {name} {rank} {100 - rank} tag\n" for rank, name in enumerate(documents, 1))


def test_the_run_is_cut_at_its_depth_in_trec_order(tmp_path: Path) -> None:
    run = "1 Q0 late 1 0.5 t\n" + lines_of("1", "a", "b")  # the worst line comes first in the file
    assert score(tmp_path, run, {"1": {"late": 1, "b": 1}}, "AP", maximum_depth=2) == {"AP": 0.25}
    assert score(tmp_path, run, {"1": {"late": 1, "b": 1}}, "AP") == {"AP": pytest.approx((1 / 2 + 2 / 3) / 2)}


def test_a_self_match_is_left_out_before_the_cut(tmp_path: Path) -> None:
    run = lines_of("1", "1", "a", "b")
    qrels = {"1": {"b": 1, "1": 1}}
    assert score(tmp_path, run, {"1": {"b": 1}}, "RR", drop_self_matches=True) == {"RR": 0.5}
    assert score(tmp_path, run, {"1": {"b": 1}}, "RR", drop_self_matches=True, maximum_depth=2) == {"RR": 0.5}
    assert score(tmp_path, run, qrels, "RR") == {"RR": 1}
    assert score(tmp_path, run, qrels, "R@10", drop_self_matches=True) == {"R@10": 0.5}


def test_a_missing_query_and_one_without_relevant_documents_score_0_and_count(tmp_path: Path) -> None:
    qrels = {"1": {"a": 1}, "2": {"a": 1}, "3": {"a": 0}, "4": {"a": -1}}
    run = lines_of("1", "a") + lines_of("3", "a") + lines_of("4", "a")
    for measure in DEFAULT_MEASURES:
        expected = {"Hole@10": 0.25, "P@10": 0.025}.get(measure, 0.25)  # query 4 has an unjudged document
        assert score(tmp_path, run, qrels, measure) == {measure: pytest.approx(expected)}


def test_relevance_levels(tmp_path: Path) -> None:
    run, qrels = lines_of("1", "a", "b"), {"1": {"a": 1, "b": 2}}
    assert score(tmp_path, run, qrels, "RR", "RR(rel=2)", "RR(rel=3)") == {
        "RR": 1,
        "RR(rel=2)": 0.5,
        "RR(rel=3)": 0,
    }
    assert score(tmp_path, run, qrels, "RR", "RR(rel=1)", "nDCG", relevance_level=2) == {
        "RR": 0.5, "RR(rel=1)": 1, "nDCG": score(tmp_path, run, qrels, "nDCG")["nDCG"],
    }  # fmt: skip


def test_measures_that_pytrec_eval_does_not_have(tmp_path: Path) -> None:
    run = lines_of("1", "x", "a", "y", "b") + lines_of("2", "y")
    qrels = {"1": {"a": 1, "b": 2, "c": 1}, "2": {"y": 0}}
    found = score(
        tmp_path, run, qrels, "R_cap@2", "R_cap@4", "RR@1", "RR@2", "Hole@2", "Hole@10", "Hole(beir)@10", "Judged@3",
        "nDCG(dcg='exp-log2')@4", "RBP(p=0.5)", "RBP(p=0.8)@2", "RBP(p=0.5,rel=2)", "ERR@2", "ERR@10",
    )  # fmt: skip
    log3, log5 = np.log2(3), np.log2(5)
    assert found == pytest.approx({
        "R_cap@2": 0.5 / 2,  # one of two possible
        "R_cap@4": (2 / 3) / 2,
        "RR@1": 0,
        "RR@2": 0.5 / 2,
        "Hole@2": 0.5 / 2,
        "Hole@10": 0.5 / 2,  # of the four retrieved
        "Hole(beir)@10": 0.25 / 2,  # y is judged for query 2
        "Judged@3": (1 / 3 + 1) / 2,
        "ERR@2": (1 / 2) * (1 / 16) / 2,
        "ERR@10": ((1 / 2) * (1 / 16) + (1 / 4) * (15 / 16) * (3 / 16)) / 2,
        "RBP(p=0.5)": 0.5 * (0.5 + 0.5**3) / 2,
        "RBP(p=0.8)@2": 0.2 * 0.8 / 2,
        "RBP(p=0.5,rel=2)": 0.5 * 0.5**3 / 2,
        "nDCG(dcg='exp-log2')@4": ((1 / log3 + 3 / log5) / (3 + 1 / log3 + 1 / 2)) / 2,
    })  # fmt: skip


def test_progress_rises_to_one_and_may_stop_the_scoring(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text("".join(lines_of(str(query), *(f"d{n}" for n in range(900))) for query in range(150)))
    target = ScoringTarget(Qrels.from_dict({"1": {"d1": 1}}), [str(query) for query in range(150)])
    seen: list[float] = []
    score_run(path, target, ["AP"], progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == 1

    def stop(share: float) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        score_run(path, target, ["AP"], progress=stop)


def test_a_query_with_more_lines_than_a_block_holds(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    names = [f"document-with-a-long-id-{number:07}" for number in range(60_000)]
    path.write_text(
        "".join(f"{query} Q0 {name} {rank} {-rank} tag\n" for query in "12" for rank, name in enumerate(names, 1))
    )
    target = ScoringTarget(Qrels.from_dict({"1": {names[50_000]: 1}, "2": {names[59_999]: 1}}), maximum_depth=100_000)
    scored = score_run(path, target, ["RR"])
    assert scored.per_query.tolist() == [[1 / 50_001], [1 / 60_000]]
    path.write_text(path.read_text() + f"2 Q0 {names[3]} 1 1 tag\n")
    with pytest.raises(InvalidRun, match="document that its query already has"):
        score_run(path, target, ["RR"])


def test_documents_are_checked_against_long_and_short_ids(tmp_path: Path) -> None:
    names = ["short", "sixteen-bytes-id", "an-id-longer-than-sixteen-bytes"]
    documents = DocumentIds.build(names, tmp_path / "ids")
    qrels = Qrels.from_dict({"1": dict.fromkeys(names, 1)})
    path = tmp_path / "run.txt"
    path.write_text(lines_of("1", *names))
    scored = score_run(path, ScoringTarget(qrels, document_ids=documents), ["R@10"])
    assert scored.means == {"R@10": 1}
    assert scored.report.problems == ()
