"""Embeddings of a dataset version: made in shards by any worker of a queue, kept, and shared by jobs.

A shard is a row that one job makes, under the lease and the fence of every job. The job that needs the whole corpus
gives its claim up and waits; the transaction that finishes the last shard puts it back into the queue. Whoever writes
here holds the encoding's row, so that of two last shards one sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from evaluation.engines.corpus_encoding import SHARD_FORMAT
from leaderboard.core.storage.store import sync
from submissions.jobs.checkpoints import embedding_storage
from submissions.jobs.checkpoints.embedding_files import (
    arriving,
    checked_size,
    embeddings_folder,
    embeddings_root,
    is_remote,
    mark_used,
    shard_folder,
    take_name,
)
from submissions.jobs.checkpoints.embedding_storage import (
    Report,
    fetch_shards,
    send_shard,
)
from submissions.jobs.checkpoints.encoding_settings import EncodingSetting
from submissions.jobs.checkpoints.shard_jobs import (
    count_shards,
    forget_failures,
    lock_encodings,
    make_shard_jobs,
    report_progress,
    requeue_waiting,
    settle_encoding,
)
from submissions.models import Encoding, Job, Shard, State
from submissions.queue.lease import WorkEnded, advance_claimed
from submissions.queue.lifecycle import advance, append_log_line, write_log
from submissions.queue.queue import end_cancelled, wake_worker

logger = logging.getLogger(__name__)

#: How many workers are woken at once for the shards of a corpus.
_MOST_WAKEUPS = 32


class WaitsForShards(WorkEnded):
    """The job can go on once all shards of its corpus are there; `setting` says which."""

    def __init__(self, setting: EncodingSetting) -> None:
        self.setting = setting
        super().__init__(f"{setting.shards} shards")

    def settle(self, job: Job) -> None:
        """Give the claim up until they are there."""
        wait_for_shards(job, self.setting)


@dataclass(frozen=True, slots=True)
class EncodedCorpus:
    """A whole encoded corpus: what it took, in seconds, and on which hardware classes it was made."""

    key: str
    shards: int
    shard_size: int
    documents: int
    seconds: float
    hardware: frozenset[str]

    @property
    def folder(self) -> Path:
        """Where the shards lie."""
        return embeddings_folder(self.key)


def _ignore_progress(stage: str, share: float, note: str) -> None:
    """Report nothing."""


def use_encoding(
    job: Job, setting: EncodingSetting, report: Report = _ignore_progress
) -> EncodedCorpus | None:
    """The embeddings, if all are there: those that the job waited for, or that another job left behind.

    They are kept for as long as the job is under way. Where they lie elsewhere, they are brought here first; what is
    damaged there is forgotten, and made again for whoever waits. Raises DiskTooSmall, and whatever `report` does.
    """
    with transaction.atomic():
        wanted = Q(waiting_jobs=job.pk) if job.waits_for_id else Q(key=setting.key)
        encoding = lock_encodings(Encoding.objects.filter(wanted, format=SHARD_FORMAT))
        if encoding is None:
            return None
        if not is_remote():
            _reset_lost_shards(encoding)
        shards = list(encoding.shards.exclude(done_at=None))
        if len(shards) < encoding.shards_expected:
            return None
        Job.objects.filter(pk=job.pk, fence=job.fence).update(waits_for=encoding)
    if is_remote() and not _fetch_all_shards(
        job, encoding, {shard.number: shard.manifest for shard in shards}, report
    ):
        return None
    mark_used(encoding.key)
    return EncodedCorpus(
        encoding.key,
        encoding.shards_expected,
        encoding.shard_size,
        sum(shard.documents for shard in shards),
        sum(shard.seconds for shard in shards),
        frozenset(shard.hardware for shard in shards),
    )


def wait_for_shards(job: Job, setting: EncodingSetting) -> bool:
    """Give the claim up until the shards are there: rows for all, and a job for each that nobody makes.

    To be called once nothing keeps the job's lease alive any more. False when the claim was lost.
    """
    with transaction.atomic():
        encoding = _get_or_create_encoding(setting)
        moved = advance(
            job.pk,
            State.RETRIEVING,
            fence=job.fence,
            unless_cancelled=True,
            waits_for=encoding,
            lease_expires_at=None,
            attempts=max(job.attempts - 1, 0),
            stage="encoding",
        )
        if not moved:
            return end_cancelled(job)
        forget_failures(encoding)
        counts = count_shards(encoding)
        wakeups = make_shard_jobs(encoding, job, counts["queued"])
        write_log(
            job.pk, f"The corpus is encoded in {encoding.shards_expected} shards, by any worker that is free."
        )
        report_progress(encoding, counts)
        for _ in range(min(wakeups, _MOST_WAKEUPS)):
            wake_worker(job.queue)
    if not wakeups:  # they may all be there; now that we hold no row of a job's, others' can be waited for
        settle_encoding(encoding.pk)
    return True


def finish_shard(
    job: Job,
    shard: Shard,
    folder: Path,
    *,
    documents: int,
    seconds: float,
    hardware: str,
    report: Report = _ignore_progress,
) -> None:
    """Keep the encoded shard, end its job, and wake whoever waited for it alone. Raises LeaseLost or Cancelled.

    Its bytes travel, and are synced, before the transaction, which speaks to no storage but that of a folder.
    """
    with (
        _arriving(folder, shard.encoding.key, shard.number, report) as arrival,
        transaction.atomic(),
    ):
        encoding = Encoding.objects.select_for_update().get(pk=shard.encoding_id)
        line = append_log_line(f"{documents:,} documents encoded in {seconds:.1f} s.")
        advance_claimed(job, State.DONE, progress=1.0, log=line)
        _store_shard(shard, arrival, documents=documents, seconds=seconds, hardware=hardware)
        # How far all are is the dispatcher's to say: each shard asks for as little as it can.
        if not encoding.shards.filter(done_at=None).exists():
            requeue_waiting(encoding)


def store_single_shard(
    setting: EncodingSetting,
    folder: Path,
    *,
    documents: int,
    seconds: float,
    hardware: str,
    report: Report = _ignore_progress,
) -> None:
    """Keep the one shard of a small corpus, which the job that needed it encoded itself."""
    with _arriving(folder, setting.key, 0, report) as arrival, transaction.atomic():
        encoding = _get_or_create_encoding(setting)
        shard = encoding.shards.get()
        if shard.done_at is None:
            _store_shard(shard, arrival, documents=documents, seconds=seconds, hardware=hardware)


def _get_or_create_encoding(setting: EncodingSetting) -> Encoding:
    """The encoding's row, held, with a row for every shard."""
    encoding, created = Encoding.objects.select_for_update().update_or_create(
        key=setting.key,
        defaults={"format": SHARD_FORMAT},  # the key has it; a row may be older than the column
        create_defaults={
            "checkpoint": setting.checkpoint,
            "version": setting.version,
            "engine": setting.engine,
            "parameters": setting.parameters,
            "format": SHARD_FORMAT,
            "shard_size": setting.shard_size,
            "shards_expected": setting.shards,
        },
    )
    if created:
        Shard.objects.bulk_create(Shard(encoding=encoding, number=number) for number in range(setting.shards))
    return encoding


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A shard that has come where it stays: its bytes, and the checksum of its manifest, or what gives it its name."""

    size: int
    manifest: str = ""
    take_its_name: Callable[[], None] = lambda: None


@contextmanager
def _arriving(folder: Path, key: str, number: int, report: Report) -> Iterator[_Arrival]:
    """Have the shard's bytes travel; around the transaction that names it. Raises UnusableOutput."""
    manifest = send_shard(folder, key, number, report)
    if manifest is not None:
        yield _Arrival(manifest.size, manifest.sha256)
        return
    size = checked_size(folder)
    with arriving(folder, embeddings_root()) as arrived:
        yield _Arrival(size, take_its_name=partial(take_name, arrived, shard_folder(key, number)))
    # Not while others wait for the row: a shard whose name a loss of power takes is made again.
    with suppress(FileNotFoundError):  # nobody needed it, and it was swept
        sync(embeddings_folder(key))


def _store_shard(shard: Shard, arrival: _Arrival, *, documents: int, seconds: float, hardware: str) -> None:
    arrival.take_its_name()
    Shard.objects.filter(pk=shard.pk).update(
        done_at=timezone.now(),
        documents=documents,
        size=arrival.size,
        manifest=arrival.manifest,
        seconds=seconds,
        hardware=hardware,
    )


def _reset_lost_shards(encoding: Encoding) -> None:
    """Shards whose files somebody removed, or cut, are to be made again."""
    for shard in encoding.shards.exclude(done_at=None):
        folder = shard_folder(encoding.key, shard.number)
        if not folder.is_dir() or checked_size(folder) != shard.size:
            Shard.objects.filter(pk=shard.pk).update(done_at=None)


def _fetch_all_shards(job: Job, encoding: Encoding, manifests: Mapping[int, str], report: Report) -> bool:
    """Whether all shards of the encoding are on this machine now. Those that cannot be are to be made again."""
    embedding_storage.mark_used(encoding.key)
    lost = fetch_shards(encoding.key, manifests, report)
    with transaction.atomic():
        lock_encodings(Encoding.objects.filter(pk=encoding.pk))
        encoding.shards.filter(number__in=lost).update(done_at=None)
    for number in sorted(lost):
        write_log(
            job.pk, f"Shard {number + 1} of the corpus is missing or damaged on the storage: made again."
        )
    return not lost
