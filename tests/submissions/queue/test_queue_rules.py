"""Rules of the queue: who may work, what a claim ends with, how an attempt is cut short, cancelling in every state."""

from __future__ import annotations

import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from leaderboard import VERSION
from leaderboard.core.schema_version import describe_mismatch
from submissions import tasks
from submissions.jobs import runner
from submissions.jobs import worker as worker_module
from submissions.jobs.runner import drain_queue, run_job
from submissions.jobs.worker import HungProcessMonitor, dispatcher_is_late, poll_queues
from submissions.models import TERMINAL, Job, State, Worker
from submissions.queue import lease as leases
from submissions.queue import workers as worker_process
from submissions.queue.lease import Lease
from submissions.queue.queue import advance, claim, extend_lease, reap, request_cancel, requeue, time_out
from submissions.queue.workers import STOPPING, Heartbeat, count_workers, refusal, workers_alive
from tests.factories import make_dataset, make_job

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What one test found of versions says nothing to the next."""
    worker_process._identity.asked_at = -inf
    yield
    STOPPING.clear()
    worker_process._identity.asked_at = -inf


def claimed(**fields: Any) -> Job:
    make_job(make_dataset(), **fields)
    job = claim(["score"], "host:1:2")
    assert job is not None
    return job


# --- versions


def test_code_and_database_match() -> None:
    assert describe_mismatch() == ""


def test_the_announced_version_is_the_packages() -> None:
    assert tomllib.loads((site.BASE_DIR / "pyproject.toml").read_text())["project"]["version"] == VERSION


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("forget", "The database lacks submissions.0001_initial: run manage.py migrate"),
        ("add", "The database has submissions.9999_of_tomorrow, which this version does not know"),
    ],
)
def test_a_worker_of_another_version_takes_nothing_until_they_match(change: str, said: str) -> None:
    job = make_job(make_dataset())
    recorder = MigrationRecorder(connection)
    if change == "forget":
        recorder.record_unapplied("submissions", "0001_initial")
    else:
        recorder.record_applied("submissions", "9999_of_tomorrow")
    assert refusal().startswith(said)
    assert drain_queue("score", "host:1:2") == 0
    tasks.dispatch()
    poll_queues()
    job.refresh_from_db()
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    Heartbeat("host:1", ["score"], VERSION)._write_row()
    assert (workers_alive("score"), count_workers("score")[1]) == (0, 1)

    if change == "forget":
        recorder.record_applied("submissions", "0001_initial")
    else:
        recorder.record_unapplied("submissions", "9999_of_tomorrow")
    worker_process._identity.asked_at = -inf
    Heartbeat("host:1", ["score"], VERSION)._write_row()
    assert (workers_alive("score"), count_workers("score")[1]) == (1, 0)
    assert claim(["score"], "host:1:2") is not None


def test_a_worker_lives_while_the_database_is_away(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file says so: whoever watches it, such as Kubernetes, does not end a worker that waits."""
    file = tmp_path / "heartbeat"
    settings.HEARTBEAT_FILE = str(file)

    def away(heartbeat: Heartbeat) -> None:
        raise OperationalError("the connection was refused")

    monkeypatch.setattr(Heartbeat, "_write_row", away)
    heartbeat = Heartbeat("host:1", ["score"], VERSION)
    heartbeat._stop_event.set()  # after one sign of life
    heartbeat._run()
    assert file.exists()


def test_another_apps_leftovers_are_nobodys_version() -> None:
    MigrationRecorder(connection).record_applied("an_app_of_old", "0001_initial")
    assert describe_mismatch() == ""


# --- claims


def test_who_held_a_claim_writes_nothing_once_it_is_back_in_the_queue() -> None:
    job = claimed()
    assert requeue(job, counts_attempt=True)
    assert not extend_lease(job, 0.5, "scoring")
    assert not advance(job.pk, State.SCORING, fence=job.fence)
    job.refresh_from_db()
    assert (job.state, job.lease_expires_at) == (State.QUEUED, None)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_keeps_no_job(hours: int) -> None:
    """A lease given before the clock was set back, and a pause: neither lasts an hour."""
    job = claimed()
    jump = timedelta(hours=hours)
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() + timedelta(seconds=60) - jump)
    assert reap() == 1
    Job.objects.filter(pk=job.pk).update(not_before=timezone.now() - jump)
    assert claim(["score"], "host:1:2") is not None


def test_a_hung_process_is_ended_at_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda process, what: ended.append((process, what)))
    job = claimed()
    hung = HungProcessMonitor("host:1")
    assert hung.kill_hung([2]) == []
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() + timedelta(seconds=20))
    assert hung.kill_hung([2]) == []
    extend_lease(job, 0.1, "")
    assert hung.kill_hung([2]) == []
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() + timedelta(seconds=20))
    assert [hung.kill_hung([2]), hung.kill_hung([2])] == [[], [2]]
    assert ended == [(2, signal.SIGKILL)]


def test_a_process_that_does_not_hear_that_its_job_ended_is_ended(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Foreign code that lets nothing else run: its own thread cannot end it, and the lease is gone already."""
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, what: ended.append(process))
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, cancellation_grace=0.0, lease=0.0)
    before = claimed()
    assert advance(before.pk, State.CANCELLED, fence=before.fence)  # by a worker of the same name, before this one
    hung = HungProcessMonitor("host:1")
    assert hung.kill_hung([2]) == []
    job = claimed()
    assert time_out(job)
    assert [hung.kill_hung([2]), hung.kill_hung([2]), hung.kill_hung([2])] == [[], [2], []]
    assert ended == [2]


def test_each_kind_of_job_has_work() -> None:
    assert set(runner.WORK) == set(Job.Kind)


def test_a_process_that_heard_goes_on(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Whoever leaves a job that was cancelled, put back or timed out says so, and is held for nothing."""
    monkeypatch.setattr(os, "kill", lambda process, what: pytest.fail("ended"))
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, cancellation_grace=0.0, lease=0.0)
    hung = HungProcessMonitor("host:1")
    assert hung.kill_hung([2]) == []
    job = claimed()

    def timed_out_meanwhile(job: Job, lease: Lease) -> None:
        advance(job.pk, State.TIMED_OUT, fence=job.fence)
        raise leases.LeaseLost

    monkeypatch.setitem(runner.WORK, Job.Kind.SCORE, timed_out_meanwhile)
    run_job(job)
    waits = claimed()
    monkeypatch.setitem(runner.WORK, Job.Kind.SCORE, _raise(leases.Stopped))
    run_job(waits)
    assert request_cancel(waits)
    assert set(Job.objects.values_list("state", flat=True)) == {State.TIMED_OUT, State.CANCELLED}
    assert [hung.kill_hung([2]), hung.kill_hung([2])] == [[], []]


def test_a_wish_to_stop_outlives_the_third_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    job = claimed()
    Job.objects.update(attempts=3, cancel_requested=True)
    job.refresh_from_db()
    monkeypatch.setitem(runner.WORK, Job.Kind.SCORE, _raise(RuntimeError))
    run_job(job)
    job.refresh_from_db()
    assert (job.state, job.error_code, job.fault) == (State.CANCELLED, "", "")
    assert "We are sorry" not in job.log


def _raise(error: type[Exception]) -> Callable[[Job, Lease], None]:
    def work(job: Job, lease: Lease) -> None:
        raise error

    return work


def test_a_lease_ends_with_the_wall_clock_though_nobody_dispatches(settings: Any) -> None:
    job = claimed()
    lease = Lease(job)
    settings.JOB_WALL_CLOCK_SECONDS = 0
    lease.extend()
    job.refresh_from_db()
    assert (job.state, job.error_code, lease.lost) == (State.TIMED_OUT, "timed_out", True)


# --- stopping


def test_work_is_given_back_when_the_worker_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(job: Job, lease: Lease) -> None:
        STOPPING.set()
        lease.report(0.5)

    monkeypatch.setitem(runner.WORK, Job.Kind.POOL, work)
    job = claimed(kind=Job.Kind.POOL)
    run_job(job)
    job.refresh_from_db()
    assert (job.state, job.attempts, job.not_before) == (State.QUEUED, 0, None)
    assert "continues on another worker" in job.log
    assert drain_queue("score", "host:1:2") == 0


def test_what_cannot_leave_is_put_back_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "GRACE", 0.0)
    monkeypatch.setattr(worker_process._identity, "worker", "host:1")
    job = claimed()
    worker_module.drain_pool([])
    job.refresh_from_db()
    assert (job.state, job.attempts, job.lease_expires_at) == (State.QUEUED, 0, None)


# --- looking


def test_one_process_does_one_thing_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process._identity, "queues", ("score",))
    done = []
    monkeypatch.setattr("submissions.jobs.worker.drain_queue", lambda queue, name: done.append(queue))
    poll_queues()
    make_job(make_dataset())
    with worker_process.AT_WORK:
        thread = threading.Thread(target=tasks.work, args=("score",))
        thread.start()
        thread.join()
    assert done == []
    poll_queues()
    assert done == ["score"]


def test_a_message_that_names_another_workers_queue_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process._identity, "queues", ("score", "dispatch"))
    done = []
    monkeypatch.setattr("submissions.jobs.worker.drain_queue", lambda queue, name: done.append(queue))
    for queue in ("cpu", "gpu", "notices", "", "score"):
        tasks.work(queue)
    assert done == ["score"]


def test_the_dispatchers_turn_is_taken_where_nobody_does() -> None:
    now = timezone.now()
    worker = Worker.objects.create(name="host:1", started_at=now, seen_at=now)
    for ago, late in [(None, True), (0, False), (3600, True), (-3600, True)]:
        worker.dispatched_at = None if ago is None else now - timedelta(seconds=ago)
        worker.save()
        assert dispatcher_is_late() is late, ago


# --- cancelling


@pytest.mark.parametrize("stage", ["uploading", "validating", "queued", "backoff", "shards", "collecting"])
def test_what_waits_is_cancelled_at_once(stage: str) -> None:
    state = {"uploading": State.UPLOADING, "validating": State.VALIDATING, "shards": State.RETRIEVING}
    job = make_job(make_dataset(), state=state.get(stage, State.QUEUED), validated=stage != "validating")
    if stage == "backoff":
        Job.objects.filter(pk=job.pk).update(not_before=timezone.now() + timedelta(minutes=1), attempts=2)
    if stage == "shards":
        Job.objects.filter(pk=job.pk).update(kind=Job.Kind.MODEL, queue=Job.Queue.CPU)
    if stage == "collecting":
        type(job.dataset).objects.update(state="collecting", current_qrels=None)
    job.refresh_from_db()
    assert request_cancel(job)
    job.refresh_from_db()
    assert (job.state, job.lease_expires_at) == (State.CANCELLED, None)


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        (State.VALIDATING, ""),
        (State.RETRIEVING, "loading"),
        (State.RETRIEVING, "encoding"),
        (State.RETRIEVING, "searching"),
        (State.RETRIEVING, "waiting"),
        (State.RETRIEVING, "measuring"),
        (State.SCORING, "scoring"),
    ],
)
@pytest.mark.parametrize("lost", [False, True], ids=["at work", "worker lost"])
def test_what_runs_is_cancelled_by_its_worker_or_when_that_is_lost(
    monkeypatch: pytest.MonkeyPatch, state: State, stage: str, lost: bool
) -> None:
    def work(job: Job, lease: Lease) -> None:
        Job.objects.filter(pk=job.pk).update(state=state, stage=stage)
        job.refresh_from_db()
        assert request_cancel(job)
        if lost:
            raise leases.LeaseLost
        lease.extend()
        lease.report_stage(stage, 0.5)

    monkeypatch.setitem(runner.WORK, Job.Kind.POOL, work)
    job = claimed(kind=Job.Kind.POOL)
    run_job(job)
    if lost:
        Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        reap()
    job.refresh_from_db()
    assert (job.state, job.lease_expires_at) == (State.CANCELLED, None)
    assert job.state in TERMINAL
