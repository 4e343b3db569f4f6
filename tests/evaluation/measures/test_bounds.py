"""The bound of a score is the most that any judging of the unjudged documents makes of it: held against all of them."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import pytrec_eval

from evaluation.judgements.qrels import Qrels
from evaluation.measures.registry import BOUNDS, parse_measure, upper_bound_name
from evaluation.runs.score import ScoringTarget, score_run

DEPTH = 4
#: pytrec_eval's names at this depth; what it lacks is made of what it has.
TREC_EVAL = {"nDCG": "ndcg_cut_4", "P": "P_4", "R": "recall_4", "Success": "success_4", "RR": "recip_rank"}


def judging(chance: random.Random, highest: int) -> dict[str, dict[str, int]]:
    return {
        f"q{query}": {
            f"d{number}": chance.choice(range(highest + 1)) for number in chance.sample(range(8), chance.randint(1, 5))
        }
        for query in range(3)
    }  # fmt: skip


def ranking(chance: random.Random) -> dict[str, list[str]]:
    return {
        f"q{query}": [f"d{number}" for number in chance.sample(range(9), chance.randint(1, 7))] for query in range(3)
    }


def bound(run: dict[str, list[str]], qrels: dict[str, dict[str, int]], measure: str) -> np.ndarray:
    text = "".join(
        f"{query} Q0 {document} {rank} {-rank} run\n"
        for query, documents in run.items()
        for rank, document in enumerate(documents, 1)
    )
    return score_run(text.encode(), ScoringTarget(Qrels.from_dict(qrels)), [measure]).per_query[:, 0]


def value(ranked: list[str], graded: dict[str, int], measure: str, level: int = 1) -> float:
    if measure == "R_cap":
        possible = min(DEPTH, sum(grade >= level for grade in graded.values()))
        return sum(graded.get(each, 0) >= level for each in ranked[:DEPTH]) / possible if possible else 0.0
    if measure == "RBP":
        return sum(0.2 * 0.8**rank for rank, each in enumerate(ranked[:DEPTH]) if graded.get(each, 0) >= level)
    scores = {document: float(-rank) for rank, document in enumerate(ranked[:DEPTH])}
    evaluator = pytrec_eval.RelevanceEvaluator({"q": graded}, {TREC_EVAL[measure]}, level)
    return float(evaluator.evaluate({"q": scores})["q"][TREC_EVAL[measure]])


def brute_force(ranked: list[str], graded: dict[str, int], grades: list[int], measure: str) -> float:
    """The most over every way to grade what nobody judged, with pytrec_eval."""
    unjudged = [document for document in ranked[:DEPTH] if document not in graded]
    return max(
        value(ranked, {**graded, **dict(zip(unjudged, given, strict=True))}, measure)
        for given in product(grades, repeat=len(unjudged))
    )


@pytest.mark.parametrize("measure", sorted(BOUNDS))
def test_the_bounds_of_fifty_runs_are_those_of_brute_force(measure: str) -> None:
    for seed in range(50):
        chance = random.Random(seed)
        qrels, run = judging(chance, highest=1 + seed % 3), ranking(chance)
        grades = sorted({0, *(grade for graded in qrels.values() for grade in graded.values())})
        grades = grades if len(grades) > 1 else [0, 1]
        expected = [brute_force(run[query], qrels[query], grades, measure) for query in sorted(qrels)]
        found = bound(run, qrels, f"Upper({measure})@{DEPTH}")
        assert found == pytest.approx(expected, abs=1e-12), seed
        assert (found >= bound(run, qrels, f"{measure}@{DEPTH}") - 1e-12).all()


def test_all_unjudged_documents_relevant_need_not_be_the_most() -> None:
    """The relevant document is already retrieved: more relevant documents at lower ranks would only raise the ideal."""
    qrels = {"q": {"d1": 1}}
    run = {"q": ["d1", "u1", "u2"]}
    assert bound(run, qrels, "Upper(nDCG)@10") == pytest.approx([1.0])
    assert bound({"q": ["u1", "d1"]}, qrels, "Upper(nDCG)@10") == pytest.approx([1.0])
    # One relevant document was not found: (1 + 1/log2(3)) / the same with it is the most, both unjudged ones relevant.
    gain = [1.0, 1 / np.log2(3), 0.5]
    assert bound({"q": ["u1", "u2"]}, qrels, "Upper(nDCG)@10") == pytest.approx([sum(gain[:2]) / sum(gain)])


def test_a_query_without_a_result_has_no_bound_above_nothing() -> None:
    assert bound({"q0": ["d1"]}, {"q0": {"d1": 1}, "q1": {"d1": 1}}, "Upper(nDCG)@10").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        ("nDCG@10", "Upper(nDCG)@10"),
        ("P(rel=2)@5", "Upper(P,rel=2)@5"),
        ("Success@5", "Upper(Success)@5"),
        ("AP", None),
        ("nDCG", None),
        ("RBP@10", "Upper(RBP)@10"),
        ("RBP(p=0.5)@10", None),
        ("Hole@10", None),
    ],
)
def test_which_measures_have_a_bound(measure: str, name: str | None) -> None:
    assert upper_bound_name(measure) == name
    assert name is None or parse_measure(name).name == name
