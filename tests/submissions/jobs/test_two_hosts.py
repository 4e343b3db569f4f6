"""Hosts that share a database and a bucket, and no folder: a worker retrieves on one, a scorer scores on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from leaderboard.core.storage import shared
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area
from leaderboard.settings.environment import storages_of_several_hosts
from submissions.checkpoints.service import checkpoint_folder
from submissions.jobs.checkpoints.running import WARM_ENCODER
from submissions.jobs.runner import run_job
from submissions.models import Job, State
from submissions.queue.queue import claim
from tests.servers import s3
from tests.submissions.model_jobs import make_published, make_submission, queue_model, use_toy_engine

BUCKET = "runboard"


def work(queue: str, host: Path, settings: Any, *, private: bool) -> Job:
    """Have a host do the oldest waiting job."""
    settings.VAR, settings.PRIVATE_STORAGE = host, private
    job = claim([queue], host.name)
    assert job is not None
    run_job(job)
    job.refresh_from_db()
    return job


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.database
def test_a_model_runs_where_nothing_but_the_bucket_is(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("submissions.jobs.checkpoints.run_model.measure_configuration", lambda *_: {})
    site, worker = tmp_path / "site", tmp_path / "worker"
    site.mkdir()
    worker.mkdir()
    with s3.running(tmp_path / "s3.log") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        entries = storages_of_several_hosts(f"s3://{BUCKET}/store", "", tmp_path / "unused")
        settings.STORAGES = {**settings.STORAGES, **entries}
        settings.VAR = site
        use_toy_engine(monkeypatch, settings)
        settings.SHARD_SIZE = 20
        dataset = make_published(tmp_path / "collection")
        submission = make_submission()
        assert submission.checkpoint is not None
        shared.send(checkpoint_folder(submission.checkpoint))
        queue_model(dataset, submission)

        assert work("cpu", worker, settings, private=False).state == State.RETRIEVING
        for _ in range(2):
            assert work("cpu", worker, settings, private=False).state == State.DONE
        found = work("cpu", worker, settings, private=False)
        assert (found.queue, found.state) == (Job.Queue.SCORE, State.QUEUED), found.log
        WARM_ENCODER.close()
        scored = work("score", site, settings, private=True)
        assert scored.state == State.DONE, scored.log
        entry = scored.entry or scored.further_entries.get()
        assert entry.evaluation is not None
        assert run_path(entry.evaluation.run.sha256).exists()
        stored = [entry["Key"] for entry in boto3.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]]
    areas = {key.split("/")[1] for key in stored}
    assert areas == {"checkpoints", "embeddings", "files", "indexes", "runs"}
    assert not (worker / "private").exists()
    assert not (site / Area.EMBEDDINGS.value).exists()
