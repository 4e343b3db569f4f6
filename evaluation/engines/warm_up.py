"""Compilation of kernels before the first run arrives, so that submitters do not wait for the compiler."""

import tempfile
from pathlib import Path

from evaluation.judgements.qrels import read_qrels
from evaluation.measures.registry import DEFAULT_MEASURES
from evaluation.runs.score import ScoringTarget, score_run


def warm_up() -> None:
    """Compile and cache the kernels of scoring, by scoring a two-line run with the default measures.

    This takes milliseconds if the kernels are cached.
    """
    with tempfile.TemporaryDirectory() as folder:
        qrels, run = Path(folder) / "qrels.txt", Path(folder) / "run.txt"
        qrels.write_text("1 0 a 1\n1 0 b 0\n")
        run.write_text("1 Q0 a 1 2.0 warm\n1 Q0 c 2 1.0 warm\n")
        score_run(run, ScoringTarget(qrels=read_qrels(qrels), query_ids=["1"], hidden=False), DEFAULT_MEASURES)
