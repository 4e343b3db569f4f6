"""Scores verified before they become an evaluation: pytrec_eval computes them again from the run as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

from evaluation.runs.score import ScoredRun
from evaluation.verification import Claimed, Rules, verify
from leaderboard.core.storage.runs import open_run
from leaderboard.datasets.qrels import verifying_judgements
from leaderboard.models import Qrels


def verify_scored(
    sha256: str,
    qrels: Qrels,
    scored: ScoredRun,
    after_block: Callable[[], object],
    text: bytes | None = None,
) -> None:
    """Compute the scores of a stored run again, and compare them. `after_block` is called now and then, and may raise.

    `text` is what the store holds, where the caller has read it.

    Raises evaluation.verification.ScoresDiffer, whose message is for operators alone.
    """
    dataset = qrels.version.dataset
    claimed = Claimed(
        measures=[measure.name for measure in scored.measures],
        query_ids=scored.query_ids,
        per_query=scored.per_query,
        means=scored.means,
        missing_queries=scored.missing_queries,
        lines=scored.report.statistics.lines,
    )
    rules = Rules(dataset.relevance_level, dataset.drop_self_matches)
    with BytesIO(text) if text is not None else open_run(sha256) as stored:
        verify(stored, verifying_judgements(qrels), claimed, rules, sha256, after_block)
