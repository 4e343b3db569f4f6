"""Shards are rows: who waits for them, who shares them, and who wakes those who wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from leaderboard.models import Dataset
from submissions.jobs.checkpoints import encodings
from submissions.jobs.checkpoints.encodings import (
    EncodingSetting,
    settle_shard_waiters,
    settle_waiting_jobs,
    use_encoding,
    wait_for_shards,
)
from submissions.models import Checkpoint, Encoding, Job, State
from submissions.queue.queue import claim, reap
from tests.submissions.encodings import SHARDS, ignore_progress, model_job, next_shard, state_of
from tests.submissions.encodings import dataset as dataset
from tests.submissions.encodings import encode as encode
from tests.submissions.encodings import setting as setting

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def test_the_last_shard_puts_the_waiting_job_back_into_the_queue(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    parent = model_job(dataset)
    assert wait_for_shards(parent, setting)
    for number in range(SHARDS):
        parent.refresh_from_db()
        assert (parent.state, parent.lease_expires_at) == (State.RETRIEVING, None)
        settle_waiting_jobs()
        parent.refresh_from_db()
        assert parent.progress == pytest.approx(number / SHARDS)
        encode(next_shard())
    again = claim(["cpu"], "merger")
    assert again is not None
    assert again.pk == parent.pk
    assert again.attempts == 1  # to wait is no failed attempt
    encoded = use_encoding(again, setting, ignore_progress)
    assert encoded is not None
    assert sorted(path.name for path in encoded.folder.iterdir()) == ["00000", "00001", "00002"]
    assert (encoded.documents, encoded.seconds, encoded.hardware) == (30, 4.5, {"a-machine"})
    assert claim(["cpu"], "worker") is None


def test_of_a_large_corpus_a_part_waits_and_the_dispatcher_brings_the_rest(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encodings, "_MAX_WAITING", 2)
    parent = model_job(dataset)
    assert wait_for_shards(parent, setting)
    shards = Job.objects.filter(kind=Job.Kind.SHARD)
    assert list(shards.values_list("payload__shard", flat=True)) == [0, 1]
    for number in range(SHARDS):
        job = next_shard()
        assert job.payload["shard"] == number
        encode(job)
        settle_shard_waiters(job)
        settle_waiting_jobs()
    parent.refresh_from_db()
    assert (parent.state, shards.count()) == (State.QUEUED, SHARDS)


def test_a_waiting_job_is_neither_claimed_nor_reaped(dataset: Dataset, setting: EncodingSetting) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    Job.objects.filter(kind=Job.Kind.SHARD).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert claim(["cpu"], "worker") is None
    reap()
    assert state_of(parent) == State.RETRIEVING


def test_jobs_with_the_same_setting_share_the_shards(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    first = model_job(dataset)
    wait_for_shards(first, setting)
    encode(next_shard())
    Job.objects.filter(kind=Job.Kind.SHARD, state=State.QUEUED).update(not_before=None, queue="gpu")
    second = model_job(dataset)
    wait_for_shards(second, setting)
    Job.objects.filter(kind=Job.Kind.SHARD).update(queue="cpu")
    assert Encoding.objects.count() == 1
    assert Job.objects.filter(kind=Job.Kind.SHARD).count() == SHARDS
    encode(next_shard())
    encode(next_shard())
    assert {state_of(first), state_of(second)} == {State.QUEUED}


def test_a_third_job_finds_the_shards_there(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    wait_for_shards(model_job(dataset), setting)
    for _ in range(SHARDS):
        encode(next_shard())
    Job.objects.filter(kind=Job.Kind.MODEL).update(state=State.DONE, waits_for=None)
    late = model_job(dataset)
    assert use_encoding(late, setting, ignore_progress) is not None
    late.refresh_from_db()
    assert late.waits_for is not None  # so that nothing removes them meanwhile


@pytest.mark.parametrize("change", ["hardware", "parameters", "threads", "shard_size", "owner", "format"])
def test_another_setting_shares_nothing(setting: EncodingSetting, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = setting.key
    values: dict[str, Any] = {name: getattr(setting, name) for name in EncodingSetting.__dataclass_fields__}
    if change == "owner":
        values["checkpoint"] = Checkpoint(team_id=7, model_sha256=setting.checkpoint.model_sha256)
    elif change == "format":
        monkeypatch.setattr(encodings, "SHARD_FORMAT", 0)  # of another version of the code
    else:
        values[change] = {"hardware": "other", "parameters": {}, "threads": 1, "shard_size": 11}[change]
    assert EncodingSetting(**values).key != key


def test_the_dispatcher_wakes_a_job_whose_shards_are_all_there(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    parent = model_job(dataset)
    wait_for_shards(parent, setting)
    for _ in range(SHARDS):
        encode(next_shard())
    # As if its release had been lost.
    Job.objects.filter(pk=parent.pk).update(state=State.RETRIEVING)
    settle_waiting_jobs()
    assert state_of(parent) == State.QUEUED
