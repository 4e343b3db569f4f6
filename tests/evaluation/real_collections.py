"""Runs of engines over real collections, scored by pytrec_eval; skipped where the collections are not there."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
import pytrec_eval

from evaluation.engines import Resources, RetrievalTask, retrieve

SHARED = Path(os.environ.get("RUNBOARD_SHARED", Path(__file__).parents[2].parent / "shared"))


def scores_of(engine: str, name: str, work: Path, resources: Resources | None = None) -> dict[str, float]:
    """nDCG@10, R@100 and R@1000 of an engine's run over a collection, means over the judged queries."""
    folder = SHARED / "data" / name
    if not folder.exists():
        pytest.skip(f"{name} is not at {folder} (RUNBOARD_SHARED names its folder)")
    qrels: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        for query, document, grade in list(csv.reader(file, delimiter="\t"))[1:]:
            qrels.setdefault(query, {})[document] = int(grade)
    queries = (folder / "queries.jsonl").read_text("utf-8").splitlines(keepends=True)
    (work / "queries.jsonl").write_text("".join(q for q in queries if json.loads(q)["_id"] in qrels), "utf-8")
    files = folder / "corpus.jsonl", work / "queries.jsonl", work / "run.txt"
    retrieve(RetrievalTask(engine, *files, resources=resources or Resources()))
    with (work / "run.txt").open(encoding="utf-8") as file:
        run = pytrec_eval.parse_run(file)
    scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100,1000"}).evaluate(run)
    return {
        measure: sum(score[measure] for score in scores.values()) / len(qrels)
        for measure in ("ndcg_cut_10", "recall_100", "recall_1000")
    }
