"""Judgements taken away, pooled, given back: every number is that of a collection that had them all along."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from evaluation.judgements.merge import Judge
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of
from leaderboard.core.work_requests import request_work
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.imports import Conflicts, import_judgements, request_merge
from leaderboard.judgements.pools import request_pool
from leaderboard.judgements.rescoring.switch import get_comparison, switch_board
from leaderboard.models import Dataset, Entry, JudgementImport, Pool, Rescore, User, WorkRequest
from leaderboard.results.records import per_query_values
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user

pytestmark = pytest.mark.django_db

SHARED = Path(os.environ.get("RUNBOARD_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
NFCORPUS = SHARED / "data" / "nfcorpus"
HEADER = "query-id\tcorpus-id\tscore\n"
SYSTEMS = ("bm25", "bm25-titles", "bm25-no-stemming")

Judgements = dict[tuple[str, str], int]


def worker() -> None:
    """Do everything that is asked for."""
    while create_requested_jobs() or drain_queue("score", "test-worker") + drain_queue("cpu", "test-worker"):
        pass


def write_collection(folder: Path, corpus: str, queries: str, judgements: Judgements) -> Path:
    """A collection in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(corpus)
    (folder / "queries.jsonl").write_text(queries)
    lines = (f"{query}\t{document}\t{grade}\n" for (query, document), grade in judgements.items())
    (folder / "qrels" / "test.tsv").write_text(HEADER + "".join(lines))
    return folder


def scored(folder: Path, slug: str, *, hidden: bool) -> Dataset:
    """The collection imported, with three systems scored."""
    dataset = import_dataset(folder, ImportOptions(slug=slug, name=slug.title(), hidden=hidden)).dataset
    worker()
    for configuration in SYSTEMS[1:]:
        request_work(WorkRequest.Kind.RETRIEVE, dataset, {"configuration": configuration})
    worker()
    dataset.refresh_from_db()
    return dataset


def judged_pool(pool: Pool, removed: Judgements) -> tuple[str, int]:
    """The pool's CSV as an assessor sends it back, with the removed judgements, and how many were in the pool.

    Those that no system ranked within the depth come as lines at its end.
    """
    text = path_of(Area.CURATION, pool.files["csv"]).read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    left = dict(removed)
    for row in rows:
        grade = left.pop((row["query_id"], row["document_id"]), None)
        row["grade"] = "" if grade is None else str(grade)
    for (query, document), grade in left.items():
        rows.append({**dict.fromkeys(rows[0], ""), "query_id": query, "document_id": document, "grade": str(grade)})
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue(), len(removed) - len(left)


def numbers(dataset: Dataset) -> dict[str, Any]:
    """Everything that is known of each system's result: published, unrounded, by query."""
    found = {}
    for entry in Entry.objects.filter(dataset=dataset).select_related("evaluation", "system"):
        evaluation = entry.evaluation
        assert evaluation is not None
        assert evaluation.qrels_id == dataset.current_qrels_id
        values = per_query_values(evaluation).tolist()
        found[entry.system.slug] = (entry.scores, evaluation.measures, evaluation.means, values)
    return found


def grow(
    tmp_path: Path,
    corpus: str,
    queries: str,
    judgements: Judgements,
    curator: User,
    *,
    hidden: bool,
    depth: int,
) -> tuple[Dataset, Rescore, int]:
    """Take a fifth of the judgements away, score three systems, give the judgements back by way of a pool, switch."""
    removed = dict(random.Random(20).sample(sorted(judgements.items()), len(judgements) // 5))
    kept = {pair: grade for pair, grade in judgements.items() if pair not in removed}
    dataset = scored(write_collection(tmp_path / "growing", corpus, queries, kept), "growing", hidden=hidden)
    with acting(curator, "the pool of October"):
        pool = request_pool(dataset, depth=depth)
        worker()
        pool.refresh_from_db()
        text, pooled = judged_pool(pool, removed)
        (tmp_path / "judged.csv").write_text(text)
        judge = Judge("people", "assessors")
        brought = import_judgements(dataset, tmp_path / "judged.csv", judge, note="assessors", pool=pool)
        worker()
        brought.refresh_from_db()
        assert brought.counts["new"] == len(removed)
        assert brought.counts["conflicts"] == 0
        request_merge(brought, Conflicts.KEEP)
        worker()
        rescore = Rescore.objects.get(dataset=dataset)
        assert rescore.state == Rescore.State.READY
        switch_board(rescore)
        worker()
    assert JudgementImport.objects.get().state == JudgementImport.State.MERGED
    dataset.refresh_from_db()
    return dataset, rescore, pooled


def check(dataset: Dataset, whole: Dataset, rescore: Rescore) -> None:
    """Hold the numbers against those of the collection that had all judgements from the start."""
    found, expected = numbers(dataset), numbers(whole)
    assert set(found) == set(SYSTEMS)
    assert found == expected  # to the last digit
    assert dataset.current_qrels is not None
    assert whole.current_qrels is not None
    assert dataset.current_qrels.statistics == whole.current_qrels.statistics
    assert dataset.current_version is not None
    assert whole.current_version is not None
    assert dataset.current_version.topics_sha256 == whole.current_version.topics_sha256
    rescore.refresh_from_db()
    rows = get_comparison(rescore)["rows"]
    assert {row["slug"] for row in rows} == set(SYSTEMS)
    assert all(entry.pooled for entry in Entry.objects.filter(dataset=dataset))


def generated() -> tuple[str, str, Judgements]:
    """Forty documents and ten queries of few words, so that systems differ; every query has nine judgements."""
    generator = random.Random(3)
    words = [
        "apples",
        "pears",
        "ripening",
        "ripened",
        "trees",
        "harvest",
        "cellar",
        "winter",
        "sugar",
        "acid",
    ]
    corpus = [
        {
            "_id": f"d{number}",
            "title": " ".join(generator.sample(words, 2)),
            "text": " ".join(generator.choices(words, k=12)),
        }
        for number in range(40)
    ]
    queries = [{"_id": f"q{number}", "text": " ".join(generator.sample(words, 2))} for number in range(10)]
    judgements = {
        (query["_id"], document["_id"]): generator.randint(0, 2)
        for query in queries
        for document in generator.sample(corpus, 9)
    }
    lines = ("\n".join(map(json.dumps, rows)) for rows in (corpus, queries))
    return next(lines), next(lines), judgements


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who may judge and switch."""
    return make_user("Cora", is_staff=True, is_superuser=True)


@pytest.mark.parametrize("hidden", [False, True], ids=["open", "hidden"])
def test_numbers_are_those_of_a_collection_with_all_judgements(
    tmp_path: Path, curator: User, client: Client, hidden: bool
) -> None:
    corpus, queries, judgements = generated()
    dataset, rescore, pooled = grow(tmp_path, corpus, queries, judgements, curator, hidden=hidden, depth=10)
    assert pooled > 0
    whole = scored(write_collection(tmp_path / "whole", corpus, queries, judgements), "whole", hidden=hidden)
    check(dataset, whole, rescore)
    names = {file.name for file in dataset.current_version.files.all()} if dataset.current_version else set()
    assert ("qrels.test.tsv.gz" in names) is not hidden
    board = client.get("/datasets/growing/board.json").json()
    keys = [column["key"] for column in board["columns"]]
    assert (("Judged@10" in keys), ("Hole@10" in keys)) == (not hidden, not hidden)


@pytest.mark.long
@pytest.mark.skipif(
    not NFCORPUS.is_dir(), reason=f"no {NFCORPUS} (RUNBOARD_SHARED names the folder of real collections)"
)
def test_nfcorpus_with_a_fifth_of_its_judgements_taken_away_and_given_back(
    tmp_path: Path, curator: User, client: Client
) -> None:
    with (NFCORPUS / "qrels" / "test.tsv").open() as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    judgements = {(query, document): int(grade) for query, document, grade in rows}
    judged = {query for query, _ in judgements}
    lines = (NFCORPUS / "queries.jsonl").read_text().splitlines(keepends=True)
    queries = "".join(line for line in lines if json.loads(line)["_id"] in judged)
    corpus = (NFCORPUS / "corpus.jsonl").read_text()
    dataset, rescore, pooled = grow(tmp_path, corpus, queries, judgements, curator, hidden=False, depth=100)
    assert pooled > 300  # of 2,466; most of what is relevant no BM25 finds so high
    whole = scored(write_collection(tmp_path / "whole", corpus, queries, judgements), "whole", hidden=False)
    check(dataset, whole, rescore)
    first = rescore_rows(rescore)["bm25"]
    assert first["hole_before"] > first["hole_after"]


def rescore_rows(rescore: Rescore) -> dict[str, Any]:
    """The rows of the comparison by system."""
    return {row["slug"]: row for row in get_comparison(rescore)["rows"]}
