"""Shards are rows: who waits for them, who makes them, and what happens when one of them ends badly."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection, connections
from django.utils import timezone

from leaderboard.core.storage.store import sync
from leaderboard.models import Dataset
from submissions.jobs import withdrawal
from submissions.jobs.models import embedding_files, encoding_settings, encodings, shard_jobs
from submissions.jobs.models.embedding_cache import sweep_embeddings
from submissions.jobs.models.embedding_files import (
    UnusableOutput,
    arriving,
    embeddings_folder,
    embeddings_root,
)
from submissions.jobs.models.encoding_settings import DiskTooSmall, EncodingSetting, require_room
from submissions.jobs.models.encodings import (
    finish_shard,
    store_single_shard,
    use_encoding,
    wait_for_shards,
)
from submissions.jobs.models.shard_jobs import (
    cancel_unneeded_shards,
    settle_shard_waiters,
    settle_waiting_jobs,
)
from submissions.models import Checkpoint, Encoding, Job, Shard, State
from submissions.queue.lease import Cancelled, LeaseLost
from submissions.queue.lifecycle import advance
from submissions.queue.queue import claim, reap, request_cancel
from tests.factories import make_dataset, make_job, make_model_submission, make_user, make_version, team_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]

SHARDS = 3


@pytest.fixture
def dataset(db: None) -> Dataset:
    """A dataset whose corpus has 25 documents."""
    found = make_dataset()
    version = make_version(found, corpus_sha256="c" * 64, statistics={"documents": 25})
    Dataset.objects.update(current_version=version)
    found.refresh_from_db()
    return found


@pytest.fixture
def setting(dataset: Dataset, settings: LazySettings, tmp_path: Path) -> EncodingSetting:
    """A model over that corpus, in three shards, and a store of the test's own: keys repeat as row ids do."""
    settings.VAR = tmp_path / "var"
    settings.SHARD_SIZE = 10
    checkpoint = Checkpoint.objects.create(
        sha256="a" * 64, model_sha256="b" * 64, kind="static-embeddings", description={}, size=1
    )
    version = dataset.current_version
    assert version is not None
    return EncodingSetting(checkpoint, version, "dense", {"maximum_length": 512}, "a-machine", "cpu", 2)


def model_job(dataset: Dataset) -> Job:
    """A job that has just been claimed and found that its corpus has several shards."""
    made = make_job(dataset, kind=Job.Kind.MODEL, queue=Job.Queue.CPU)
    job = claim(["cpu"], "parent")
    assert job is not None
    assert job.pk == made.pk
    assert advance(job.pk, State.RETRIEVING, fence=job.fence)
    return job


def next_shard(worker: str = "worker") -> Job:
    """The next shard's job, claimed."""
    job = claim(["cpu"], worker)
    assert job is not None
    assert job.kind == Job.Kind.SHARD
    assert advance(job.pk, State.RETRIEVING, fence=job.fence)
    return job


@pytest.fixture
def encode(tmp_path: Path) -> Callable[..., None]:
    """Finish a claimed shard with a file of its own."""

    def finish(job: Job, hardware: str = "a-machine") -> None:
        folder = tmp_path / f"out-{job.pk}-{job.fence}"
        folder.mkdir()
        (folder / "embeddings.npy").write_bytes(b"x" * 100)
        finish_shard(job, job.shard, folder, documents=10, seconds=1.5, hardware=hardware)

    return finish


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return str(job.state)


def test_the_last_shard_puts_the_waiting_job_back_into_the_queue(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    parent = model_job(dataset)
    assert wait_for_shards(parent, setting)
    for number in range(SHARDS):
        parent.refresh_from_db()
        assert (parent.state, parent.lease_expires_at) == (State.RETRIEVING, None)
        assert parent.progress == pytest.approx(number / SHARDS)
        encode(next_shard())
    again = claim(["cpu"], "merger")
    assert again is not None
    assert again.pk == parent.pk
    assert again.attempts == 1  # to wait is no failed attempt
    encoded = use_encoding(again, setting)
    assert encoded is not None
    assert sorted(path.name for path in encoded.folder.iterdir()) == ["00000", "00001", "00002"]
    assert (encoded.documents, encoded.seconds, encoded.hardware) == (30, 4.5, {"a-machine"})
    assert claim(["cpu"], "worker") is None


def test_of_a_large_corpus_a_part_waits_and_the_dispatcher_brings_the_rest(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_jobs, "_MOST_WAITING", 2)
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
    assert use_encoding(late, setting) is not None
    late.refresh_from_db()
    assert late.waits_for is not None  # so that nothing removes them meanwhile


@pytest.mark.parametrize("change", ["hardware", "parameters", "threads", "shard_size", "owner"])
def test_another_setting_shares_nothing(setting: EncodingSetting, change: str) -> None:
    values: dict[str, Any] = {name: getattr(setting, name) for name in EncodingSetting.__dataclass_fields__}
    if change == "owner":
        values["checkpoint"] = Checkpoint(team_id=7, model_sha256=setting.checkpoint.model_sha256)
    else:
        values[change] = {"hardware": "other", "parameters": {}, "threads": 1, "shard_size": 11}[change]
    assert EncodingSetting(**values).key != setting.key


def test_a_worker_that_lost_its_shard_writes_nothing(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None]
) -> None:
    wait_for_shards(model_job(dataset), setting)
    zombie = next_shard("zombie")
    Job.objects.filter(pk=zombie.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert reap() == 1
    heir = next_shard("heir")
    assert heir.pk == zombie.pk
    with pytest.raises(LeaseLost):
        encode(zombie)
    assert not embeddings_folder(setting.key).exists()
    encode(heir)
    assert Shard.objects.exclude(done_at=None).count() == 1


def test_of_two_that_store_the_same_shard_one_wins(
    dataset: Dataset,
    setting: EncodingSetting,
    encode: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have their bytes where they stay; the later one has lost its claim, and takes its bytes away again."""
    wait_for_shards(model_job(dataset), setting)
    zombie = next_shard("zombie")
    orphan = embeddings_folder(setting.key) / "00000"
    orphan.mkdir(parents=True)
    (orphan / "embeddings.npy").write_bytes(b"of a commit that was lost")

    @contextmanager
    def overtaken(source: Path, root: Path) -> Iterator[Path]:
        with arriving(source, root) as folder:
            if source.name == f"out-{zombie.pk}-{zombie.fence}":
                Job.objects.filter(pk=zombie.pk).update(
                    lease_expires_at=timezone.now() - timedelta(seconds=1)
                )
                reap()
                encode(next_shard("heir"))
                assert len(list(embeddings_root().glob(".arriving-*"))) == 1
            yield folder

    monkeypatch.setattr(encodings, "arriving", overtaken)
    with pytest.raises(LeaseLost):
        encode(zombie)
    assert [path.name for path in embeddings_root().iterdir()] == [setting.key]
    assert (orphan / "embeddings.npy").read_bytes() == b"x" * 100
    assert Shard.objects.exclude(done_at=None).get().size == 100


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_the_row_of_an_encoding_while_bytes_are_synced(
    dataset: Dataset,
    setting: EncodingSetting,
    encode: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced: dict[str, bool] = {}

    def note(path: Path) -> None:
        synced[path.name] = connection.in_atomic_block
        sync(path)

    monkeypatch.setattr(embedding_files, "sync", note)
    monkeypatch.setattr(encodings, "sync", note)
    wait_for_shards(model_job(dataset), setting)
    encode(next_shard())
    assert synced == {"embeddings.npy": False, "folder": False, setting.key: False}


@pytest.mark.django_db(transaction=True)
def test_withdrawing_while_the_last_shard_is_stored_makes_no_circle(
    dataset: Dataset,
    setting: EncodingSetting,
    encode: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stores has the shard's job and wants the one that waits; whoever withdraws, the other way round."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one transaction write at a time: nobody waits for a row")
    submission = make_model_submission(team_of(user := make_user()), checkpoint=setting.checkpoint)
    parent = model_job(dataset)
    Job.objects.filter(pk=parent.pk).update(submission=submission)
    wait_for_shards(parent, setting)
    for _ in range(SHARDS - 1):
        encode(next_shard())
    last = next_shard()
    stored, withdrawn, errors = Event(), Event(), []
    real_progress, real_cancel = encodings.report_progress, withdrawal.cancel_unneeded_shards

    def progress(encoding: Encoding) -> None:
        stored.set()
        withdrawn.wait(10)
        time.sleep(0.3)  # the other one waits for our row by now
        real_progress(encoding)

    def cancel() -> None:
        withdrawn.set()
        real_cancel()

    monkeypatch.setattr(encodings, "report_progress", progress)
    monkeypatch.setattr(withdrawal, "cancel_unneeded_shards", cancel)

    def beside(verb: Callable[[], object]) -> None:
        try:
            verb()
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [
        Thread(target=beside, args=[lambda: encode(last)]),
        Thread(target=beside, args=[lambda: stored.wait(10) and withdrawal.withdraw(submission, "x", user)]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (state_of(parent), state_of(last)) == (State.WITHDRAWN, State.DONE)


def test_a_shard_that_fails_three_times_fails_those_who_wait(
    dataset: Dataset, setting: EncodingSetting
) -> None:
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


def test_a_job_that_comes_after_a_failure_has_its_shards_tried_anew(
    dataset: Dataset, setting: EncodingSetting
) -> None:
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


def test_a_wish_to_cancel_that_came_while_claimed_is_heard(
    dataset: Dataset, setting: EncodingSetting
) -> None:
    parent = model_job(dataset)
    request_cancel(parent)
    wait_for_shards(parent, setting)
    assert state_of(parent) == State.CANCELLED


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


def lose(shard: Path) -> None:
    shard.rename(shard.with_name("gone"))


def cut(shard: Path) -> None:
    os.truncate(shard / "embeddings.npy", 50)


@pytest.mark.parametrize("damage", [lose, cut])
def test_shards_whose_files_are_gone_are_made_again(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], damage: Callable[[Path], None]
) -> None:
    wait_for_shards(model_job(dataset), setting)
    for _ in range(SHARDS):
        encode(next_shard())
    damage(embeddings_folder(setting.key) / "00001")
    again = claim(["cpu"], "merger")
    assert again is not None
    assert use_encoding(again, setting) is None
    advance(again.pk, State.RETRIEVING, fence=again.fence)
    wait_for_shards(again, setting)
    assert next_shard().shard.number == 1
    assert claim(["cpu"], "worker") is None


def test_the_one_shard_of_a_small_corpus_is_kept_once(
    dataset: Dataset, setting: EncodingSetting, settings: LazySettings, tmp_path: Path
) -> None:
    settings.SHARD_SIZE = 50
    single = EncodingSetting(setting.checkpoint, setting.version, "dense", {}, "a-machine", "cpu", 2)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "embeddings.npy").write_bytes(name.encode())
        store_single_shard(single, tmp_path / name, documents=25, seconds=1.0, hardware="a-machine")
    encoded = use_encoding(model_job(dataset), single)
    assert encoded is not None
    assert (encoded.folder / "00000" / "embeddings.npy").read_bytes() == b"first"


def test_a_link_is_not_kept(dataset: Dataset, setting: EncodingSetting, tmp_path: Path) -> None:
    wait_for_shards(model_job(dataset), setting)
    job = next_shard()
    (tmp_path / "out" / "texts").mkdir(parents=True)
    (tmp_path / "out" / "texts" / "embeddings.npy").symlink_to("/etc/passwd")
    with pytest.raises(UnusableOutput):
        finish_shard(job, job.shard, tmp_path / "out", documents=1, seconds=1, hardware="")
    assert state_of(job) == State.RETRIEVING


def test_what_was_used_longest_ago_goes_first_and_what_is_in_use_stays(
    dataset: Dataset, setting: EncodingSetting, settings: LazySettings, tmp_path: Path
) -> None:
    settings.SHARD_SIZE = 50
    keys = []
    for age, hardware in enumerate(["new", "old", "oldest"]):
        each = EncodingSetting(setting.checkpoint, setting.version, "dense", {}, hardware, "cpu", 2)
        folder = tmp_path / hardware
        folder.mkdir()
        (folder / "embeddings.npy").write_bytes(b"x" * 100)
        store_single_shard(each, folder, documents=25, seconds=1.0, hardware=hardware)
        keys.append(each.key)
        stamp = time.time() - 1000 * age
        os.utime(embeddings_folder(each.key), (stamp, stamp))
    user = make_job(dataset, waits_for=Encoding.objects.get(key=keys[2]))
    settings.EMBEDDINGS_CACHE_BYTES = 200
    assert sweep_embeddings() == 1
    assert [embeddings_folder(key).exists() for key in keys] == [True, False, True]
    advance(user.pk, State.CANCELLED)
    settings.EMBEDDINGS_CACHE_BYTES = 0
    sweep_embeddings()
    assert not Encoding.objects.exists()


def test_room_is_asked_for_what_is_not_there_yet(
    dataset: Dataset,
    setting: EncodingSetting,
    encode: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    settings: LazySettings,
) -> None:
    """A job that comes back for one lost shard does not wait for the room of all."""
    setting.checkpoint.description = {"dimension": 8}  # 25 documents take 800 bytes, and each shard here 100
    free = {"bytes": 700}
    monkeypatch.setattr(
        encoding_settings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + free["bytes"]
    )
    with pytest.raises(DiskTooSmall):
        require_room(setting)
    wait_for_shards(model_job(dataset), setting)
    encode(next_shard())
    require_room(setting)
    free["bytes"] = 699
    with pytest.raises(DiskTooSmall):
        require_room(setting)
