"""Real runs against the scores that were published for them."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoringTarget, score_run

SHARED = Path(os.environ.get("RUNBOARD_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
ROUND = SHARED / "data" / "trec-covid-round1"
MEASURES = {"nDCG@10": "nDCG@10", "P@5": "P@5", "bpref": "Bpref", "AP": "AP"}


@pytest.mark.skipif(
    not ROUND.is_dir(), reason=f"no {ROUND} (RUNBOARD_SHARED names the folder of real collections)"
)
def test_trec_covid_runs_get_their_published_scores() -> None:
    qrels = read_qrels(ROUND / "qrels.txt")
    target = ScoringTarget(qrels, qrels.query_ids, hidden=False)
    with (ROUND / "published.csv").open() as file:
        published = {row["run"]: row for row in csv.DictReader(file)}
    assert published
    for name, row in published.items():
        scored = score_run(ROUND / "runs" / f"{name}.txt.gz", target, MEASURES.values())
        found = {column: f"{scored.means[measure]:.4f}" for column, measure in MEASURES.items()}
        assert found == {column: row[column] for column in MEASURES}, name
