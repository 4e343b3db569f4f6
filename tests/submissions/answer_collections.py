"""A small collection with correct answers and two levels of relevance, and answer runs on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs
from tests.submissions.collections import HEADER

SLUG = "capitals"
#: Correct answers by query. The document of a query's number is gold (grade 2), the next one evidence (grade 1).
ANSWERS = {
    "q0": ["Paris"], "q1": ["Berlin"], "q2": ["Rome", "Roma"], "q3": ["New Delhi"], "q4": ["Oslo"], "q5": ["Lima"],
}  # fmt: skip


def write_capitals(folder: Path) -> list[Path]:
    """Write the collection's files into a folder, and return their paths."""
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{number}", "title": "", "text": f"capital number {number}"} for number in range(30)]
    files = {
        "corpus.jsonl": documents,
        "queries.jsonl": [{"_id": query, "text": f"Which capital is number {query[1:]}?"} for query in ANSWERS],
        "answers.jsonl": [{"_id": query, "answers": answers} for query, answers in ANSWERS.items()],
    }
    for name, rows in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    judged = "".join(f"q{number}\td{number}\t2\nq{number}\td{number + 1}\t1\n" for number in range(len(ANSWERS)))
    (folder / "qrels" / "test.tsv").write_text(HEADER + judged, "utf-8")
    return [*(folder / name for name in files), folder / "qrels" / "test.tsv"]


def import_capitals(folder: Path, **options: Any) -> ImportResult:
    """Import the collection, ranked by exact match unless stated otherwise, and score its baseline."""
    write_capitals(folder)
    options = {"primary": "EM", "measures": ("CiteP", "CiteR"), "hidden": False, **options}
    imported = import_dataset(folder, ImportOptions(slug=SLUG, **options))
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    assert Job.objects.get(dataset=imported.dataset, kind=Job.Kind.BASELINE).state == State.DONE
    return imported


def answer_run(changes: Mapping[str, Mapping[str, Any]] | None = None, **every: Any) -> bytes:
    """Return an answer run with correct answers that cite the gold document, with `changes` by query."""
    lines = []
    for number, (query, answers) in enumerate(ANSWERS.items()):
        record = {"query_id": query, "answer": answers[0], "citations": [f"d{number}"], **every}
        lines.append(json.dumps({**record, **(changes or {}).get(query, {})}, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()
