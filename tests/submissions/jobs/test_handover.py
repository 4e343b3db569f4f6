"""Retrieving without judgements: who retrieves hands over to a scorer, and the result is the same."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.qrels import JudgementsNotOpen, copy_open_judgements, open_judgements
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Entry
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs, earlier_work_seconds, request_cancel
from tests.submissions.collections import HEADER

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def baseline_job(db: None, tmp_path: Path) -> Job:
    """The job that publishes a small collection."""
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{n}", "text": "common " * n + f"word{n}"} for n in range(1, 31)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "common word7"}\n')
    (folder / "qrels" / "test.tsv").write_text(HEADER + "q1\td7\t1\n")
    dataset = import_dataset(folder, ImportOptions(slug="small", hidden=False)).dataset
    create_requested_jobs()
    return Job.objects.get(dataset=dataset, kind=Job.Kind.BASELINE)


def retrieve_only(settings: Any) -> None:
    """What a worker does that has no private storage: reading any judgement there raises."""
    settings.PRIVATE_STORAGE = False
    drain_queue("cpu", "a-retriever")
    settings.PRIVATE_STORAGE = True


def test_a_retriever_without_judgements_hands_over_and_a_scorer_publishes(baseline_job: Job, settings: Any) -> None:
    retrieve_only(settings)
    baseline_job.refresh_from_db()
    assert (baseline_job.state, baseline_job.queue, baseline_job.attempts) == (State.QUEUED, "score", 0)
    assert "Waiting for a scorer" in baseline_job.log
    assert earlier_work_seconds(baseline_job.payload) > 0
    drain_queue("score", "a-scorer")
    baseline_job.refresh_from_db()
    assert baseline_job.state == State.DONE
    entry = Entry.objects.get(dataset=baseline_job.dataset, is_baseline=True)
    assert entry.scores["RR@10"] == 1.0
    assert Dataset.objects.get(slug="small").state == Dataset.State.PUBLISHED
    assert baseline_job.dataset.current_version is not None
    assert baseline_job.dataset.current_version.files.filter(kind="example_run").exists()


def test_what_was_retrieved_over_other_content_is_retrieved_again(baseline_job: Job, settings: Any) -> None:
    retrieve_only(settings)
    baseline_job.refresh_from_db()
    payload = baseline_job.payload
    payload["retrieved"]["version"] += 1
    Job.objects.filter(pk=baseline_job.pk).update(payload=payload)
    drain_queue("score", "a-scorer")
    baseline_job.refresh_from_db()
    assert (baseline_job.state, baseline_job.queue) == (State.QUEUED, "cpu")
    assert "retrieved" not in baseline_job.payload
    drain_queue("cpu", "a-retriever")
    baseline_job.refresh_from_db()
    assert baseline_job.state == State.DONE


def test_a_run_that_its_scorer_never_finds_fails_the_third_time(
    baseline_job: Job, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The retriever's store is another than the scorer's."""
    for turn in range(1, 4):
        retrieve_only(settings)
        baseline_job.refresh_from_db()
        assert (baseline_job.state, baseline_job.queue) == (State.QUEUED, "score"), f"turn {turn}"
        for run in baseline_job.payload["retrieved"]["runs"]:
            run_path(run["sha256"]).unlink()
        drain_queue("score", "a-scorer")
    baseline_job.refresh_from_db()
    assert (baseline_job.state, baseline_job.error_code) == (State.FAILED, "run_missing")
    assert baseline_job.fault
    assert baseline_job.fault in baseline_job.log
    assert baseline_job.fault in caplog.text
    assert "Do retriever and scorer share one?" in caplog.text
    assert "new version" not in baseline_job.log


def test_a_run_that_waits_for_its_scorer_is_not_swept_and_can_be_cancelled(baseline_job: Job, settings: Any) -> None:
    from submissions.jobs.cleanup import remove_unreferenced

    retrieve_only(settings)
    baseline_job.refresh_from_db()
    [run] = baseline_job.payload["retrieved"]["runs"]
    old = (timezone.now() - timedelta(days=3)).timestamp()
    import os

    os.utime(run_path(run["sha256"]), (old, old))
    remove_unreferenced()
    assert run_path(run["sha256"]).exists()
    assert request_cancel(baseline_job)
    os.utime(run_path(run["sha256"]), (old, old))
    remove_unreferenced()
    assert not run_path(run["sha256"]).exists()


def test_open_judgements_are_laid_out_for_who_has_no_private_storage(baseline_job: Job, settings: Any) -> None:
    drain_queue("cpu", "a-worker")
    dataset = Dataset.objects.get(slug="small")
    assert dataset.current_qrels is not None
    settings.PRIVATE_STORAGE = False
    with pytest.raises(JudgementsNotOpen):
        open_judgements(dataset)
    settings.PRIVATE_STORAGE = True
    assert copy_open_judgements() == 1
    settings.PRIVATE_STORAGE = False
    assert open_judgements(dataset).query_ids == ("q1",)
    with pytest.raises(PermissionError):
        path_of(Area.QRELS, dataset.current_qrels.sha256)

    settings.PRIVATE_STORAGE = True
    Dataset.objects.filter(pk=dataset.pk).update(hidden=True)
    assert copy_open_judgements() == 0
    assert not path_of(Area.OPEN_QRELS, dataset.current_qrels.sha256).exists()


def test_judgements_that_are_gone_keep_no_others_from_being_laid_out(baseline_job: Job, settings: Any) -> None:
    """The dispatcher says which are missing each time, after it has done what it can."""
    drain_queue("cpu", "a-worker")
    there = Dataset.objects.get(slug="small")
    assert there.current_qrels is not None
    for number in range(3):
        gone = Dataset.objects.create(slug=f"gone-{number}", name="Gone", hidden=False)
        version = gone.versions.create(number=1, content_sha256=f"{number:064x}")
        gone.current_version, gone.state = version, Dataset.State.PUBLISHED
        gone.current_qrels = version.qrels.create(sha256=f"{number:064x}")
        gone.save()
    with pytest.raises(FileNotFoundError, match=f"{0:064x}, {1:064x}, {2:064x}"):
        copy_open_judgements()
    assert path_of(Area.OPEN_QRELS, there.current_qrels.sha256).exists()
