"""What happens to those who wait when a shard fails, is rejected, or is cancelled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from evaluation.engines.corpus_encoding import SHARD_FORMAT
from leaderboard.models import Dataset
from submissions.jobs import runner
from submissions.jobs.checkpoints import encodings
from submissions.jobs.checkpoints.encodings import (
    EncodingSetting,
    cancel_unneeded_shards,
    settle_shard_waiters,
    settle_waiting_jobs,
    use_encoding,
    wait_for_shards,
)
from submissions.jobs.checkpoints.running import shard_job
from submissions.models import Encoding, Job, Shard, State
from submissions.queue import workers as capability
from submissions.queue.lease import Cancelled, Lease
from submissions.queue.queue import advance, claim, reap, request_cancel
from submissions.sandbox import SandboxUnavailable
from tests.submissions.encodings import SHARDS, ignore_progress, model_job, next_shard, state_of
from tests.submissions.encodings import dataset as dataset
from tests.submissions.encodings import encode as encode
from tests.submissions.encodings import setting as setting
from tests.submissions.workers import announce

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def test_a_shard_that_fails_three_times_fails_those_who_wait(dataset: Dataset, setting: EncodingSetting) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    for _ in range(3):
        Job.objects.filter(kind=Job.Kind.SHARD).update(not_before=None)
        lost = next_shard()
        Job.objects.filter(pk=lost.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        reap()
        settle_waiting_jobs()
    parent.refresh_from_db()
    assert (parent.state, parent.error_code) == (State.FAILED, "worker_lost")
    assert "Shard 1 of the corpus could not be encoded." in parent.log
    settle_waiting_jobs()
    others = Job.objects.filter(kind=Job.Kind.SHARD).exclude(pk=lost.pk)
    assert set(others.values_list("state", flat=True)) == {State.CANCELLED}


def test_the_reason_of_a_rejected_shard_is_the_jobs(dataset: Dataset, setting: EncodingSetting) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    shard = next_shard()
    report = {"problems": [{"code": "not_finite_output"}]}
    advance(shard.pk, State.REJECTED, fence=shard.fence, error_code="not_finite_output", report=report)
    settle_shard_waiters(shard)
    parent.refresh_from_db()
    assert (parent.state, parent.error_code, parent.report) == (State.REJECTED, "not_finite_output", report)


def test_a_job_that_comes_after_a_failure_has_its_shards_tried_anew(dataset: Dataset, setting: EncodingSetting) -> None:
    wait_for_shards(model_job(dataset), setting)
    shard = next_shard()
    advance(shard.pk, State.FAILED, fence=shard.fence)
    settle_waiting_jobs()
    later = model_job(dataset)
    wait_for_shards(later, setting)
    settle_waiting_jobs()
    assert state_of(later) == State.RETRIEVING
    under_way = Job.objects.filter(kind=Job.Kind.SHARD, state=State.QUEUED, shard__isnull=False)
    assert under_way.count() == SHARDS


def test_a_shard_that_failed_before_ends_no_later_job_untried(
    dataset: Dataset, setting: EncodingSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where it is so far behind that it gets no job of its own yet."""
    wait_for_shards(model_job(dataset), setting)
    Job.objects.filter(shard__number=SHARDS - 1).update(state=State.FAILED, error_code="worker_lost")
    settle_waiting_jobs()
    monkeypatch.setattr(encodings, "_MAX_WAITING", SHARDS - 1)
    later = model_job(dataset)
    wait_for_shards(later, setting)
    settle_waiting_jobs()
    assert state_of(later) == State.RETRIEVING
    assert not Shard.objects.filter(number=SHARDS - 1, job__isnull=False).exists()


@pytest.mark.parametrize(
    ("fault", "attempts"), [(SandboxUnavailable("The disk is nearly full."), 0), (OSError("no device"), 1)]
)
def test_one_bad_worker_does_not_fail_a_corpus(
    dataset: Dataset,
    setting: EncodingSetting,
    encode: Callable[[Job], None],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    attempts: int,
) -> None:
    """It fails at once, and would take the attempts of all shards before others have encoded one."""
    monkeypatch.setattr(capability, "_probe", lambda *, gpu: capability.Capability(True, True))
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    announce("good")
    announce("bad")

    def fail(job: Job, lease: Lease) -> None:
        raise fault

    monkeypatch.setitem(runner.WORK, Job.Kind.SHARD, fail)
    assert [runner.drain_queue("cpu", "bad") for _ in range(3)] == [1, 0, 0]
    shards = Job.objects.filter(kind=Job.Kind.SHARD)
    assert list(shards.filter(fence__gt=0).values_list("attempts", flat=True)) == [attempts]
    for taken in (
        [1, 0],
        [1, 0],
        [1, 0],
    ):  # the pause is over, while the good one is still at its first shard
        shards.update(not_before=None)
        monkeypatch.setattr(runner._Failures, "paused_until", -math.inf)
        assert [runner.drain_queue("cpu", "bad") for _ in range(2)] == taken
    assert runner._Failures.paused_until > time.monotonic() + 4 * 60
    assert list(shards.filter(fence__gt=0).values_list("attempts", flat=True)) == [attempts]
    assert state_of(parent) == State.RETRIEVING
    shards.update(not_before=None)
    for _ in range(SHARDS):
        encode(next_shard("good"))
    assert state_of(parent) == State.QUEUED


def test_a_lone_worker_does_not_wait_for_others_to_do_better(
    dataset: Dataset, setting: EncodingSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability, "_probe", lambda *, gpu: capability.Capability(True, True))
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    announce("bad")

    def fail(job: Job, lease: Lease) -> None:
        raise OSError("no device")

    monkeypatch.setitem(runner.WORK, Job.Kind.SHARD, fail)
    for _ in range(3):
        Job.objects.update(not_before=None)
        monkeypatch.setattr(runner._Failures, "paused_until", -math.inf)
        assert runner.drain_queue("cpu", "bad") == 1
    assert state_of(parent) == State.FAILED


def test_whoever_waits_during_an_upgrade_searches_no_shards_of_another_format(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[[Job], None]
) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    encode(next_shard())
    under_way = next_shard()
    Encoding.objects.update(format=SHARD_FORMAT - 1, key="0" * 64)
    with pytest.raises(Cancelled):
        shard_job(under_way, Lease(under_way))
    settle_waiting_jobs()
    assert state_of(parent) == State.QUEUED
    assert "another format" in parent.log
    left = Job.objects.filter(kind=Job.Kind.SHARD, state=State.QUEUED)
    left.update(not_before=timezone.now() + timedelta(days=1))
    again = claim(["cpu"], "parent")
    assert again == parent
    assert again is not None
    assert use_encoding(again, setting, ignore_progress) is None
    wait_for_shards(again, setting)
    cancel_unneeded_shards()
    for _ in range(SHARDS):
        encode(next_shard())
    encoded = use_encoding(again, setting, ignore_progress)
    assert encoded is not None
    assert encoded.key == setting.key


def test_shards_of_another_format_are_not_searched_though_all_are_there(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[[Job], None]
) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    for _ in range(SHARDS):
        encode(next_shard())
    parent.refresh_from_db()
    assert use_encoding(parent, setting, ignore_progress) is not None
    Encoding.objects.update(format=SHARD_FORMAT - 1)
    assert use_encoding(parent, setting, ignore_progress) is None


def test_cancelling_the_only_job_cancels_its_shards(dataset: Dataset, setting: EncodingSetting) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    running = next_shard()
    parent.refresh_from_db()
    assert request_cancel(parent)
    cancel_unneeded_shards()
    assert state_of(parent) == State.CANCELLED
    running.refresh_from_db()
    assert running.cancel_requested
    waiting = Job.objects.filter(kind=Job.Kind.SHARD).exclude(pk=running.pk)
    assert set(waiting.values_list("state", flat=True)) == {State.CANCELLED}


def test_shards_that_somebody_else_waits_for_go_on(dataset: Dataset, setting: EncodingSetting) -> None:
    first = model_job(dataset)
    wait_for_shards(first, setting)
    Job.objects.filter(kind=Job.Kind.SHARD).update(queue="gpu")
    second = model_job(dataset)
    wait_for_shards(second, setting)
    first.refresh_from_db()
    request_cancel(first)
    cancel_unneeded_shards()
    assert set(Job.objects.filter(kind=Job.Kind.SHARD).values_list("state", flat=True)) == {State.QUEUED}


def test_a_shard_cancelled_while_somebody_came_is_made_again(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    shard = next_shard()
    request_cancel(shard)
    with pytest.raises(Cancelled):
        encode(shard)
    advance(shard.pk, State.CANCELLED, fence=shard.fence)
    settle_waiting_jobs()
    assert Shard.objects.filter(job__state=State.QUEUED).count() == SHARDS
    assert state_of(parent) == State.RETRIEVING


def test_a_wish_to_cancel_that_came_while_claimed_is_heard(dataset: Dataset, setting: EncodingSetting) -> None:
    parent = model_job(dataset)
    request_cancel(parent)
    wait_for_shards(parent, setting)
    assert state_of(parent) == State.CANCELLED
