"""Drawing a pool: for the scorer, since it reads judgements to leave out what is judged."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.collections.beir import read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.runs.pooling import DrawnPool, draw_pool
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, path_of, put
from leaderboard.datasets.qrels import load_qrels
from leaderboard.judgements.disclosure import record_compared
from leaderboard.judgements.pool_files import texts_of_documents, texts_of_queries, write_csv, write_trec
from leaderboard.models import Pool, Qrels


@dataclass(frozen=True, slots=True)
class StoredPool:
    """A pool's files in private storage, not yet named by its row, and what may be told of it."""

    qrels: Qrels | None
    files: dict[str, str]
    statistics: dict[str, Any]


def draw(pool: Pool, folder: Path, progress: Callable[[float], None]) -> StoredPool:
    """Draw the pool from its runs against the present judgements, and store its files; `folder` is for scratch.

    Only the topics are drawn, as only they are scored. Runs are read half the time, the corpus the other half.
    Within `audit.acting`: that hidden judgements are compared is recorded before they are read. Raises
    evaluation.runs.pooling.PoolTooLarge.
    """
    dataset, version = pool.dataset, pool.version
    qrels = dataset.current_qrels if dataset.current_version_id == version.pk else None
    record_compared(pool, dataset, qrels)
    topics = path_of(Area.FILES, version.topics_sha256)
    known = version.document_ids_sha256
    drawn = draw_pool(
        # In the order of their bytes' names, so that nothing depends on which was asked for first.
        [run_path(key) for key in sorted(set(pool.runs.values_list("sha256", flat=True)))],
        depth=pool.depth,
        seed=secrets.randbits(64),
        qrels=load_qrels(qrels) if qrels is not None else None,
        queries={query.id for query in read_queries(topics)},
        documents=DocumentIds.open(path_of(Area.INDEXES, known)) if known else None,
        drop_self_matches=dataset.drop_self_matches,
        progress=lambda share: progress(0.5 * share),
    )
    return _stored(pool, qrels, drawn, folder, lambda share: progress(0.5 + 0.5 * share))


def _stored(
    pool: Pool, qrels: Qrels | None, drawn: DrawnPool, folder: Path, progress: Callable[[float], None]
) -> StoredPool:
    version = pool.version
    asked = texts_of_queries(path_of(Area.FILES, version.topics_sha256), {query for query, _ in drawn.pairs})
    corpus = path_of(Area.FILES, version.corpus_sha256) if version.corpus_sha256 else None
    table, lines = folder / "pool.csv", folder / "pool.qrels"
    wanted = {document for _, document in drawn.pairs}
    with texts_of_documents(corpus, wanted, folder, progress) as texts:
        write_csv(drawn.pairs, table, str(pool.pk), asked, texts)
    write_trec(drawn.pairs, lines)
    return StoredPool(
        qrels=qrels,
        files={"csv": put(Area.CURATION, table), "trec": put(Area.CURATION, lines)},
        statistics={**drawn.statistics(), "runs": len(drawn.by_run), "texts": corpus is not None},
    )


def record_pool(pool: Pool, stored: StoredPool) -> None:
    """Say that the pool is there."""
    Pool.objects.filter(pk=pool.pk, state=Pool.State.DRAWING).update(
        state=Pool.State.READY, qrels=stored.qrels, files=stored.files, statistics=stored.statistics
    )
