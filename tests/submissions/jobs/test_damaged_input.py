"""What the store holds is damaged: no result comes of it, and no model is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections import beir
from evaluation.collections.beir import read_table
from leaderboard.core.storage import shared
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import Dataset
from submissions.checkpoints.service import checkpoint_folder
from submissions.jobs import runner
from submissions.jobs.checkpoints import own_engines
from submissions.jobs.checkpoints.encodings import settle_waiting_jobs
from submissions.models import Checkpoint, Job, Shard, State
from tests.submissions.model_jobs import make_published, make_submission, queue_model, run_waiting

pytestmark = pytest.mark.django_db


@pytest.fixture
def dataset(with_toy_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Dataset:
    """A published collection whose corpus is of several blocks. Nothing is tried again."""
    settings.SHARD_SIZE = 15
    monkeypatch.setattr(beir, "BLOCK_BYTES", 300)
    monkeypatch.setattr(runner, "ATTEMPTS", 1)
    return make_published(tmp_path / "collection")


def corpus_of(dataset: Dataset) -> Path:
    """The stored file, which may be written to."""
    assert dataset.current_version is not None
    path = path_of(Area.FILES, dataset.current_version.corpus_sha256)
    path.chmod(0o644)
    return path


def cut_between_blocks(path: Path) -> None:
    """What is left is a whole gzip file, of fewer documents."""
    table = read_table(path)
    assert table is not None
    path.write_bytes(path.read_bytes()[: int(table.rows[len(table.rows) // 2, 0])])


def flip_bytes(path: Path) -> None:
    """In the first block."""
    content = bytearray(path.read_bytes())
    content[40:60] = bytes(byte ^ 0x5A for byte in content[40:60])
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [flip_bytes, *(pytest.param(each, marks=pytest.mark.long) for each in (cut_between_blocks, Path.unlink))],
)
def test_a_damaged_corpus_is_a_fault_of_ours(dataset: Dataset, damage: Callable[[Path], None]) -> None:
    damage(corpus_of(dataset))
    job = queue_model(dataset, make_submission())
    run_waiting()
    settle_waiting_jobs()
    job.refresh_from_db()
    assert (job.state, job.error_code, job.entry_id) == (State.FAILED, "fault", None), job.log
    assert job.report == {}
    assert job.fault
    # Shards that the damage does not touch may be there, each with all of its documents.
    assert set(Shard.objects.exclude(done_at=None).values_list("documents", flat=True)) <= {15}
    assert Shard.objects.filter(done_at=None).exists()


def test_a_baseline_of_a_damaged_corpus_is_none(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is an index kept of it."""
    monkeypatch.setattr(own_engines, "MIN_DOCUMENTS", 1)
    cut_between_blocks(corpus_of(dataset))
    job = Job.objects.create(kind=Job.Kind.BASELINE, queue="cpu", dataset=dataset, state=State.QUEUED)
    run_waiting()
    job.refresh_from_db()
    assert (job.state, job.error_code) == (State.FAILED, "fault"), job.log
    assert "BM25's index could not be cached (DamagedInput)." in job.log
    assert not list((Path(own_engines.settings.VAR) / Area.WORD_INDEXES.value).glob("*/*"))


def test_a_checkpoint_that_lacks_a_file_here_is_a_fault_of_ours(
    dataset: Dataset, settings: Any, tmp_path: Path
) -> None:
    """Its team sent a whole one; that the model does not run for it is not their affair. The next job gets that one."""
    submission = make_submission(wrong="not_finite")
    folder = checkpoint_folder(Checkpoint.objects.get())
    described = CheckpointDescription.read(folder)
    replace(described, files={"model/model.safetensors": "0" * 64}).write(folder)
    weights = folder / "model" / "model.safetensors"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"weights")
    settings.STORAGES = {
        **settings.STORAGES,
        "store": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path / "shared")},
        },
    }
    shared.send(folder)
    weights.unlink()
    job = queue_model(dataset, submission)
    run_waiting()
    settle_waiting_jobs()
    job.refresh_from_db()
    assert (job.state, job.error_code, job.report) == (State.FAILED, "fault", {}), job.log
    shared.ensure_local(folder)
    assert weights.exists()
