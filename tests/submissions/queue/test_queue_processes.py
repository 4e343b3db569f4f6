"""Real workers without a broker, asked to stop, and with work that hangs."""

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
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections

from leaderboard.core import wakeup
from leaderboard.management.supervisor import services
from submissions.models import Job, State, Worker
from submissions.queue.queue import WORK
from tests.factories import make_dataset, make_job
from tests.servers import processes
from tests.servers.broker import start_broker

pytestmark = [
    pytest.mark.database,
    pytest.mark.long_on_postgresql,
    pytest.mark.django_db(transaction=True),
]

#: A lease of 6 seconds, a look into the database once a second.
SCALE = "0.1"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(transactional_db: None, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker of two processes that has no broker."""
    running: list[subprocess.Popen[bytes]] = []

    def worker(
        name: str, queues: str = "score,dispatch", words: tuple[str, ...] = (), **more: str
    ) -> subprocess.Popen[bytes]:
        environment = {"REDIS_URL": "redis://127.0.0.1:1/0", "TEST_TIME_SCALE": SCALE, **more}
        if url := os.environ.get("DATABASE_URL", ""):
            database = str(connections["default"].settings_dict["NAME"])
            environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{database}\1", url, count=1)
        command = services.worker(name, queues, 2, environment)
        arguments = [
            "tests.submissions.slow_worker" if each == "leaderboard.celery" else each
            for each in words or command.arguments
        ]
        process = processes.start(arguments, tmp_path / f"{name}.log", environment, cwd=settings.BASE_DIR)
        running.append(process)
        return process

    yield worker
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    Worker.objects.all().delete()


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, list(
            Job.objects.values("pk", "state", "worker", "attempts", "log", "lease_expires_at")
        )
        time.sleep(0.05)
    return found


def slow_job(**payload: Any) -> Job:
    return make_job(make_dataset(), kind=Job.Kind.POOL, payload=payload)


def is_done(job: Job) -> bool:
    job.refresh_from_db()
    return job.state == State.DONE


def process_of(job: Job) -> int:
    """The pool process that holds the job, once one does."""

    def holder() -> str:
        job.refresh_from_db()
        return job.worker if job.state == State.SCORING else ""

    return int(wait_for(holder).rpartition(":")[2])


def runs(process: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_a_broker_work_is_found_dispatched_and_given_back(start: Start) -> None:
    first = start("first")
    quick = slow_job()
    wait_for(lambda: is_done(quick))
    worker = wait_for(Worker.objects.first)
    assert (sorted(worker.queues), worker.refusal) == (["dispatch", "score"], "")
    assert quick.worker.rpartition(":")[0] == worker.name
    wait_for(lambda: Worker.objects.exclude(dispatched_at=None).exists())

    asking, hanging = slow_job(ask=60), slow_job(hang=60)
    holders = {process_of(asking), process_of(hanging)}
    assert len(holders) == 2
    first.send_signal(signal.SIGTERM)
    wait_for(lambda: not Job.objects.filter(lease_expires_at__isnull=False).exists())
    assert first.wait(60) == 0
    for job in (asking, hanging):
        job.refresh_from_db()
        assert (job.state, job.attempts, job.lease_expires_at) == (State.QUEUED, 0, None), job.log
    assert not any(map(runs, holders))


@pytest.mark.long
def test_a_worker_that_hears_no_bell_looks_by_itself_and_stops_at_once(
    start: Start, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Its connection lives, and nothing comes over it: it is one to a broker that nobody else uses."""
    deaf = start("deaf", "score", REDIS_URL=start_broker(request.addfinalizer).url)
    name = wait_for(lambda: Worker.objects.values_list("name", flat=True).first())
    wait_for(lambda: " ready." in (tmp_path / "deaf.log").read_text())
    job = slow_job()
    wakeup.send_wakeup(WORK, job.queue, queue=job.queue)
    wait_for(lambda: is_done(job))
    assert job.worker.rpartition(":")[0] == name
    deaf.send_signal(signal.SIGTERM)
    assert deaf.wait(60) == 0


@pytest.mark.long
def test_processes_that_hang_are_ended_and_replaced(start: Start, tmp_path: Path) -> None:
    start("worker", REDIS_URL=settings.REDIS_URL, JOB_WALL_CLOCK_SECONDS="8")
    stopped, hanging = slow_job(ask=60), slow_job(hang=600)
    frozen, stuck = process_of(stopped), process_of(hanging)
    os.kill(frozen, signal.SIGSTOP)
    # Silent for half a lease: its worker ends it, the lease runs out, and another process does the job.
    wait_for(lambda: is_done(stopped))
    assert stopped.attempts == 2
    assert not runs(frozen)

    def has_timed_out() -> bool:
        hanging.refresh_from_db()
        return hanging.state == State.TIMED_OUT

    wait_for(has_timed_out)
    wait_for(lambda: not runs(stuck))
    last = [slow_job(ask=1), slow_job(ask=1)]
    wait_for(lambda: all(map(is_done, last)))
    assert not {job.worker.rpartition(":")[2] for job in last} & {str(frozen), str(stuck)}


def test_a_worker_that_is_to_end_when_idle_does_its_work_first(start: Start) -> None:
    job = make_job(make_dataset(), kind=Job.Kind.CERTAINTY)
    words = (
        sys.executable,
        "manage.py",
        "worker",
        "--queue",
        "score",
        "--until-idle",
        "1",
        "--device",
        "cpu:1",
    )
    process = start("passing", words=words)
    wait_for(lambda: is_done(job))
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--queue", "gpu", "--device", "cpu:1"], "Give cuda:N for --queue gpu"),
        (["--queue", "cpu", "--device", "cuda:0"], "cpu:N for the others"),
        (["--queue", "gpu", "--device", "3"], "does not match --queue gpu"),
        (["--queue", "cpu", "--until-idle", "0"], "at least one second"),
    ],
)
def test_what_no_worker_can_be_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        call_command("worker", *words)


def test_workers_with_devices_see_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is named by the order of the bus, as the machine's other tools name it."""
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execvpe", lambda file, words, environment: started.append((words, environment)))
    for device in ("cuda:0", "cuda:3"):
        call_command("worker", "--queue", "gpu", "--device", device)
    (_, first), (words, second) = started
    assert (second["CUDA_VISIBLE_DEVICES"], second["CUDA_DEVICE_ORDER"]) == ("3", "PCI_BUS_ID")
    assert first["CUDA_VISIBLE_DEVICES"] == "0"  # each locks its own: test_worker_devices.py
    assert words[words.index("--queues") + 1] == "gpu"
    assert words[words.index("--concurrency") + 1] == "1"
