"""The references: they agree with pytrec_eval wherever their formulas and its meet, and with figures by hand."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.verification import references
from evaluation.verification.references import RankedQuery

grades = st.lists(st.integers(0, 3), min_size=1, max_size=12)
#: Documents by their place among the judged ones; those from 12 on are not judged.
ranked = st.lists(st.integers(0, 20), min_size=1, max_size=15, unique=True)
QUIET = settings(max_examples=80, deadline=None, derandomize=True)


def ranking_of(judged: list[int], documents: list[int]) -> RankedQuery:
    own = [judged[each] if each < len(judged) else -1 for each in documents]
    return RankedQuery(np.array(own), np.array([each < 16 for each in documents]), np.array(judged))


def trec_eval(judged: list[int], documents: list[int], measure: str, level: int = 1) -> float:
    """pytrec_eval's value of the documents in this order."""
    qrels = {"q": {f"d{number}": grade for number, grade in enumerate(judged)}}
    run = {"q": {f"d{each}": float(-place) for place, each in enumerate(documents)}}
    name = measure.replace("_cut.", "_cut_").replace(".", "_")
    return float(pytrec_eval.RelevanceEvaluator(qrels, {measure}, level).evaluate(run)["q"][name])


@given(grades, ranked, st.integers(1, 15), st.integers(1, 3))
@QUIET
def test_capped_recall_is_recall_or_precision(judged: list[int], documents: list[int], k: int, level: int) -> None:
    """Recall where all relevant documents fit into the first k, precision where they do not."""
    relevant = sum(grade >= level for grade in judged)
    same = f"recall.{k}" if relevant <= k else f"P.{k}"
    value = references.capped_recall(ranking_of(judged, documents), k, level)
    assert value == pytest.approx(trec_eval(judged, documents, same, level), abs=1e-12)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), ranked, st.one_of(st.none(), st.integers(1, 15)))
@QUIET
def test_exponential_gain_is_the_grade_where_grades_are_binary(
    judged: list[int], documents: list[int], k: int | None
) -> None:
    value = references.exponential_ndcg(ranking_of(judged, documents), k, 1)
    same = "ndcg" if k is None else f"ndcg_cut.{k}"
    assert value == pytest.approx(trec_eval(judged, documents, same), abs=1e-12)


@given(grades, ranked, st.integers(1, 15))
@QUIET
def test_shares_of_judged_documents(judged: list[int], documents: list[int], k: int) -> None:
    """With every judged document relevant, precision counts them; what is not judged is a hole."""
    query = ranking_of(judged, documents)
    shown = min(k, len(documents))
    of_judged = trec_eval([1] * len(judged), documents, f"P.{k}") * k / shown
    assert references.judged_share(query, k, 1) == pytest.approx(of_judged, abs=1e-12)
    assert references.hole(query, k, 1) == pytest.approx(1 - of_judged, abs=1e-12)
    elsewhere = sum(each >= 16 for each in documents[:k]) / shown
    assert references.hole_anywhere(query, k, 1) == pytest.approx(elsewhere, abs=1e-12)


def test_exponential_gain_by_hand() -> None:
    query = ranking_of([2, 1, 0], [1, 20, 0])
    dcg = 1 / np.log2(2) + 3 / np.log2(4)
    ideal = 3 / np.log2(2) + 1 / np.log2(3)
    assert references.exponential_ndcg(query, 10, 1) == pytest.approx(dcg / ideal, abs=1e-12)
