"""The sample checkpoint: made here, run in the sandbox like any model, beside BM25, and offered to upload again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.core.work_requests import request_work
from leaderboard.importing.demo.sample_checkpoint import ARCHIVE_NAME, REFUSED_NAME
from leaderboard.models import Entry, WorkRequest
from submissions import sandbox
from submissions.models import Checkpoint, Job, State
from submissions.queue.queue import create_requested_jobs
from tests.submissions.model_jobs import make_published, run_waiting, use_backend

pytestmark = pytest.mark.django_db


@pytest.mark.long
def test_the_sample_is_made_measured_and_offered(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VAR = tmp_path / "var"
    dataset = make_published(tmp_path / "collection")
    use_backend(settings, "auto" if sandbox.backend().available else "none")
    request_work(WorkRequest.Kind.SAMPLE_MODEL, dataset)
    create_requested_jobs()
    run_waiting()
    job = Job.objects.get(kind=Job.Kind.SAMPLE_MODEL)
    assert (job.state, job.error_code) == (State.DONE, ""), job.log
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.team, checkpoint.kind) == (None, "static-embeddings")
    entry = Entry.objects.get(system__team=None, system__architecture="dense")
    assert entry.provenance == Entry.Provenance.MEASURED
    assert (entry.training, entry.system.adapted_to) == ("adapted", [dataset.slug])
    measured = entry.measurements.get()
    assert measured.figures["parameters"] > 0
    assert measured.figures["parts_ms"]["query_encoding"] > 0
    assert measured.baseline["latency_ms"]["mean"] > 0
    assert measured.figures["flops_per_query"] > measured.baseline["flops_per_query"] > 0
    assert measured.figures["job_seconds"] > measured.figures["build_seconds"]
    assert entry.facts["dimension"] > 0
    for name in (ARCHIVE_NAME, REFUSED_NAME):
        assert Client().get(f"/datasets/{dataset.slug}/files/{name}").status_code == 200
