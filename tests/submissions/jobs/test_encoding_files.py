"""Where the files of encodings are kept: once, no links, as long as somebody uses them and there is room."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import LazySettings

from evaluation.core.problems import ModelFailure
from leaderboard.models import Dataset
from submissions.jobs.checkpoints import embeddings
from submissions.jobs.checkpoints.embeddings import (
    DiskTooSmall,
    UnusableOutput,
    embeddings_folder,
    sweep_embeddings,
)
from submissions.jobs.checkpoints.encodings import (
    EncodedShard,
    EncodingSetting,
    finish_shard,
    require_disk_space,
    store_single_shard,
    use_encoding,
    wait_for_shards,
)
from submissions.models import Encoding, State
from submissions.queue.queue import advance, claim
from tests.factories import make_job
from tests.submissions.encodings import SHARDS, ignore_progress, model_job, next_shard, state_of
from tests.submissions.encodings import dataset as dataset
from tests.submissions.encodings import encode as encode
from tests.submissions.encodings import setting as setting

pytestmark = [pytest.mark.django_db, pytest.mark.database]


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
    assert use_encoding(again, setting, ignore_progress) is None
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
        store_single_shard(single, EncodedShard(tmp_path / name, 25, 1.0, "a-machine"), ignore_progress)
    encoded = use_encoding(model_job(dataset), single, ignore_progress)
    assert encoded is not None
    assert (encoded.folder / "00000" / "embeddings.npy").read_bytes() == b"first"


def test_a_link_is_not_kept(dataset: Dataset, setting: EncodingSetting, tmp_path: Path) -> None:
    wait_for_shards(model_job(dataset), setting)
    job = next_shard()
    (tmp_path / "out" / "texts").mkdir(parents=True)
    (tmp_path / "out" / "texts" / "embeddings.npy").symlink_to("/etc/passwd")
    with pytest.raises(UnusableOutput):
        finish_shard(job, job.shard, EncodedShard(tmp_path / "out", 1, 1, ""), ignore_progress)
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
        store_single_shard(each, EncodedShard(folder, 25, 1.0, hardware), ignore_progress)
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
    monkeypatch.setattr(embeddings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + free["bytes"])
    with pytest.raises(DiskTooSmall):
        require_disk_space(setting, {})
    wait_for_shards(model_job(dataset), setting)
    encode(next_shard())
    require_disk_space(setting, {})
    free["bytes"] = 699
    with pytest.raises(DiskTooSmall):
        require_disk_space(setting, {})


def test_room_is_asked_for_the_index_too(
    setting: EncodingSetting, monkeypatch: pytest.MonkeyPatch, settings: LazySettings
) -> None:
    setting.checkpoint.description = {"dimension": 8}  # 25 documents: 800 bytes, and again as much in lists twice
    free = {"bytes": 1200}
    monkeypatch.setattr(embeddings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + free["bytes"])
    require_disk_space(setting, {"search": "exact", "stored_dtype": "float32"})
    require_disk_space(setting, {"search": "exact", "stored_dtype": "float16"})
    for search, stored, needed in (
        ("hnsw", "float32", 1600),
        ("ivf", "float32", 2400),
        ("ivf", "float16", 1600),
    ):
        with pytest.raises(DiskTooSmall) as refusal:
            require_disk_space(setting, {"search": search, "stored_dtype": stored})
        assert refusal.value.needed == needed
    settings.MODEL_OUTPUT_BYTES = 399
    with pytest.raises(ModelFailure) as failure:  # and not once all is encoded
        require_disk_space(setting, {"search": "exact", "stored_dtype": "float16"})
    assert failure.value.code == "too_much_output"
