"""A small collection with its judgements, and runs over it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from evaluation.collections.document_ids import DocumentIds
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, put
from leaderboard.models import Dataset, DatasetVersion, Qrels
from leaderboard.systems.records import house_system
from submissions.models import Job, State
from tests.submissions.workers import work

QUERIES = [f"q{number}" for number in range(1, 13)]
#: The last two queries are not judged.
JUDGED = QUERIES[:10]
DOCUMENTS = [f"d{number}" for number in range(1, 1301)]
HEADER = "query-id\tcorpus-id\tscore\n"


def run_text(queries: Iterable[str] = QUERIES, depth: int = 20, tag: str = "test", skip: int = 0) -> str:
    """A good run: falling scores, no ties; `skip` leaves out the first documents, and with them relevant ones."""
    return "".join(
        f"{query} Q0 {document} {rank} {1000 - rank}.5 {tag}\n"
        for query in queries
        for rank, document in enumerate(DOCUMENTS[skip : skip + depth], 1)
    )


def make_collection(folder: Path, slug: str = "demo", **fields: Any) -> Dataset:
    """A published dataset with twelve queries and 1,300 documents; d1 and d3 are relevant to the judged ones."""
    values = {"name": slug.title(), "hidden": False, "measures": ["nDCG@10", "RR@10", "R@100"], **fields}
    dataset = Dataset.objects.create(slug=slug, state=Dataset.State.PUBLISHED, **values)
    queries, ids, qrels = (folder / f"{slug}.{name}" for name in ("queries", "ids", "qrels"))
    queries.write_text("".join(json.dumps({"_id": query, "text": "a question"}) + "\n" for query in QUERIES))
    qrels.write_text(HEADER + "".join(f"{query}\td1\t1\n{query}\td3\t2\n{query}\td900\t0\n" for query in JUDGED))
    ids.write_bytes(_document_ids())
    queries_sha256 = put(Area.FILES, queries)
    version = DatasetVersion.objects.create(
        dataset=dataset,
        number=1,
        content_sha256=f"{dataset.pk:064x}",
        queries_sha256=queries_sha256,
        topics_sha256=queries_sha256,
        document_ids_sha256=put(Area.INDEXES, ids),
        statistics={"queries": len(QUERIES), "documents": len(DOCUMENTS)},
    )
    judged = Qrels.objects.create(version=version, sha256=put(Area.QRELS, qrels))
    Dataset.objects.filter(pk=dataset.pk).update(current_version=version, current_qrels=judged)
    dataset.refresh_from_db()
    return dataset


@cache
def _document_ids() -> bytes:
    """The file of document ids, which is the same for every collection."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        DocumentIds.build(DOCUMENTS, path)
        return path.read_bytes()


@pytest.fixture
def demo(db: None, tmp_path: Path) -> Dataset:
    """An open dataset."""
    return make_collection(tmp_path)


@pytest.fixture
def secret(db: None, tmp_path: Path) -> Dataset:
    """A dataset with hidden judgements."""
    return make_collection(tmp_path, "secret", hidden=True)


def add_baseline(dataset: Dataset, folder: Path, skip: int = 1, text: str = "") -> None:
    """Score a run as the dataset's BM25: this text, or a run that leaves out the first `skip` documents."""
    system = house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})
    path = folder / "baseline.txt"
    path.write_text(text or run_text(skip=skip))
    stored = store_run(path)
    payload = {
        "system_slug": system.slug,
        "run_sha256": stored.sha256,
        "size": stored.size,
        "baseline": True,
    }
    Job.objects.create(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        dataset=dataset,
        state=State.QUEUED,
        validated=True,
        payload=payload,
    )
    work()


@pytest.fixture
def baseline(demo: Dataset, tmp_path: Path) -> None:
    """The open dataset's BM25 row, which misses half of the relevant documents."""
    add_baseline(demo, tmp_path)
