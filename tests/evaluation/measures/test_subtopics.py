"""Measures over subtopics against TREC's ndeval and values computed by hand; inferred AP against pytrec_eval."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyndeval
import pytest
import pytrec_eval
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.judgements.qrels import Qrels, read_qrels
from evaluation.judgements.subtopics import SubtopicGrades, highest_grades
from evaluation.runs.score import ScoredRun, ScoringTarget, score_run

SHARED = Path(os.environ.get("RUNBOARD_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
ROUND = SHARED / "data" / "trec-covid-round1"
NO_ROUND = pytest.mark.skipif(not ROUND.is_dir(), reason=f"no {ROUND}: set RUNBOARD_SHARED")
QUIET = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
#: Our names and those of ndeval, which does not divide by the gain of an ideal document at rank 1.
NDEVAL = {
    f"{ours}@{k}": f"{theirs}@{k}"
    for ours, theirs in {
        "alpha_nDCG": "alpha-nDCG", "alpha_DCG": "alpha-DCG", "ERR_IA": "ERR-IA", "nERR_IA": "nERR-IA",
        "P_IA": "P-IA", "StRecall": "strec",
    }.items()
    for k in (2, 5, 20)
} | {"NRBP": "NRBP", "nNRBP": "nNRBP", "AP_IA": "MAP-IA"}  # fmt: skip
DOCUMENTS = [b"a", b"A", b"b", b"10", b"9", "é".encode(), *(b"document-%d" % number for number in range(14))]
#: Grades by query, document, and subtopic.
subtopic_grades = st.dictionaries(
    st.sampled_from([b"q1", b"q2"]),
    st.dictionaries(
        st.tuples(st.sampled_from(DOCUMENTS), st.sampled_from([b"1", b"2", b"3", b"10"])),
        st.integers(-1, 2),
        min_size=1,
        max_size=40,
    ),
    min_size=1,
)
rankings = st.dictionaries(
    st.sampled_from(["q1", "q2"]),
    st.dictionaries(st.sampled_from([name.decode() for name in DOCUMENTS]), st.integers(0, 9), min_size=1),
    min_size=1,
)


def make_qrels(grades: Mapping[bytes, Mapping[bytes, int]]) -> Qrels:
    return Qrels.from_dict(
        {
            query.decode(): {document.decode(): grade for document, grade in graded.items()}
            for query, graded in grades.items()
        }
    )


def scored(path: Path, grades: SubtopicGrades, run: Mapping[str, Mapping[str, float]], *measures: str) -> ScoredRun:
    path.write_text("".join(f"{q} Q0 {name} 1 {score} t\n" for q, each in run.items() for name, score in each.items()))
    target = ScoringTarget(make_qrels(highest_grades(grades)), ("q1", "q2"), hidden=False, subtopics=grades)
    return score_run(path, target, measures)


def ndeval(grades: SubtopicGrades, run: Mapping[str, Mapping[str, float]], level: int) -> dict[str, dict[str, float]]:
    """Return ndeval's values of a run in trec_eval's order."""
    judged = [
        (query.decode(), subtopic.decode(), document.decode(), grade)
        for query, graded in grades.items()
        for (document, subtopic), grade in graded.items()
        if grade >= 0
    ]
    ordered = [
        (query, name, -float(rank))
        for query, each in run.items()
        for rank, name in enumerate(sorted(each, key=lambda name: (each[name], name.encode()), reverse=True))
    ]
    evaluator = pyndeval.RelevanceEvaluator(judged, NDEVAL.values(), level)
    values: dict[str, dict[str, float]] = evaluator.evaluate(iter(ordered))
    return values


@given(subtopic_grades, rankings, st.integers(1, 2))
@QUIET
def test_values_are_those_of_ndeval(
    tmp_path: Path, grades: SubtopicGrades, run: dict[str, dict[str, float]], level: int
) -> None:
    names = [name.replace("@", f"(rel={level})@") if "@" in name else f"{name}(rel={level})" for name in NDEVAL]
    result = scored(tmp_path / "run.txt", grades, run, *names)
    expected = ndeval(grades, run, level)
    for query, values in zip(result.query_ids, result.per_query, strict=True):
        row = [expected.get(query, {}).get(name, 0.0) for name in NDEVAL.values()]
        # nNRBP of ndeval is not a number for a query without relevant documents.
        assert values == pytest.approx(np.nan_to_num(row), abs=1e-9)


@NO_ROUND
def test_real_runs_have_the_values_of_ndeval() -> None:
    """The judgments of TREC-COVID's first round, divided among five subtopics by their documents' ids."""
    grades: dict[bytes, dict[tuple[bytes, bytes], int]] = {}
    qrels = read_qrels(ROUND / "qrels.txt")
    for query, document, grade in qrels.judgements():
        for subtopic in {sum(document.encode()) % 5, len(query) + sum(document.encode()) % 3}:
            grades.setdefault(query.encode(), {})[document.encode(), b"%d" % subtopic] = grade
    path = sorted((ROUND / "runs").glob("*.gz"))[0]
    run: dict[str, dict[str, float]] = {}
    with gzip.open(path, "rt") as lines:
        for query, _, document, _, score, _ in map(str.split, lines):
            run.setdefault(query, {})[document] = float(np.float32(score))
    result = score_run(path, ScoringTarget(qrels, hidden=False, subtopics=grades), list(NDEVAL))
    expected = ndeval(grades, run, 1)
    for query, values in zip(result.query_ids, result.per_query, strict=True):
        assert values == pytest.approx([expected[query][name] for name in NDEVAL.values()], abs=1e-9), query


def test_a_repeated_subtopic_gains_half_as_much(tmp_path: Path) -> None:
    pairs = {(b"d1", b"1"): 1, (b"d2", b"1"): 1, (b"d3", b"2"): 1, (b"d4", b"2"): 0, (b"d4", b"3"): 0}
    grades = {b"q": pairs}
    run = {"q": {"d1": 3.0, "d2": 2.0, "d3": 1.0}}
    measures = ("ERR_IA@3", "nERR_IA@3", "NRBP", "StRecall@2", "StRecall@3", "P_IA@2", "AP_IA", "ERR_IA@1", "R@3")
    (values,) = scored(tmp_path / "run.txt", grades, run, *measures).per_query
    # Subtopic 3 has no relevant document. An ideal ranking is d3, d2, d1.
    found = 1 + 0.5 / 2 + 1 / 3
    ideal, highest = 1 + 1 / 2 + 0.5 / 3, 2 * (1 + 0.5 / 2 + 0.25 / 3)
    nrbp = (1 + 0.5 / 2 + 1 / 4) / (2 * 4 / 3)
    expected = [found / highest, found / ideal, nrbp, 0.5, 1, 0.5, (1 + 1 / 3) / 2, 0.5, 1]
    assert values == pytest.approx(expected, abs=1e-12)


def test_measures_over_subtopics_need_them(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("q Q0 d 1 1 t\n")
    with pytest.raises(ValueError, match="requires judgments by subtopic"):
        score_run(tmp_path / "run.txt", ScoringTarget(Qrels.from_dict({"q": {"d": 1}})), ["NRBP"])


# --- a sampled pool

judged_samples = st.dictionaries(
    st.sampled_from(["q1", "q2"]),
    st.dictionaries(st.sampled_from([name.decode() for name in DOCUMENTS]), st.integers(-2, 2), min_size=1),
    min_size=1,
)


@given(judged_samples, rankings, st.integers(1, 2))
@QUIET
def test_inferred_average_precision_is_that_of_trec_eval(
    tmp_path: Path, judged: dict[str, dict[str, int]], run: dict[str, dict[str, float]], level: int
) -> None:
    path = tmp_path / "run.txt"
    path.write_text("".join(f"{q} Q0 {name} 1 {score} t\n" for q, each in run.items() for name, score in each.items()))
    qrels = Qrels.from_dict(judged)
    # Without some pairs, the others remain pooled.
    fewer = {
        query: {name: g for name, g in each.items() if (query, name) != ("q1", "a")} for query, each in judged.items()
    }
    for grades, target in ((judged, qrels), (fewer, qrels.without_pairs({b"q1": {b"a"}}))):
        scores = score_run(path, ScoringTarget(target, ("q1", "q2")), [f"infAP(rel={level})"])
        # pytrec_eval crashes for a query without a grade of at least 0.
        kept = {query: each for query, each in grades.items() if max(each.values(), default=-1) >= 0}
        values = pytrec_eval.RelevanceEvaluator(kept, {"infAP"}, level).evaluate(
            {query: {name: float(score) for name, score in each.items()} for query, each in run.items()}
        )
        expected = [values.get(query, {}).get("infAP", 0.0) for query in scores.query_ids]
        assert scores.per_query[:, 0].tolist() == pytest.approx(expected, abs=1e-9)


@NO_ROUND
def test_half_of_the_judgments_are_enough_to_estimate_average_precision() -> None:
    """Of TREC-COVID's first round, a half of the pool is drawn by the ids of its documents."""
    complete = read_qrels(ROUND / "qrels.txt")
    sample = complete.as_dict()
    for graded in sample.values():
        for document in graded:
            if sum(document.encode()) % 2:
                graded[document] = -1
    sampled, errors = Qrels.from_dict(sample), {"AP": 0.0, "infAP": 0.0}
    for path in sorted((ROUND / "runs").glob("*.gz")):
        right = score_run(path, ScoringTarget(complete), ["AP", "infAP"]).means
        means = score_run(path, ScoringTarget(sampled), ["AP", "infAP"]).means
        assert right["AP"] == pytest.approx(right["infAP"], abs=1e-4)
        errors = {name: errors[name] + abs(means[name] - right["AP"]) for name in errors}
    assert errors["infAP"] < errors["AP"] / 5
