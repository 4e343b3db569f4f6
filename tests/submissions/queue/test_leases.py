"""Who holds a job says so, and hears when to stop: one thread for all jobs of a worker's process, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from submissions.models import Job, State
from submissions.queue import lease as leases
from submissions.queue.lease import Cancelled, LeaseLost, hold_lease, keep_leases
from submissions.queue.queue import advance, claim, request_cancel, requeue
from tests.factories import make_dataset, make_job

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def claimed(kind: str = Job.Kind.POOL) -> Job:
    """A job that has just been claimed."""
    make_job(make_dataset(), kind=kind)
    job = claim(["score"], "host:1:2")
    assert job is not None
    return job


def threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name == "lease"}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_thread_keeps_one_lease_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 0.02)
    seen = set()
    with keep_leases():
        for _ in range(3):
            job = claimed()
            with hold_lease(job) as lease:
                assert advance(job.pk, State.SCORING, fence=job.fence)
                lease.report_stage("scoring", 0.5)
                wait_for(lambda job=job: Job.objects.get(pk=job.pk).stage == "scoring")
                seen |= threads()
            advance(job.pk, State.DONE, fence=job.fence)
    assert len(seen) == 1
    assert not threads()


def test_a_shard_is_told_of_several_times_in_a_lease_and_not_at_each_look(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Its row is written then, or with a new stage, and what was asked of it is heard."""
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 0.02)
    told, real = [], leases.extend_lease

    def extend(*what: Any, **more: Any) -> bool:
        told.append(time.monotonic())
        return real(*what, **more)

    monkeypatch.setattr(leases, "extend_lease", extend)
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, lease=3.0)
    job = claimed(kind=Job.Kind.SHARD)
    with hold_lease(job) as lease:
        wait_for(lambda: len(told) == 3)
        assert told[2] - told[0] > 0.9
        lease.report_stage("encoding", 0.1)
        wait_for(lambda: Job.objects.get(pk=job.pk).stage == "encoding")
        request_cancel(job)
        wait_for(lambda: lease.cancelled)
        assert not lease.lost
        with pytest.raises(Cancelled):
            lease.report(0.5)


@pytest.mark.parametrize("kind", [Job.Kind.POOL, Job.Kind.SHARD])
def test_a_claim_that_is_over_is_heard_of(kind: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 0.02)
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, lease=3.0)
    job = claimed(kind)
    with hold_lease(job) as lease:
        requeue(job, counts_attempt=True)
        wait_for(lambda: lease.lost)
        with pytest.raises(LeaseLost):
            lease.report(0.5)


def test_a_lease_is_extended_in_time(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 0.02)
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, lease=0.6)
    job = claimed()
    with hold_lease(job) as lease:
        time.sleep(1.5)
        assert not lease.lost
        row = Job.objects.expired().filter(pk=job.pk)
        assert not row.exists()
