"""A model's turn to be timed: it stands still while it waits, and goes on without figures where none comes."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from submissions.models import Job, State
from submissions.queue import lease as leases
from submissions.queue.lease import Lease
from submissions.queue.queue import claim, extend_lease, reap
from submissions.sandbox import backends, running
from submissions.sandbox.backends import Backend
from submissions.sandbox.machine_lock import WAITING_STAGE, MachineLock
from tests.factories import make_dataset, make_job
from tests.submissions.model_jobs import (
    make_published,
    make_submission,
    queue_model,
    run_waiting,
    use_toy_engine,
)
from tests.submissions.sandboxes import SMALL, Stranger

#: Asks, and works on beside it: in a thread and in a process of its own session.
BUSY = """
import threading, time
def work(name):
    while True:
        with open(out + "/" + name, "a") as file:
            file.write("x")
        time.sleep(0.005)
threading.Thread(target=work, args=("thread",), daemon=True).start()
if os.fork() == 0:
    os.setsid()
    work("process")
while not all(os.path.exists(out + "/" + name) for name in ("thread", "process")):
    time.sleep(0.01)
print('{"ask": "measure"}', flush=True)
tell(answer=sys.stdin.readline())
"""
ASK = """
print('{"ask": "measure"}', flush=True)
tell(answer=sys.stdin.readline())
"""


@pytest.fixture
def neighbour(own_lock: None) -> Iterator[MachineLock]:
    """Somebody who works on this machine."""
    lock = MachineLock()
    assert lock.try_acquire("shared")
    yield lock
    lock.close()


def test_whoever_waits_to_be_timed_stands_still(
    bubblewrap: Backend,
    neighbour: MachineLock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    """With everything it started: so the machine can be another's alone meanwhile. Then it goes on."""
    stranger = Stranger(bubblewrap, tmp_path, monkeypatch)
    seen: list[list[int]] = []

    def listen(stage: str, share: float, note: str) -> None:
        if stage != WAITING_STAGE:
            return
        out = stranger.folder / "out-1"
        seen.append([(out / name).stat().st_size for name in ("thread", "process")])
        if len(seen) == 3:
            neighbour.release()
            with Path(settings.TIMING_LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it would raise: nobody has it

    outcome = stranger.run(BUSY, on_progress=listen, measure=True)
    assert stranger.found == {"answer": "go\n"}, outcome
    assert seen[0] == seen[1] == seen[2] != [0, 0]


def test_no_turn_within_its_time_is_a_result_without_figures(
    bubblewrap: Backend, neighbour: MachineLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BM25 through the sandbox beside somebody who does not end: a run, and why it was not timed."""
    job = Stranger(bubblewrap, tmp_path, monkeypatch).job(checkpoint=None, measure=True)
    limits = replace(SMALL, memory_bytes=2 << 30, processes=512, scratch_bytes=64 << 20, waiting_seconds=0.5)
    outcome = running.run_job(bubblewrap, job, limits, lambda *told: None)
    assert outcome.kind == "done", outcome
    assert (outcome.result["figures"], outcome.result["variants"]) == (None, {})
    assert "not free" in outcome.unmeasured
    assert (job.out / "run.txt").read_text().startswith("q1 Q0 d7 1 ")
    assert neighbour.try_acquire("exclusive")


def test_whose_job_is_not_timed_gets_no_turn(
    bubblewrap: Backend, neighbour: MachineLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking costs nobody anything."""
    stranger = Stranger(bubblewrap, tmp_path, monkeypatch)
    told: list[str] = []
    stranger.run(ASK, on_progress=lambda stage, share, note: told.append(stage), measure=False)
    assert stranger.found == {"answer": "skip\n"}
    assert WAITING_STAGE not in told


WAKEFUL = """
import ctypes, signal
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("how", ctypes.c_int),
                ("rest", ctypes.c_char * 48)]
libc = ctypes.CDLL(None, use_errno=True)
for number in range(1, 200):
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, ctypes.byref(Event(signal=signal.SIGCONT)), ctypes.byref(timer)) == 0
    when = (ctypes.c_long * 4)(0, 0, *divmod(number * 50_000_000, 1_000_000_000))
    assert libc.timer_settime(timer, 0, ctypes.byref(when), None) == 0
print('{"ask": "measure"}', flush=True)
while True: pass
"""


def test_whoever_has_itself_woken_while_it_waits_is_ended(
    bubblewrap: Backend, neighbour: MachineLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By timers that say "go on" while nobody else would."""
    outcome = Stranger(bubblewrap, tmp_path, monkeypatch).run(WAKEFUL, replace(SMALL, waiting_seconds=8), measure=True)
    assert outcome.kind == "timed_out"


def test_a_waiting_model_is_ended_with_its_job(
    bubblewrap: Backend, neighbour: MachineLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it stands still, nothing of it is left."""

    class CancelledError(Exception):
        pass

    def cancel(stage: str, share: float, note: str) -> None:
        if stage == WAITING_STAGE:
            raise CancelledError

    stranger = Stranger(bubblewrap, tmp_path, monkeypatch)
    with pytest.raises(CancelledError):
        stranger.run(BUSY, on_progress=cancel, measure=True)
    sizes = [(stranger.folder / "out-1" / name).stat().st_size for name in ("thread", "process")]
    time.sleep(0.2)
    assert sizes == [(stranger.folder / "out-1" / name).stat().st_size for name in ("thread", "process")]


@pytest.mark.django_db
def test_the_log_says_why_an_entry_has_no_costs(
    own_lock: None, neighbour: MachineLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.VAR = tmp_path / "var"
    monkeypatch.setattr(backends, "MEASURING_WAIT_SECONDS", 0)
    use_toy_engine(monkeypatch, settings)
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 60.0)
    job = queue_model(make_published(tmp_path / "collection"), make_submission())
    run_waiting()
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert not job.entry.measurements.exists()
    assert "Toy was not timed: the machine was not free" in job.log


@pytest.mark.django_db
def test_waiting_for_the_machine_is_not_the_job_s_time(settings: Any) -> None:
    """Neither to be reaped for, nor in estimates."""
    make_job(make_dataset())
    job = claim(["score"], "worker")
    assert job is not None
    job.started_at = timezone.now() - timedelta(seconds=settings.JOB_WALL_CLOCK_SECONDS + 60)
    Job.objects.update(started_at=job.started_at)
    assert extend_lease(job, 0.5, WAITING_STAGE, waited=120)
    assert reap() == 0
    assert extend_lease(job, 0.5, "measuring", waited=30)
    assert reap() == 1
    job.refresh_from_db()
    assert job.state == State.TIMED_OUT


def test_a_lease_knows_how_long_its_job_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    lease = Lease(Job(stage=""))
    for now[0], stage in ((10.0, "loading"), (15.0, WAITING_STAGE), (40.0, WAITING_STAGE), (100.0, "measuring")):
        lease.report_stage(stage, 0.0)
    assert lease.waited == 85.0
