"""Claims, leases and retries: what happens to a job when workers come, go silent, or come back too late."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.utils import timezone

from leaderboard.core import wakeup
from leaderboard.core.work_requests import request_work
from leaderboard.models import WorkRequest
from leaderboard.settings import cache_location
from submissions import tasks
from submissions.accounts import outbox
from submissions.models import Job, State, Worker
from submissions.notifications import sending
from submissions.queue import queue
from submissions.queue.queue import (
    ATTEMPTS,
    advance,
    claim,
    create_requested_jobs,
    extend_lease,
    queue_position,
    reap,
    request_cancel,
    requeue,
)
from submissions.queue.workers import workers_alive
from tests.factories import make_dataset, make_job

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def silence(job: Job) -> None:
    """Let the job's lease run out."""
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def claimed() -> Job:
    job = claim(["score"], "worker")
    assert job is not None
    return job


def test_jobs_are_claimed_oldest_first_and_once() -> None:
    dataset = make_dataset()
    first, second = make_job(dataset), make_job(dataset)
    assert claimed().pk == first.pk
    assert claimed().pk == second.pk
    assert claim(["score"], "worker") is None


def test_baselines_go_before_what_waits_already() -> None:
    dataset = make_dataset()
    model, baseline = make_job(dataset, queue=Job.Queue.CPU), make_job(make_dataset(), queue=Job.Queue.CPU)
    Job.objects.filter(pk=model.pk).update(kind=Job.Kind.RETRIEVE, state=State.QUEUED)
    Job.objects.filter(pk=baseline.pk).update(kind=Job.Kind.BASELINE, state=State.QUEUED)
    for job in (model, baseline):
        job.refresh_from_db()
    assert [queue_position(baseline), queue_position(model)] == [0, 1]
    first = claim(["cpu"], "worker")
    assert first is not None
    assert first.pk == baseline.pk


def test_a_queue_is_served_by_its_own_workers_only() -> None:
    make_job(make_dataset(), queue=Job.Queue.CPU)
    assert claim(["score"], "worker") is None
    assert claim(["cpu"], "worker") is not None


def test_a_silent_worker_loses_its_job_and_can_no_longer_write() -> None:
    make_job(make_dataset())
    zombie = claimed()
    advance(zombie.pk, State.SCORING, fence=zombie.fence)
    silence(zombie)
    assert reap() == 1
    heir = claimed()
    assert heir.pk == zombie.pk
    assert not extend_lease(zombie, 0.5, "")
    assert not advance(zombie.pk, State.DONE, fence=zombie.fence)
    advance(heir.pk, State.SCORING, fence=heir.fence)
    assert advance(heir.pk, State.DONE, fence=heir.fence)


@pytest.mark.parametrize("state", [State.VALIDATING, State.RETRIEVING, State.SCORING])
def test_a_lost_job_is_put_back_from_every_state_under_way(state: State) -> None:
    job = make_job(make_dataset(), state=state, validated=state != State.VALIDATING)
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1), attempts=1)
    assert reap() == 1
    job.refresh_from_db()
    assert job.state == (State.VALIDATING if state == State.VALIDATING else State.QUEUED)
    assert job.lease_expires_at is None


def test_the_third_loss_is_a_clear_failure_and_the_queue_flows_on() -> None:
    dataset = make_dataset()
    poison, other = make_job(dataset), make_job(dataset)
    for _ in range(ATTEMPTS):
        Job.objects.update(not_before=None)
        job = claimed()
        assert job.pk == poison.pk
        silence(job)
        reap()
    poison.refresh_from_db()
    assert poison.state == State.FAILED
    assert poison.error_code == "worker_lost"
    assert "three times" in poison.log
    assert claimed().pk == other.pk


def test_an_attempt_that_was_asked_to_stop_is_not_counted() -> None:
    make_job(make_dataset())
    job = claimed()
    assert requeue(job, counts_attempt=False)
    again = claimed()
    assert again.attempts == 1


def test_the_second_attempt_comes_at_once_the_third_waits() -> None:
    make_job(make_dataset())
    requeue(claimed(), counts_attempt=True)
    second = claimed()
    requeue(second, counts_attempt=True)
    assert claim(["score"], "worker") is None
    second.refresh_from_db()
    assert second.not_before is not None
    assert timedelta(seconds=50) < second.not_before - timezone.now() <= timedelta(minutes=1)


def test_a_waiting_job_is_cancelled_at_once_a_running_one_through_its_worker() -> None:
    dataset = make_dataset()
    waiting = make_job(dataset)
    assert request_cancel(waiting)
    waiting.refresh_from_db()
    assert waiting.state == State.CANCELLED
    make_job(dataset)
    running = claimed()
    assert request_cancel(running)
    running.refresh_from_db()
    assert running.cancel_requested
    assert not request_cancel(waiting)


def test_queue_position_counts_those_before() -> None:
    dataset = make_dataset()
    jobs = [make_job(dataset) for _ in range(3)]
    assert [queue_position(job) for job in jobs] == [0, 1, 2]
    claimed()
    assert queue_position(jobs[2]) == 1


def test_runs_for_a_collection_without_judgements_wait() -> None:
    dataset = make_dataset(state="collecting")
    make_job(dataset)
    assert claim(["score"], "worker") is None
    type(dataset).objects.update(state="published")
    assert claim(["score"], "worker") is not None


def test_each_request_becomes_one_job() -> None:
    dataset = make_dataset()
    request_work(WorkRequest.Kind.BASELINE, dataset, {"configuration": "bm25"})
    assert create_requested_jobs() == 1
    assert create_requested_jobs() == 0
    assert Job.objects.get().payload == {"configuration": "bm25"}


def test_only_workers_heard_of_lately_count_as_alive() -> None:
    now = timezone.now()
    Worker.objects.create(name="fresh", queues=["score"], started_at=now, seen_at=now)
    Worker.objects.create(name="gone", queues=["score"], started_at=now, seen_at=now - timedelta(minutes=2))
    assert workers_alive("score") == 1
    assert workers_alive("gpu") == 0


def test_a_cancel_that_meets_a_claim_is_not_lost() -> None:
    make_job(make_dataset())
    seen_waiting = Job.objects.get()
    claimed()
    assert request_cancel(seen_waiting)
    seen_waiting.refresh_from_db()
    assert seen_waiting.cancel_requested


def test_a_cancel_that_meets_a_job_being_put_back_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    make_job(make_dataset())
    job = claimed()
    seen_running = Job.objects.get()
    moving = queue.advance

    def wish_first(*arguments: Any, **changes: Any) -> bool:
        monkeypatch.setattr(queue, "advance", moving)
        assert request_cancel(seen_running)
        return moving(*arguments, **changes)

    monkeypatch.setattr(queue, "advance", wish_first)
    assert requeue(job, counts_attempt=False)
    job.refresh_from_db()
    assert job.state == State.CANCELLED


def test_a_cancel_of_what_was_put_back_meanwhile_needs_no_worker() -> None:
    make_job(make_dataset())
    job = claimed()
    seen_running = Job.objects.get()
    requeue(job, counts_attempt=False)
    assert request_cancel(seen_running)
    job.refresh_from_db()
    assert job.state == State.CANCELLED


def test_a_wish_to_stop_outlives_the_third_lost_worker() -> None:
    make_job(make_dataset())
    job = claimed()
    Job.objects.update(attempts=ATTEMPTS)
    request_cancel(job)
    silence(job)
    assert reap() == 1
    job.refresh_from_db()
    assert (job.state, job.error_code) == (State.CANCELLED, "")
    assert "fault on our side" not in job.log


def test_what_was_asked_to_stop_is_not_finished() -> None:
    make_job(make_dataset())
    job = claimed()
    advance(job.pk, State.SCORING, fence=job.fence)
    request_cancel(job)
    assert not advance(job.pk, State.DONE, fence=job.fence, unless_cancelled=True)
    assert advance(job.pk, State.CANCELLED, fence=job.fence)


def test_a_fault_in_one_step_of_the_dispatcher_keeps_no_other_from_being_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lift_due(now: object) -> int:
        raise RuntimeError("one bad system")

    monkeypatch.setattr(tasks, "end_due_anonymity", lift_due)
    dataset = make_dataset()
    lost = make_job(dataset)
    claimed()
    silence(lost)
    request_work(WorkRequest.Kind.SCORE, dataset)
    tasks.dispatch()
    lost.refresh_from_db()
    assert (lost.state, lost.worker, lost.lease_expires_at) == (State.QUEUED, "worker", None)
    assert Job.objects.count() == 2
    assert re.search(r"Fault [0-9a-f]{8} in step lift_due", caplog.text)
    assert "one bad system" in caplog.text


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """The broker, without wakeups for GPUs and notifiers."""
    monkeypatch.setattr(wakeup, "_silent_until", 0.0)
    with redis.Redis.from_url(cache_location(settings.REDIS_URL)) as client:
        client.delete("gpu", "notices")
        yield client
        client.delete("gpu", "notices")


def test_wakeups_that_nobody_receives_do_not_pile_up(broker: redis.Redis) -> None:
    job = make_job(make_dataset(), queue=Job.Queue.GPU)
    for _ in range(3):
        tasks.dispatch()
        assert broker.llen("gpu") == 1
    [message] = broker.lrange("gpu", 0, -1)
    assert json.loads(message)["headers"]["expires"] is not None
    broker.delete("gpu")  # a worker took it, and left a job: it is rung for again
    tasks.dispatch()
    assert broker.llen("gpu") == 1
    broker.delete("gpu")
    Job.objects.filter(pk=job.pk).update(state=State.CANCELLED)
    tasks.dispatch()
    assert broker.llen("gpu") == 0


def test_every_bell_expires_and_outlives_a_clock_that_is_minutes_ahead(
    broker: redis.Redis, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    rung: dict[str, float] = {}
    monkeypatch.setattr(wakeup.app, "send_task", lambda task, **told: rung.update({task: told["expires"] or 0}))
    monkeypatch.setattr(sending, "has_notifications", lambda: True)
    with django_capture_on_commit_callbacks(execute=True):
        wakeup.wake_dispatcher()
        queue.wake_worker(Job.Queue.GPU)
        sending.wake_notifier()
    assert set(rung) == {wakeup.DISPATCH, queue.WORK, outbox.NOTIFY}
    assert [task for task, seconds in rung.items() if not 1800 <= seconds <= 7200] == []


def test_bells_do_not_pile_up_without_a_notifier(broker: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "has_notifications", lambda: True)
    for _ in range(3):
        tasks.dispatch()
        assert broker.llen("notices") == 1


def test_a_broker_that_cannot_be_asked_is_rung_at_all_the_same(
    broker: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung = []
    broker.set("gpu", "no list")
    monkeypatch.setattr(wakeup, "send_wakeup", lambda task, to, **_: rung.append(to))
    make_job(make_dataset(), queue=Job.Queue.GPU)
    tasks.dispatch()
    assert wakeup.count_pending("gpu") == 0
    assert "gpu" in rung
