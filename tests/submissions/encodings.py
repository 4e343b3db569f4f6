"""A corpus of three shards and a model over it: what tests of encodings begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import LazySettings

from leaderboard.models import Dataset
from submissions.jobs.checkpoints.encodings import EncodedShard, EncodingSetting, finish_shard
from submissions.models import Checkpoint, Job, State
from submissions.queue.queue import advance, claim
from tests.factories import make_dataset, make_job, make_version

SHARDS = 3


def ignore_progress(stage: str, share: float, note: str) -> None:
    """Report nothing."""


@pytest.fixture
def dataset(db: None) -> Dataset:
    """A dataset whose corpus has 25 documents."""
    found = make_dataset()
    version = make_version(found, corpus_sha256="c" * 64, statistics={"documents": 25})
    Dataset.objects.update(current_version=version)
    found.refresh_from_db()
    return found


@pytest.fixture
def setting(dataset: Dataset, settings: LazySettings, tmp_path: Path) -> EncodingSetting:
    """A model over that corpus, in three shards, and a store of the test's own: keys repeat as row ids do."""
    settings.VAR = tmp_path / "var"
    settings.SHARD_SIZE = 10
    checkpoint = Checkpoint.objects.create(
        sha256="a" * 64, model_sha256="b" * 64, kind="static-embeddings", description={}, size=1
    )
    version = dataset.current_version
    assert version is not None
    return EncodingSetting(checkpoint, version, "dense", {"maximum_length": 512}, "a-machine", "cpu", 2)


@pytest.fixture
def encode(tmp_path: Path) -> Callable[..., None]:
    """Finish a claimed shard with a file of its own."""

    def finish(job: Job, hardware: str = "a-machine") -> None:
        folder = tmp_path / f"out-{job.pk}-{job.fence}"
        folder.mkdir()
        (folder / "embeddings.npy").write_bytes(b"x" * 100)
        finish_shard(job, job.shard, EncodedShard(folder, 10, 1.5, hardware), ignore_progress)

    return finish


def model_job(dataset: Dataset) -> Job:
    """A job that has just been claimed and found that its corpus has several shards."""
    made = make_job(dataset, kind=Job.Kind.MODEL, queue=Job.Queue.CPU)
    job = claim(["cpu"], "parent")
    assert job is not None
    assert job.pk == made.pk
    assert advance(job.pk, State.RETRIEVING, fence=job.fence)
    return job


def next_shard(worker: str = "worker") -> Job:
    """The next shard's job, claimed."""
    job = claim(["cpu"], worker)
    assert job is not None
    assert job.kind == Job.Kind.SHARD
    assert advance(job.pk, State.RETRIEVING, fence=job.fence)
    return job


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return str(job.state)
