"""The job that these tests run, or read what is left of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.execution.job import ExecutionJob


@pytest.fixture
def job(tmp_path: Path) -> ExecutionJob:
    """BM25 over three documents."""
    corpus, queries, out = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl", tmp_path / "out"
    texts = {"d1": "running dogs", "d2": "a cat", "d3": "dogs and cats"}
    corpus.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts.items()))
    queries.write_text('{"_id": "q1", "text": "dog"}\n{"_id": "q2", "text": "cat"}\n')
    out.mkdir()
    return ExecutionJob(task="retrieve", engine="bm25", out=out, corpus=corpus, queries=queries, measure=False)
