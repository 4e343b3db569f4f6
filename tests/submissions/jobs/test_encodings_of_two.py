"""Two who store or withdraw the same shard at a time: one of them wins, and none waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from django.db import connection, connections
from django.utils import timezone

from leaderboard.core.storage.store import sync
from leaderboard.models import Dataset
from submissions.jobs import changes
from submissions.jobs.checkpoints import embeddings, encodings
from submissions.jobs.checkpoints.embeddings import embeddings_folder, embeddings_root, moved_folder
from submissions.jobs.checkpoints.encodings import EncodingSetting, wait_for_shards
from submissions.models import Encoding, Job, Shard, State
from submissions.queue.lease import LeaseLost
from submissions.queue.queue import reap
from tests.factories import make_model_submission, make_user, team_of
from tests.submissions.encodings import SHARDS, model_job, next_shard, state_of
from tests.submissions.encodings import dataset as dataset
from tests.submissions.encodings import encode as encode
from tests.submissions.encodings import setting as setting

pytestmark = [pytest.mark.django_db, pytest.mark.database]


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
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have their bytes where they stay; the later one has lost its claim, and takes its bytes away again."""
    wait_for_shards(model_job(dataset), setting)
    zombie = next_shard("zombie")
    orphan = embeddings_folder(setting.key) / "00000"
    orphan.mkdir(parents=True)
    (orphan / "embeddings.npy").write_bytes(b"of a commit that was lost")

    @contextmanager
    def overtaken(source: Path, root: Path) -> Iterator[Path]:
        with moved_folder(source, root) as folder:
            if source.name == f"out-{zombie.pk}-{zombie.fence}":
                Job.objects.filter(pk=zombie.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
                reap()
                encode(next_shard("heir"))
                assert len(list(embeddings_root().glob(".arriving-*"))) == 1
            yield folder

    monkeypatch.setattr(embeddings, "moved_folder", overtaken)
    with pytest.raises(LeaseLost):
        encode(zombie)
    assert [path.name for path in embeddings_root().iterdir()] == [setting.key]
    assert (orphan / "embeddings.npy").read_bytes() == b"x" * 100
    assert Shard.objects.exclude(done_at=None).get().size == 100


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_the_row_of_an_encoding_while_bytes_are_synced(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, bool] = {}

    def note(path: Path) -> None:
        synced[path.name] = connection.in_atomic_block
        sync(path)

    monkeypatch.setattr(embeddings, "sync", note)
    monkeypatch.setattr(encodings, "sync", note)
    wait_for_shards(model_job(dataset), setting)
    encode(next_shard())
    assert synced == {"embeddings.npy": False, "folder": False, setting.key: False}


@pytest.mark.django_db(transaction=True)
def test_withdrawing_while_the_last_shard_is_stored_makes_no_circle(
    dataset: Dataset, setting: EncodingSetting, encode: Callable[..., None], monkeypatch: pytest.MonkeyPatch
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
    real_requeue, real_cancel = encodings.requeue_waiting, changes.cancel_unneeded_shards

    def put_back(encoding: Encoding, line: str) -> None:
        stored.set()
        withdrawn.wait(10)
        time.sleep(0.3)  # the other one waits for our row by now
        real_requeue(encoding, line)

    def cancel() -> None:
        withdrawn.set()
        real_cancel()

    monkeypatch.setattr(encodings, "requeue_waiting", put_back)
    monkeypatch.setattr(changes, "cancel_unneeded_shards", cancel)

    def beside(verb: Callable[[], object]) -> None:
        try:
            verb()
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [
        Thread(target=beside, args=[lambda: encode(last)]),
        Thread(target=beside, args=[lambda: stored.wait(10) and changes.withdraw(submission, "x", user)]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (state_of(parent), state_of(last)) == (State.WITHDRAWN, State.DONE)
