"""A bucket that loses, delays and corrupts what it is given: the embeddings are whole all the same, each shard once."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage
from django.db import connection, connections

from submissions.jobs.checkpoints.embeddings import embeddings_folder, fetch_shards
from submissions.jobs.checkpoints.encodings import (
    EncodedShard,
    EncodingSetting,
    finish_shard,
    use_encoding,
    wait_for_shards,
)
from submissions.jobs.kinds.score import begin
from submissions.models import Checkpoint, Job, Shard, State
from submissions.queue import lease as leases
from submissions.queue.lease import LeaseLost, hold_lease
from submissions.queue.queue import claim, reap
from tests.factories import make_dataset, make_job, make_version
from tests.submissions.encodings import ignore_progress

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

SHARDS = 3


class FaultyBucket(FileSystemStorage):
    """A folder that overwrites as a bucket does, and errs in as many of a hundred writes as `odds` says."""

    odds = 0
    delay = 0.0
    answers = threading.Event()
    asked = threading.Event()
    dice = random.Random()
    done: list[str] = []  # of all its instances: Django makes them
    #: Objects that were asked for or written while whoever did so held rows of the database.
    in_transactions: list[str] = []

    def __init__(self, location: str) -> None:
        super().__init__(location, allow_overwrite=True)

    def _open(self, name: str, mode: str = "rb") -> File[bytes]:
        self.asked.set()
        self.answers.wait()
        return super()._open(name, mode)

    def exists(self, name: str) -> bool:
        self._travel(name)
        return super().exists(name)

    def _save(self, name: str, content: File[bytes]) -> str:
        self._travel(name)
        data = content.read()
        fault = self.dice.choice(["lost", "damaged", "cut"]) if self.dice.randrange(100) < self.odds else ""
        if fault:
            self.done.append(fault)
        if fault == "lost" or not data:
            return name
        if fault == "damaged":
            data = bytes([data[0] ^ 1]) + data[1:]
        return str(super()._save(name, ContentFile(data[:-1] if fault == "cut" else data)))

    def _travel(self, name: str) -> None:
        if connection.in_atomic_block:
            self.in_transactions.append(name)
        time.sleep(self.delay)


@pytest.fixture
def bucket(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FaultyBucket]:
    """The embeddings' storage."""
    entry = {"BACKEND": f"{__name__}.FaultyBucket", "OPTIONS": {"location": str(tmp_path / "bucket")}}
    settings.STORAGES = {**settings.STORAGES, "embeddings": entry}
    settings.VAR = tmp_path / "var"
    FaultyBucket.answers.set()
    FaultyBucket.asked.clear()
    monkeypatch.setattr(FaultyBucket, "odds", 0)
    monkeypatch.setattr(FaultyBucket, "done", [])
    monkeypatch.setattr(FaultyBucket, "in_transactions", [])
    return FaultyBucket


@pytest.fixture
def setting() -> EncodingSetting:
    version = make_version(make_dataset(), corpus_sha256="c" * 64, statistics={"documents": 10 * SHARDS})
    checkpoint = Checkpoint.objects.create(
        sha256="a" * 64, model_sha256="b" * 64, kind="static-embeddings", description={}, size=1
    )
    return EncodingSetting(checkpoint, version, "dense", {}, "a-machine", "cpu", 2, shard_size=10)


def encode(job: Job, folder: Path) -> None:
    """Keep what stands for the job's shard; its bytes follow from its number."""
    begin(job, State.RETRIEVING)
    shard = Shard.objects.select_related("encoding").get(job=job.pk)
    out = folder / f"out-{job.pk}-{job.fence}"
    out.mkdir()
    (out / "vectors.npy").write_bytes(vectors(shard.number))
    (out / "ids.json").write_bytes(f"ids of {shard.number}".encode())
    with hold_lease(job):
        finish_shard(job, shard, EncodedShard(out, 10, 1.0, "a-machine"), ignore_progress)


def vectors(number: int) -> bytes:
    return bytes([number]) * 1_000


@pytest.mark.long
def test_what_a_bucket_loses_cuts_or_damages_is_made_again(
    bucket: type[FaultyBucket],
    setting: EncodingSetting,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty embeddings by two machines, a third of whose writes go wrong, read by a third machine."""
    seen = 0
    for round_ in range(20):
        monkeypatch.setattr(bucket, "dice", random.Random(round_))
        again = EncodingSetting(
            setting.checkpoint,
            setting.version,
            "dense",
            {"round": round_},
            "a-machine",
            "cpu",
            2,
            shard_size=10,
        )
        parent = make_job(setting.version.dataset, kind=Job.Kind.MODEL, queue="cpu")
        attempts = 0
        while True:
            settings.EMBEDDINGS_FOLDER = str(tmp_path / "reader")
            job = claim(["cpu"], "reader")
            assert job is not None
            assert job.pk == parent.pk
            if (encoded := use_encoding(job, again, ignore_progress)) is not None:
                break
            bucket.odds = max(33 - attempts, 0)  # it gets better, or this would never end
            assert wait_for_shards(job, again)
            while (shard := claim(["cpu"], "host:1:2")) is not None and shard.kind == Job.Kind.SHARD:
                settings.EMBEDDINGS_FOLDER = str(tmp_path / random.Random(attempts).choice("ab"))
                encode(shard, tmp_path)
                attempts += 1
            assert shard is not None  # the one that waited: put back by its last shard
            Job.objects.filter(pk=shard.pk).update(state=State.QUEUED, lease_expires_at=None)
        Job.objects.filter(pk=parent.pk).update(state=State.DONE, lease_expires_at=None, waits_for=None)
        for number in range(SHARDS):
            assert (embeddings_folder(again.key) / f"{number:05d}" / "vectors.npy").read_bytes() == vectors(number)
        assert encoded.documents == 10 * SHARDS
        assert Shard.objects.filter(encoding__key=again.key).exclude(done_at=None).count() == SHARDS
        ended = Job.objects.filter(shard__encoding__key=again.key)
        assert set(ended.values_list("state", "attempts")) == {(State.DONE, 1)}
        seen += attempts - SHARDS
    assert seen > 20, "the bucket's faults cost nothing"
    assert set(bucket.done) == {"lost", "cut", "damaged"}


def test_nobody_waits_for_the_bucket_while_holding_rows(
    bucket: type[FaultyBucket], setting: EncodingSetting, tmp_path: Path
) -> None:
    """One that takes 30 s for an answer would hold up every worker, and the database ends a transaction that stands."""
    parent = make_job(setting.version.dataset, kind=Job.Kind.MODEL, queue="cpu")
    job = claim(["cpu"], "reader")
    assert job is not None
    assert wait_for_shards(job, setting)
    for _ in range(SHARDS):
        shard = claim(["cpu"], "host:1:2")
        assert shard is not None
        encode(shard, tmp_path)
    again = claim(["cpu"], "reader")
    assert again is not None
    assert again.pk == parent.pk
    assert use_encoding(again, setting, ignore_progress) is not None
    assert bucket.in_transactions == []


def test_nobody_waits_unheard_for_whoever_brings_embeddings(
    bucket: type[FaultyBucket], setting: EncodingSetting, tmp_path: Path
) -> None:
    """That may take an hour: others of the machine go on encoding, and hear when to stop."""
    make_job(setting.version.dataset, kind=Job.Kind.MODEL, queue="cpu")
    job = claim(["cpu"], "reader")
    assert job is not None
    assert wait_for_shards(job, setting)
    first, second = claim(["cpu"], "host:1:2"), claim(["cpu"], "host:1:3")
    assert first is not None
    assert second is not None
    encode(first, tmp_path)
    shard = Shard.objects.get(job=first.pk)
    wanted = (setting.key, {shard.number: shard.manifest})
    bucket.answers.clear()
    bucket.asked.clear()
    brings = threading.Thread(target=fetch_shards, args=(*wanted, lambda *_: None))
    too_late = threading.Timer(60.0, bucket.answers.set)
    try:
        brings.start()
        too_late.start()
        assert bucket.asked.wait(30.0)
        encode(second, tmp_path)
        told: list[str] = []

        def stop(stage: str, share: float, note: str) -> None:
            told.append(note)
            raise LeaseLost

        with pytest.raises(LeaseLost):
            fetch_shards(*wanted, stop)
        assert told == ["while another job on this machine downloads the embeddings"]
        assert not bucket.answers.is_set(), "somebody waited for the embeddings"
    finally:
        too_late.cancel()
        bucket.answers.set()
        brings.join()


@pytest.mark.long
def test_a_bucket_that_takes_longer_than_a_lease_costs_no_claim(
    bucket: type[FaultyBucket],
    setting: EncodingSetting,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one of 30 s does a lease of 60: here each object takes twice a lease."""
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, lease=1.5, claim_interval=0.05)
    monkeypatch.setattr(leases, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(bucket, "delay", 3.0)
    parent = make_job(setting.version.dataset, kind=Job.Kind.MODEL, queue="cpu")
    job = claim(["cpu"], "reader")
    assert job is not None
    assert wait_for_shards(job, setting)
    first = claim(["cpu"], "host:1:2")
    assert first is not None

    def keep() -> None:
        try:
            encode(first, tmp_path)
        finally:
            connections.close_all()

    thread = threading.Thread(target=keep)
    thread.start()
    reaped = 0
    while thread.is_alive():
        reaped += reap()
        time.sleep(0.1)
    first.refresh_from_db()
    assert (first.state, first.attempts, reaped) == (State.DONE, 1, 0)
    parent.refresh_from_db()
    assert parent.state == State.RETRIEVING
