"""Who holds a job says so, and hears when to stop: one thread for all jobs of a worker's process, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from submissions.models import Job, State
from submissions.queue import lease as leases
from submissions.queue.lease import Cancelled, hold_lease, keep_leases
from submissions.queue.lifecycle import advance
from submissions.queue.queue import claim, request_cancel
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
    monkeypatch.setattr(leases, "LOOK", 0.02)
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


def test_a_look_hears_a_wish_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only now and then, and with a new stage, is the row of a shard written, which costs the database most."""
    monkeypatch.setattr(leases, "LOOK", 0.02)
    job = claimed(kind=Job.Kind.SHARD)
    with hold_lease(job) as lease:
        until = Job.objects.get(pk=job.pk).lease_expires_at
        request_cancel(job)
        wait_for(lambda: lease.cancelled)
        assert Job.objects.get(pk=job.pk).lease_expires_at == until
        with pytest.raises(Cancelled):
            lease.report(0.5)


def test_a_lease_is_extended_in_time(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(leases, "LOOK", 0.02)
    settings.LEASE_SECONDS = 0.6
    job = claimed()
    with hold_lease(job) as lease:
        time.sleep(1.5)
        assert not lease.lost
        row = Job.objects.expired().filter(pk=job.pk)
        assert not row.exists()
