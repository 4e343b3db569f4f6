"""Embeddings in a bucket: machines that share a database and a bucket, and what comes back from there damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured

from leaderboard.core.storage.bundles import InvalidManifest, Manifest
from leaderboard.core.storage.runs import open_run
from leaderboard.models import Dataset
from leaderboard.settings.environment import bucket
from submissions.jobs.checkpoints import embeddings
from submissions.jobs.checkpoints.embeddings import (
    DiskTooSmall,
    UnusableOutput,
    embeddings_folder,
    fetch_shards,
    mark_used,
    move_into_place,
    send_shard,
    stored_keys,
    sweep_embeddings,
    trim_cache,
)
from submissions.jobs.checkpoints.encodings import (
    EncodedShard,
    EncodingSetting,
    require_disk_space,
    store_single_shard,
    use_encoding,
)
from submissions.jobs.checkpoints.running import WARM_ENCODER
from submissions.jobs.runner import run_job
from submissions.models import Checkpoint, Encoding, Job, Shard, State
from submissions.queue.lease import LeaseLost
from submissions.queue.queue import claim
from tests.factories import make_dataset, make_job, make_model_submission, make_user, make_version, team_of
from tests.servers import s3
from tests.submissions.encodings import ignore_progress
from tests.submissions.model_jobs import (
    by_one_process,
    make_published,
    make_submission,
    queue_model,
    use_toy_engine,
)

SHARD_SIZE = 10
BUCKET = "embeddings"
SECRET = "a-secret-that-nobody-may-read"
KEY = "e" * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of an S3 server with one bucket, which the environment names."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with s3.running(log) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "an-id")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client


class Storage:
    """Objects under a prefix of the bucket, and the folder of the current machine."""

    def __init__(self, client: Any, prefix: str, settings: Any, folder: Path) -> None:
        self._client, self.prefix, self._settings, self._folder = client, prefix, settings, folder

    def be(self, machine: str) -> None:
        """Be another machine: one with a folder of its own."""
        self._settings.EMBEDDINGS_FOLDER = str(self._folder / machine)

    def names(self) -> list[str]:
        """The objects, without the prefix."""
        found = self._client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Contents", [])
        return [entry["Key"].removeprefix(f"{self.prefix}/") for entry in found]

    def read(self, name: str) -> bytes:
        body: bytes = self._client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}")["Body"].read()
        return body

    def write(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}", Body=content)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}")


@pytest.fixture
def storage(server: Any, settings: Any, tmp_path: Path) -> Storage:
    """A prefix of the test's own, seen from machine a."""
    entry = bucket(f"s3://{BUCKET}/{tmp_path.name}", "EMBEDDINGS_STORAGE")
    settings.STORAGES = {**settings.STORAGES, "embeddings": entry}
    settings.VAR = tmp_path / "var"
    found = Storage(server, tmp_path.name, settings, tmp_path / "machines")
    found.be("a")
    return found


def silent(stage: str, share: float, note: str) -> None:
    """Report to nobody."""


def send(tmp_path: Path, files: dict[str, bytes], report: Callable[[str, float, str], None] = silent) -> str:
    """Send shard 0 of KEY; returns the checksum of its manifest."""
    folder = tmp_path / "encoded"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest = send_shard(folder, KEY, 0, report)
    assert manifest is not None
    return manifest.sha256


# --- whole jobs


@pytest.fixture
def small(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, storage: Storage) -> Dataset:
    """A published collection of three shards, and the toy engine."""
    use_toy_engine(monkeypatch, settings)
    settings.SHARD_SIZE = SHARD_SIZE
    # BM25's times beside the model's are nothing to these tests, and take seconds.
    monkeypatch.setattr("submissions.jobs.checkpoints.run_model.measure_configuration", lambda *_: {})
    return make_published(tmp_path / "collection")


def work(storage: Storage, machine: str, kind: Job.Kind) -> Job:
    """Have a machine do the oldest waiting job."""
    storage.be(machine)
    job = claim(["cpu"], machine)
    assert job is not None
    assert job.kind == kind
    run_job(job)
    if kind != Job.Kind.SHARD:
        WARM_ENCODER.close()
    job.refresh_from_db()
    return job


def run_of(job: Job) -> str:
    """The text of the run that a finished job published."""
    assert (job.state, job.error_code) == (State.DONE, ""), job.log
    entry = job.entry or job.further_entries.first()
    assert entry is not None
    assert entry.evaluation is not None
    with open_run(entry.evaluation.run.sha256) as text:
        return text.read().decode()


@pytest.mark.long
@pytest.mark.long_on_postgresql
@pytest.mark.django_db
@pytest.mark.database
def test_two_machines_with_a_bucket_between_them_write_the_run_of_one_process(
    small: Dataset, storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    submission = make_submission()
    queue_model(small, submission)
    assert work(storage, "a", Job.Kind.MODEL).state == State.RETRIEVING
    for machine in ("a", "b", "a"):
        assert work(storage, machine, Job.Kind.SHARD).state == State.DONE
    key = Encoding.objects.get().key
    first, _, third = Shard.objects.order_by("number")
    storage.be("b")
    assert not embeddings_folder(key).exists()  # whoever encodes keeps nothing on its own disk
    single = by_one_process(small, submission, tmp_path / "single.txt", SHARD_SIZE)
    assert run_of(work(storage, "b", Job.Kind.MODEL)) == single
    assert sorted(folder.name for folder in embeddings_folder(key).iterdir()) == ["00000", "00001", "00002"]

    # A third machine, where another shard is damaged in the bucket, and one was never sent whole.
    shard = json.loads(storage.read(f"{key}/00000/{first.manifest}"))
    vectors = next(file for file in shard["files"] if file["name"] == "vectors.npy")
    storage.write(f"{key}/00000/{vectors['sha256']}", b"x" * vectors["size"])
    storage.delete(f"{key}/00002/{third.manifest}")
    queue_model(small, submission)
    waiting = work(storage, "c", Job.Kind.MODEL)
    assert waiting.state == State.RETRIEVING
    assert "Shard 1 of the corpus is missing or damaged" in waiting.log
    assert "Shard 3 of the corpus is missing or damaged" in waiting.log
    assert [folder.name for folder in embeddings_folder(key).iterdir()] == ["00001"]
    assert list(Shard.objects.exclude(done_at=None).values_list("number", flat=True)) == [1]
    for machine in ("b", "c"):
        assert work(storage, machine, Job.Kind.SHARD).state == State.DONE
    assert run_of(work(storage, "c", Job.Kind.MODEL)) == single
    assert claim(["cpu"], "d") is None
    assert SECRET not in caplog.text + waiting.log


@pytest.mark.long
@pytest.mark.django_db
def test_a_job_waits_for_a_bucket_that_is_away(
    small: Dataset, storage: Storage, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_model(small, make_submission())
    assert work(storage, "a", Job.Kind.MODEL).state == State.RETRIEVING
    there = settings.STORAGES
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        settings.STORAGES = {**there}  # Django makes its storages anew
        waiting = work(storage, "a", Job.Kind.SHARD)
    assert (waiting.state, waiting.attempts) == (State.QUEUED, 0)
    assert "storage cannot be reached" in waiting.log
    settings.STORAGES = {**there}
    Job.objects.update(not_before=None)
    for _ in range(3):
        assert work(storage, "b", Job.Kind.SHARD).state == State.DONE
    assert run_of(work(storage, "b", Job.Kind.MODEL))


# --- encodings


@pytest.fixture
def setting(db: None, storage: Storage) -> EncodingSetting:
    """A model over a corpus of one shard."""
    dataset = make_dataset()
    version = make_version(dataset, corpus_sha256="c" * 64, statistics={"documents": 25})
    checkpoint = Checkpoint.objects.create(
        sha256="a" * 64, model_sha256="b" * 64, kind="static-embeddings", description={}, size=1
    )
    return EncodingSetting(checkpoint, version, "dense", {}, "a-machine", "cpu", 2)


def keep_encoded(setting: EncodingSetting, folder: Path) -> None:
    """Keep the one shard as the job that needs it does."""
    folder.mkdir()
    (folder / "embeddings.npy").write_bytes(folder.name.encode())
    store_single_shard(setting, EncodedShard(folder, 25, 1.0, "a-machine"), ignore_progress)


@pytest.mark.django_db
@pytest.mark.database
def test_a_small_corpus_is_encoded_once_for_all_machines(
    setting: EncodingSetting, storage: Storage, tmp_path: Path
) -> None:
    keep_encoded(setting, tmp_path / "first")
    storage.be("b")
    job = make_job(setting.version.dataset, kind=Job.Kind.MODEL)
    encoded = use_encoding(job, setting, ignore_progress)
    assert encoded is not None
    assert (encoded.folder / "00000" / "embeddings.npy").read_bytes() == b"first"
    storage.delete(f"{setting.key}/00000/{Shard.objects.get().manifest}")
    storage.be("c")
    assert use_encoding(job, setting, ignore_progress) is None
    keep_encoded(setting, tmp_path / "second")
    storage.be("d")
    again = use_encoding(job, setting, ignore_progress)
    assert again is not None
    assert (again.folder / "00000" / "embeddings.npy").read_bytes() == b"second"
    # The first machine goes by what the rows mean now, not by what it has.
    storage.be("a")
    assert use_encoding(job, setting, ignore_progress) is not None
    assert (again.folder / "00000" / "embeddings.npy").read_bytes() == b"second"


@pytest.mark.django_db
@pytest.mark.database
def test_the_sweep_is_for_workers_and_empties_the_bucket_too(
    setting: EncodingSetting, storage: Storage, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_encoded(setting, tmp_path / "first")
    key = setting.key
    mark_used(KEY)  # of a row that is gone
    job = make_job(setting.version.dataset)
    assert use_encoding(job, setting, ignore_progress) is not None
    settings.EMBEDDINGS_CACHE_BYTES = 0
    monkeypatch.setattr(embeddings, "_swept_at", -embeddings._SWEEP_PAUSE)

    assert sweep_embeddings() == 0  # what the scorer does, which has no client of S3
    trim_cache()
    assert sorted(stored_keys()) == sorted([key, KEY])  # in use, and not there for long
    assert embeddings_folder(key).exists()

    Job.objects.filter(pk=job.pk).update(waits_for=None)
    settings.EMBEDDINGS_STORAGE_BYTES = 1
    left_behind = embeddings_folder(".arriving-x")  # by a process that was killed
    left_behind.mkdir()
    os.utime(left_behind, (0, 0))
    trim_cache()
    assert not embeddings_folder(key).exists()
    assert not left_behind.exists()
    assert Encoding.objects.exists()  # the bucket's turn is once an hour
    monkeypatch.setattr(embeddings, "_swept_at", -embeddings._SWEEP_PAUSE)
    monkeypatch.setattr(embeddings, "GRACE", -60)
    trim_cache()
    assert Encoding.objects.exists()  # whichever worker comes by

    def sweep() -> bool:
        """An hour later; whether the embeddings are still there."""
        monkeypatch.setattr(embeddings, "_swept_at", -embeddings._SWEEP_PAUSE)
        cache.clear()
        trim_cache()
        assert Encoding.objects.exists() == any(name.startswith(f"{key}/0") for name in storage.names())
        return Encoding.objects.exists()

    Dataset.objects.update(current_version=setting.version)
    submission = make_model_submission(team_of(make_user("ada")), checkpoint=setting.checkpoint)
    Job.objects.filter(pk=job.pk).update(submission=submission, state=State.QUEUED)
    assert sweep()  # a job over the same model has yet to begin
    Job.objects.filter(pk=job.pk).update(state=State.DONE)
    settings.EMBEDDINGS_STORAGE_BYTES = 0
    assert sweep()  # that this machine has no room says nothing of the bucket
    settings.EMBEDDINGS_STORAGE_BYTES = 1
    assert not sweep()
    assert storage.names() == []


# --- single shards


def test_progress_is_told_both_ways(storage: Storage, tmp_path: Path) -> None:
    told: list[tuple[str, float, str]] = []
    sha256 = send(tmp_path, {"a.npy": b"a" * 300, "texts/b.npy": b"b" * 700}, lambda *what: told.append(what))
    assert [(stage, share) for stage, share, _ in told] == [("storing", 0.3), ("storing", 1.0)]
    told.clear()
    assert fetch_shards(KEY, {0: sha256}, lambda *what: told.append(what)) == frozenset()
    assert [(stage, share) for stage, share, _ in told] == [("bringing", share) for share in (0.0, 0.3, 1.0)]
    assert (embeddings_folder(KEY) / "00000" / "texts" / "b.npy").read_bytes() == b"b" * 700
    told.clear()
    assert fetch_shards(KEY, {0: sha256}, lambda *what: told.append(what)) == frozenset()
    assert told == []  # it is here
    storage.delete(f"{KEY}/00000/{sha256}")
    assert fetch_shards(KEY, {0: sha256}, silent) == frozenset()  # nothing is asked of the bucket
    assert [path.name for path in (tmp_path / "machines" / "a").iterdir()] == [KEY]


def test_a_manifest_that_no_row_names_is_not_taken(storage: Storage, tmp_path: Path) -> None:
    sha256 = send(tmp_path, {"a.npy": b"good"})
    storage.write(f"{KEY}/00000/manifest.json", storage.read(f"{KEY}/00000/{sha256}"))
    assert fetch_shards(KEY, {0: ""}, silent) == {0}


def test_shards_that_do_not_fit_on_the_disk_are_not_begun_with(
    storage: Storage, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = send(tmp_path, {"a.npy": b"a" * 300})
    free = {"bytes": 299}
    monkeypatch.setattr(embeddings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + free["bytes"])
    with pytest.raises(DiskTooSmall):
        fetch_shards(KEY, {0: sha256}, silent)
    assert not embeddings_folder(KEY).exists()
    free["bytes"] = 300
    assert fetch_shards(KEY, {0: sha256}, silent) == frozenset()


@pytest.mark.django_db
def test_room_is_asked_for_what_lies_in_the_bucket_too(
    setting: EncodingSetting, storage: Storage, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_encoded(setting, tmp_path / "first")
    taken = Shard.objects.get().size
    settings.VAR.mkdir(exist_ok=True)
    monkeypatch.setattr(embeddings, "free_bytes", lambda folder: settings.DISK_RESERVE_BYTES + taken - 1)
    with pytest.raises(DiskTooSmall):
        require_disk_space(setting, {})


def test_a_shard_that_was_sent_by_half_is_not_taken(storage: Storage, tmp_path: Path) -> None:
    def report(stage: str, share: float, note: str) -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        send(tmp_path, {"a.npy": b"a" * 300, "b.npy": b"b" * 700}, report)
    assert len(storage.names()) == 2  # one file of two, and the note of use
    assert fetch_shards(KEY, {0: Manifest.from_path(tmp_path / "encoded").sha256}, silent) == {0}
    assert not embeddings_folder(KEY).exists()


def manifest_of(*files: tuple[str, int, str]) -> bytes:
    """A manifest with these names, sizes and checksums."""
    names = ("name", "size", "sha256")
    return json.dumps({"files": [dict(zip(names, file, strict=True)) for file in files]}).encode()


@pytest.mark.parametrize(
    "text",
    [
        manifest_of(("../../outside.npy", 4, "a" * 64)),
        manifest_of(("/outside.npy", 4, "a" * 64)),
        manifest_of((".hidden", 4, "a" * 64)),
        manifest_of(("manifest.json", 4, "a" * 64)),
        manifest_of(("a.npy", 4, "../../../other/key")),
        manifest_of(("a", 2, "a" * 64), ("a/b", 2, "b" * 64)),
        manifest_of(("a.npy", 2, "a" * 64), ("a.npy", 2, "a" * 64)),
        manifest_of(("a.npy", -1, "a" * 64)),
        manifest_of(),
        b"[]",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_manifest_names_plain_files_in_its_folder(text: bytes) -> None:
    with pytest.raises(InvalidManifest):
        Manifest.from_json(text)


def test_a_manifest_that_is_none_of_ours_brings_nothing(storage: Storage, tmp_path: Path) -> None:
    sha256 = send(tmp_path, {"a.npy": b"good"})
    wrong = [
        manifest_of(("../../a.npy", 4, "a" * 64)),
        manifest_of(("a.npy", 2**50, "a" * 64)),
        manifest_of(("b.npy", 4, hashlib.sha256(b"good").hexdigest())),
        b" " * (1 << 20),
    ]
    for manifest in wrong:
        storage.write(f"{KEY}/00000/{sha256}", manifest)
        assert fetch_shards(KEY, {0: sha256}, silent) == {0}
    assert [path.name for path in (tmp_path / "machines").rglob("*")] == ["a"]


def test_an_object_that_is_not_what_was_written_is_not_taken(storage: Storage, tmp_path: Path) -> None:
    sha256 = send(tmp_path, {"a.npy": b"good"})
    name = f"{KEY}/00000/{hashlib.sha256(b'good').hexdigest()}"
    for damage in (b"", b"goo", b"goof", b"good and more"):
        storage.write(name, damage)
        assert fetch_shards(KEY, {0: sha256}, silent) == {0}
    storage.delete(name)
    assert fetch_shards(KEY, {0: sha256}, silent) == {0}
    assert [path.name for path in (tmp_path / "machines").rglob("*")] == ["a"]
    send(tmp_path, {"a.npy": b"good"})
    assert fetch_shards(KEY, {0: sha256}, silent) == frozenset()
    assert (embeddings_folder(KEY) / "00000" / "a.npy").read_bytes() == b"good"


def test_files_that_no_engine_of_ours_writes_are_not_sent(storage: Storage, tmp_path: Path) -> None:
    for number, name in enumerate(["manifest.json", ".hidden", "a b.npy", "1/2/3/4/deep.npy"]):
        with pytest.raises(UnusableOutput):
            send(tmp_path / str(number), {"a.npy": b"good", name: b"bad"})
    assert storage.names() == []


def test_a_folder_on_another_disk_is_moved_whole(tmp_path: Path, settings: Any) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has one disk only")
    source = other / f"runboard-{os.getpid()}-{time.monotonic_ns()}"
    try:
        (source / "texts").mkdir(parents=True)
        (source / "texts" / "a.npy").write_bytes(b"good")
        settings.EMBEDDINGS_FOLDER = str(tmp_path / "here")
        move_into_place(source, embeddings_folder(KEY) / "00000")
    finally:
        for path in sorted(source.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        source.rmdir()
    assert (embeddings_folder(KEY) / "00000" / "texts" / "a.npy").read_bytes() == b"good"
    assert [path.name for path in (tmp_path / "here").iterdir()] == [KEY]


@pytest.mark.parametrize(
    "url",
    [f"s3://id:{SECRET}@bucket/prefix", f"https://bucket/?key={SECRET}", "s3://", "bucket", "s3://b?x=1"],
)
def test_an_address_that_is_no_bucket_says_what_would_be_right(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="STORE_STORAGE must be s3://BUCKET or") as refusal:
        bucket(url, "STORE_STORAGE")
    assert SECRET not in str(refusal.value)
