"""Re-ranking sets: a query's judged documents are its candidates, and nothing else in a run takes a place."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoredRun, ScoringTarget, score_run
from evaluation.verification.comparing import Judgements, ScoringRules, verify

#: x and y are no candidates of q1, and a is none of q2.
RUN = {"q1": "x a y b c", "q2": "a d e", "q3": "x"}
GRADES = {"q1": {"a": 0, "b": 1, "c": 1, "d": 1, "y": -1}, "q2": {"d": 0, "e": 1}, "q3": {"a": 1}}
MEASURES = ("AP", "RR@1", "P@2", "nDCG@2", "Judged@2", "Hole@2", "Hole(beir)@2", "Success@1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [
        f"{query} Q0 {name} 1 {9 - place} t\n"
        for query, names in RUN.items()
        for place, name in enumerate(names.split())
    ]
    (tmp_path / "run.txt").write_text("".join(lines))
    judged = [f"{query} 0 {name} {grade}\n" for query, of in GRADES.items() for name, grade in of.items()]
    (tmp_path / "qrels.txt").write_text("".join(judged))
    return tmp_path


def scored(folder: Path, *, candidates_only: bool) -> ScoredRun:
    target = ScoringTarget(read_qrels(folder / "qrels.txt"), hidden=False, candidates_only=candidates_only)
    return score_run(folder / "run.txt", target, MEASURES)


def test_places_are_counted_among_the_candidates(folder: Path) -> None:
    found = scored(folder, candidates_only=True)
    values = dict(zip(MEASURES, found.per_query.T.tolist(), strict=True))
    # q1 is read as a b c: relevant at ranks 2 and 3, of three. q2 as d e. q3 has no candidate at all.
    assert values["AP"] == [pytest.approx((1 / 2 + 2 / 3) / 3), 0.5, 0.0]
    assert (values["RR@1"], values["P@2"]) == ([0, 0, 0], [0.5, 0.5, 0])
    gain = 1 / np.log2(3)
    assert values["nDCG@2"] == [pytest.approx(gain / (1 + gain)), pytest.approx(gain), 0]
    assert (values["Judged@2"], values["Hole@2"], values["Hole(beir)@2"]) == ([1, 1, 0], [0] * 3, [0] * 3)
    assert found.missing_queries == 1
    whole = scored(folder, candidates_only=False)
    assert whole.per_query[0, 0] == pytest.approx((1 / 4 + 2 / 5) / 3)


def test_the_second_computation_passes_over_the_same_documents(folder: Path) -> None:
    found = scored(folder, candidates_only=True)
    claimed = found.as_claimed_scores()
    text, judged = (folder / "run.txt").read_bytes(), Judgements((folder / "qrels.txt").read_bytes())
    verify(io.BytesIO(text), judged, claimed, ScoringRules(candidates_only=True), "00")
