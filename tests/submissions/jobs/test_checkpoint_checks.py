"""A model's job begins with the library's verdict on its checkpoint: seen live, told in full, and free of charge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from leaderboard.models import Dataset
from submissions.checkpoints.service import CheckpointArchive, checkpoint_folder, store_checkpoint
from submissions.core.errors import Refused
from submissions.intake.checkpoints import readiness
from submissions.intake.checkpoints.readiness import count_model_runs, refuse_beyond_quota
from submissions.jobs.checkpoints import running
from submissions.models import Checkpoint, Job, State, Submission
from tests.evaluation.small_checkpoint import files, zipped
from tests.submissions.model_jobs import make_submission, queue_model, run_waiting

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("the_library_checks")]


@pytest.fixture(autouse=True)
def the_library_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a busy machine."""
    monkeypatch.setattr(running, "CHECK_SECONDS", 300)


def sent(submission: Submission, tmp_path: Path, **configuration: Any) -> Checkpoint:
    """A small BERT with other values in its configuration, kept as the team's, and the submission's from now on."""
    content = files()
    content["config.json"] = json.dumps({**json.loads(content["config.json"]), **configuration}).encode()
    archive = zipped(content, tmp_path / f"{submission.pk}.zip")
    row = store_checkpoint(submission.team, CheckpointArchive("m.zip", archive), submission.submitter)
    Submission.objects.filter(pk=submission.pk).update(checkpoint=row)
    submission.refresh_from_db()
    return row


def ended(dataset: Dataset, submission: Submission) -> Job:
    """A job of the submission, after the worker did what waited."""
    job = queue_model(dataset, submission)
    run_waiting()
    job.refresh_from_db()
    return job


def test_what_the_library_does_not_take_ends_all_jobs_of_the_submission_and_costs_nothing(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    submission, other = make_submission(), make_submission("Other")
    sent(submission, tmp_path, num_hidden_layers=3)
    sibling, stranger = queue_model(small, submission), queue_model(small, other)
    Job.objects.filter(pk=stranger.pk).update(queue=Job.Queue.GPU)  # which nobody works through here
    asked = Mock(wraps=running.run_job)
    monkeypatch.setattr(running, "run_job", asked)

    first = ended(small, submission)

    assert (first.state, first.error_code) == (State.REJECTED, "checkpoint_refused"), first.log
    (problem,) = first.report["problems"]
    assert problem["code"] == "missing_weights"
    assert problem["message"].startswith("model.safetensors: encoder.layer.1.attention")
    for job in (sibling, stranger):
        job.refresh_from_db()
    assert "encoder.layer.1" in first.log + sibling.log
    assert asked.call_count == 1
    assert (sibling.state, sibling.error_code) == (State.REJECTED, "checkpoint_refused")
    assert sibling.report == first.report
    assert sibling.finished_at is not None
    assert "No run was produced" in sibling.log
    assert stranger.state == State.QUEUED
    assert submission.team is not None
    assert count_model_runs(submission.team).used == 0
    monkeypatch.setattr(readiness, "REFUSED_CHECKPOINTS_PER_HOUR", 1)
    with pytest.raises(Refused, match="rejected 1 checkpoints of your team"):
        refuse_beyond_quota(submission.team, 1)


@pytest.mark.long
def test_what_it_takes_is_asked_once(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = make_submission()
    row = sent(submission, tmp_path)
    stages: list[str] = []
    monkeypatch.setattr("submissions.queue.lease.Lease.report_stage", lambda self, stage, *rest: stages.append(stage))

    first = ended(small, submission)

    assert first.error_code != "checkpoint_refused", first.log
    assert "checking" in stages
    assert "transformers" in (checkpoint_folder(row) / "checked.txt").read_text()
    stages.clear()
    ended(small, submission)
    assert "checking" not in stages
