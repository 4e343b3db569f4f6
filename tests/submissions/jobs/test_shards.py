"""A corpus shared out between three worker processes, one of which is killed: the run of one process, byte for byte."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site
from django.db import connections

from leaderboard.core.storage.runs import open_run
from submissions.jobs.checkpoints import embeddings
from submissions.jobs.checkpoints.encodings import settle_waiting_jobs
from submissions.models import Job, Shard, State
from submissions.queue.queue import reap
from submissions.sandbox.backends import Program, SandboxedProcess, UnprotectedBackend
from submissions.sandbox.processes import process_tree
from tests.servers import processes
from tests.submissions.model_jobs import (
    by_one_process,
    make_published,
    make_submission,
    queue_model,
    run_waiting,
    use_toy_engine,
)

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

WORKERS = 3
SHARD_SIZE = 5


@pytest.fixture
def workers(transactional_db: None, tmp_path: Path) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """Three worker processes by their ids, with short leases and small shards."""
    environment = {
        "SANDBOX": "none",
        "MODEL_THREADS": "1",
        "SHARD_SIZE": str(SHARD_SIZE),
        "TEST_TIME_SCALE": "0.1",
        "TIMING_LOCK": str(tmp_path / "timing.lock"),
    }
    if url := os.environ.get("DATABASE_URL", ""):
        name = str(connections["default"].settings_dict["NAME"])
        environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)
    command = [sys.executable, "-m", "tests.submissions.shard_worker"]
    running = [
        processes.start(command, tmp_path / f"worker-{number}.log", environment, cwd=site.BASE_DIR)
        for number in range(WORKERS)
    ]
    yield {process.pid: process for process in running}
    for process in running:
        processes.stop(process, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], seconds: float = 180.0) -> Any:
    """What the condition gives once it holds. Meanwhile we are the dispatcher."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, list(Job.objects.values("kind", "state", "worker", "log"))
        reap()
        settle_waiting_jobs()
        time.sleep(0.1)
    return found


@pytest.mark.long
def test_a_killed_worker_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    workers: dict[int, subprocess.Popen[bytes]],
) -> None:
    use_toy_engine(monkeypatch, settings)
    dataset = make_published(tmp_path / "collection")
    submission = make_submission(pause=0.6)  # a shard takes longer than it is between two looks of its lease
    parent = queue_model(dataset, submission)

    shards = Job.objects.filter(kind=Job.Kind.SHARD)
    under_way = shards.filter(state=State.RETRIEVING, stage="encoding", lease_expires_at__isnull=False)
    victim = wait_for(under_way.first)
    parent.refresh_from_db()
    assert (parent.state, parent.lease_expires_at) == (State.RETRIEVING, None)
    pid = int(victim.worker.rpartition(":")[2])
    children = process_tree(pid)[1:]
    workers[pid].kill()
    # A child that stood still between two shards reads no end of its input: the system ends it.
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 10)

    def ended() -> bool:
        parent.refresh_from_db()
        return parent.state not in (State.QUEUED, State.RETRIEVING, State.SCORING)

    wait_for(ended)
    assert (parent.state, parent.error_code) == (State.DONE, ""), parent.log
    victim.refresh_from_db()
    assert (victim.state, victim.attempts) == (State.DONE, 2)
    assert "The worker was lost. The job will be retried." in victim.log
    assert victim.worker != f"{victim.worker.rpartition(':')[0]}:{pid}"
    assert Shard.objects.exclude(done_at=None).count() == 6
    # The killed one may have done another shard before.
    survivors = {worker.rpartition(":")[2] for worker in shards.values_list("worker", flat=True)} - {str(pid)}
    assert len(survivors) == WORKERS - 1
    assert parent.entry is not None
    assert parent.entry.evaluation is not None
    with open_run(parent.entry.evaluation.run.sha256) as text:
        assert text.read().decode() == by_one_process(dataset, submission, tmp_path / "single.txt", SHARD_SIZE)
    # All of one hardware class, so times are published; the rate of encoding is the shards' own.
    figures = parent.entry.measurements.get().figures
    seconds = sum(Shard.objects.values_list("seconds", flat=True))
    assert figures["documents_per_second"] == pytest.approx(30 / seconds)


def test_one_child_encodes_the_shards_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """A process loads the model once; what comes after the shards finds no child of theirs."""
    use_toy_engine(monkeypatch, settings)
    settings.SHARD_SIZE = SHARD_SIZE
    started: list[int] = []
    start = UnprotectedBackend.start

    def count(backend: UnprotectedBackend, program: Program) -> SandboxedProcess:
        child = start(backend, program)
        if (
            '"encode_shards"'
            in next(mount.source for mount in program.mounts if mount.source.name == "job.json").read_text()
        ):
            started.append(child.process.pid)
        return child

    monkeypatch.setattr(UnprotectedBackend, "start", count)
    parent = queue_model(make_published(tmp_path / "collection"), make_submission())
    run_waiting()
    parent.refresh_from_db()
    assert parent.state == State.DONE, parent.log
    assert Shard.objects.exclude(done_at=None).count() == 6
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()


def test_a_job_waits_for_a_disk_that_can_hold_its_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """It is told before hours of encoding, no attempt is lost, and the job goes on once there is room."""
    use_toy_engine(monkeypatch, settings)
    submission = make_submission()
    assert submission.checkpoint is not None
    submission.checkpoint.description = {"dimension": 1024}
    submission.checkpoint.save()
    parent = queue_model(make_published(tmp_path / "collection"), submission)
    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + 30 * 4096 - 1)
        run_waiting()
    parent.refresh_from_db()
    assert (parent.state, parent.attempts) == (State.QUEUED, 0)
    assert parent.not_before is not None
    assert "At least 120 KiB of disk space is needed for the embeddings; 120 KiB is free." in parent.log
    Job.objects.filter(pk=parent.pk).update(not_before=None)
    run_waiting()
    parent.refresh_from_db()
    assert parent.state == State.DONE, parent.log
