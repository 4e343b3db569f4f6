"""Rescores for tests: further judgements of the small collections, and all runs evaluated on them."""

from __future__ import annotations

from pathlib import Path

from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, put
from leaderboard.judgements.rescoring.campaigns import start_rescore
from leaderboard.models import Dataset, Qrels, Rescore, User
from submissions.queue.queue import create_requested_jobs
from tests.submissions.collections import HEADER, JUDGED
from tests.submissions.workers import work


def more_judgements(dataset: Dataset, folder: Path, extra: str = "d2") -> Qrels:
    """The dataset's judgements with one more relevant document for each query."""
    path = folder / f"{dataset.slug}-{extra}.qrels"
    path.write_text(
        HEADER + "".join(f"{query}\td1\t1\n{query}\td3\t2\n{query}\td900\t0\n{query}\t{extra}\t2\n" for query in JUDGED)
    )
    assert dataset.current_version is not None
    number = dataset.current_version.qrels.count() + 1
    return Qrels.objects.create(version=dataset.current_version, number=number, sha256=put(Area.QRELS, path))


def rescored(dataset: Dataset, qrels: Qrels, curator: User, reason: str = "a pool") -> Rescore:
    """The rescore, with all its runs evaluated."""
    with acting(curator, reason):
        rescore = start_rescore(dataset, qrels, reason)
    create_requested_jobs()
    work()
    rescore.refresh_from_db()
    return rescore
