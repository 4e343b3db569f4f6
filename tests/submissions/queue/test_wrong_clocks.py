"""A machine whose clock is wrong: who is present goes by the database's clock, as claims do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import inf

import pytest
from django.utils import timezone
from prometheus_client import generate_latest

from leaderboard import VERSION
from submissions import tasks
from submissions.jobs.worker import dispatcher_is_late
from submissions.models import Job, State, Worker
from submissions.queue import queue
from submissions.queue import workers as process
from submissions.queue.workers import Heartbeat, delete_silent_workers, reported_capabilities, workers_alive
from submissions.status.overview import overview
from submissions.views.status import SiteCollector
from tests.factories import make_dataset, make_job
from tests.submissions.workers import announce

pytestmark = [pytest.mark.django_db, pytest.mark.database]

HOUR = timedelta(hours=1)


@pytest.fixture(params=[-HOUR, HOUR, -25 * HOUR, 25 * HOUR], ids=str)
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process's clock errs; workers told the truth before: one is here, one died half an hour ago."""
    announce("here", "score")
    announce("dead", "score", ago=timedelta(minutes=30))
    real, error = timezone.now, request.param
    monkeypatch.setattr(timezone, "now", lambda: real() + error)
    process._identity.asked_at = -inf
    yield
    process._identity.asked_at = -inf


def test_it_sees_who_is_here_and_who_is_not(wrong_clock: None) -> None:
    assert workers_alive("score") == 1
    assert len(reported_capabilities(queues=["score"])) == 1
    rows = {row.worker.name: row for row in overview().workers}
    assert (rows["here"].alive, rows["dead"].alive) == (True, False)
    assert timedelta(minutes=29) < rows["dead"].silent < timedelta(minutes=31)
    metrics = generate_latest(SiteCollector()).decode()
    age = next(line for line in metrics.splitlines() if 'worker="here"' in line)
    assert 0 <= float(age.split()[-1]) < 60
    delete_silent_workers()
    assert Worker.objects.count() == 2


def test_its_worker_is_seen_by_everybody_until_it_ends(wrong_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Worker.objects.get(name="here").seen_at
    heartbeat = Heartbeat("wrong", ["score"], VERSION)
    heartbeat._write_row()
    monkeypatch.setattr(tasks, "worker_name", lambda: "wrong")
    tasks.dispatch()
    row = Worker.objects.get(name="wrong")
    assert row.dispatched_at is not None
    for told in (row.seen_at, row.started_at, row.dispatched_at):
        # SQLite's own clock gives whole milliseconds.
        assert timedelta(milliseconds=-1) < told - before < timedelta(minutes=1)
    assert workers_alive("score") == 2
    assert not dispatcher_is_late()


@pytest.mark.parametrize(("up", "reaped"), [(-365 * 24 * 3600.0, 1), (-0.5, 1), (0.5, 0), (24 * 3600.0, 1)], ids=str)
def test_a_clock_set_back_past_the_databases_start_keeps_no_job(
    monkeypatch: pytest.MonkeyPatch, up: float, reaped: int
) -> None:
    make_job(make_dataset(), state=State.QUEUED, queue="score")
    job = queue.claim(["score"], "somebody:1")
    assert job is not None
    Job.objects.update(lease_expires_at=timezone.now() - HOUR)
    monkeypatch.setattr(queue, "_database_uptime", lambda: up)
    assert queue.reap() == reaped
