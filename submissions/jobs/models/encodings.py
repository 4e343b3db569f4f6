"""Embeddings of a dataset version: made in shards by any worker of a queue, kept, and shared by jobs.

A shard is a row that one job makes, under the lease and the fence of every job. The job that needs the whole corpus
gives its claim up and waits; the transaction that finishes the last shard puts it back into the queue. Whoever writes
here holds the encoding's row, so that of two last shards one sees the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from leaderboard.models import DatasetVersion
from submissions.jobs.models import embedding_storage
from submissions.jobs.models.embedding_files import (
    embeddings_folder,
    embeddings_root,
    mark_used,
    shard_folder,
    store_shard,
)
from submissions.jobs.models.embedding_storage import (
    Manifest,
    Report,
    fetch_shards,
    is_remote,
    publish_shard,
    send_shard,
    store_local_copy,
)
from submissions.models import TERMINAL, Checkpoint, Encoding, Job, Shard, State
from submissions.queue.capability import UNPROTECTED
from submissions.queue.lease import WorkEnded, advance_claimed
from submissions.queue.lifecycle import advance, write_log
from submissions.queue.queue import BACKOFF, end_cancelled, next_turn, request_cancel, requeue, wake_worker
from submissions.sandbox.processes import free_bytes


@dataclass(frozen=True, slots=True)
class EncodingSetting:
    """What decides the bytes of encoded documents, and so which jobs share them.

    `parameters` are those that the engine names as its `encoding_parameters`; `hardware` is the slug of the machine's
    class. Embeddings stay with the owner of the checkpoint, as the checkpoint does.
    """

    checkpoint: Checkpoint
    version: DatasetVersion
    engine: str
    parameters: dict[str, Any]
    hardware: str
    device: str
    threads: int
    shard_size: int = field(default_factory=lambda: settings.SHARD_SIZE)

    @property
    def key(self) -> str:
        """The name of the embeddings: a sha256 over all of it."""
        what = {
            "owner": self.checkpoint.team_id,
            "model": self.checkpoint.model_sha256,
            "corpus": self.version.corpus_sha256,
            "engine": self.engine,
            "parameters": self.parameters,
            "hardware": self.hardware,
            "device": self.device,
            "threads": self.threads,
            "shard_size": self.shard_size,
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    @property
    def documents(self) -> int:
        """How many documents the corpus has."""
        return int(self.version.statistics.get("documents", 0))

    @property
    def shards(self) -> int:
        """How many shards the corpus has, at least one."""
        return max(1, -(-self.documents // self.shard_size))

    @property
    def least_bytes(self) -> int:
        """What the vectors take at least: one of float32 for each document; 0 where their dimension is not known."""
        dimension = self.parameters.get("truncate_dimension") or self.checkpoint.description.get("dimension")
        return self.documents * int(dimension or 0) * 4


logger = logging.getLogger(__name__)

#: States of a shard's job that end the jobs which wait for it. A cancelled one is made again if somebody waits.
_ENDED_BADLY = frozenset({State.FAILED, State.REJECTED, State.TIMED_OUT})
#: Shards that are one turn of their team's: a worker that goes on to another model has to load it.
SHARDS_A_TURN = 8
#: Said once, though the job looks again every minute.
_WAITS_FOR_ROOM = "The job waits for room."
#: So many shards of a corpus wait in the queue: each claim looks at all that waits. The dispatcher makes more when half
#: of them are taken, which is enough for 50 shards a second.
_MOST_WAITING = 512
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


class DiskTooSmall(WorkEnded):
    """The embeddings would not fit on this machine's disk now."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(f"{needed} bytes are needed, {free} are free")

    def settle(self, job: Job) -> None:
        """Put the job back for a while: an operator, or the sweep, makes room."""
        if requeue(job, counted=False, delay=BACKOFF[-1]) and _WAITS_FOR_ROOM not in job.log:
            needed, free = (f"{size / 2**30:,.1f} GiB" for size in (self.needed, self.free))
            write_log(
                job.pk, f"The embeddings take {needed} or more; {free} of disk are free. {_WAITS_FOR_ROOM}"
            )
            logger.error("job %s waits for room on the disk: %s", job.pk, self)


def require_room(setting: EncodingSetting) -> None:
    """Raise DiskTooSmall where the embeddings will not fit, rather than after hours of encoding."""
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    free = max(free_bytes(embeddings_root()) - settings.DISK_RESERVE_BYTES, 0)
    if setting.least_bytes > free:
        raise DiskTooSmall(setting.least_bytes, free)


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
    damaged there is forgotten, and made again for whoever waits. Raises whatever `report` does.
    """
    with transaction.atomic():
        waited_for = Encoding.objects.filter(waiting_jobs=job.pk) if job.waits_for_id else None
        encoding = _lock_encodings(
            waited_for if waited_for is not None else Encoding.objects.filter(key=setting.key)
        )
        if encoding is None:
            return None
        if not is_remote():
            _reset_lost_shards(encoding)
        shards = list(encoding.shards.exclude(done_at=None))
        if len(shards) < encoding.shards_expected:
            return None
        Job.objects.filter(pk=job.pk, fence=job.fence).update(waits_for=encoding)
    if is_remote() and not _fetch_all_shards(
        job, encoding, {shard.number: shard.size for shard in shards}, report
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
        wakeups = _make_jobs(encoding, job)
        write_log(
            job.pk, f"The corpus is encoded in {encoding.shards_expected} shards, by any worker that is free."
        )
        _report_progress(encoding)
        if not encoding.shards.filter(done_at=None).exists():
            _requeue_waiting(encoding)
        for _ in range(min(wakeups, _MOST_WAKEUPS)):
            wake_worker(job.queue)
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

    Its bytes travel before the transaction, in which it is there or not.
    """
    manifest = send_shard(folder, shard.encoding.key, shard.number, report)
    with transaction.atomic():
        encoding = Encoding.objects.select_for_update().get(pk=shard.encoding_id)
        advance_claimed(job, State.DONE, progress=1.0)
        _store_shard(
            encoding, shard, folder, manifest, documents=documents, seconds=seconds, hardware=hardware
        )
        write_log(job.pk, f"{documents:,} documents encoded in {seconds:.1f} s.")
        _report_progress(encoding)
        if not encoding.shards.filter(done_at=None).exists():
            _requeue_waiting(encoding)
    if manifest is not None:
        store_local_copy(folder, manifest, encoding.key, shard.number)


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
    manifest = send_shard(folder, setting.key, 0, report)
    with transaction.atomic():
        encoding = _get_or_create_encoding(setting)
        shard = encoding.shards.get()
        if shard.done_at is None:
            _store_shard(
                encoding, shard, folder, manifest, documents=documents, seconds=seconds, hardware=hardware
            )
    if manifest is not None:
        store_local_copy(folder, manifest, encoding.key, 0)


def settle_shard_waiters(job: Job) -> None:
    """See to those who wait for a shard whose job has just ended, or may have; where it is there, they know it."""
    unmade = Shard.objects.filter(job=job.pk).exclude(job__state=State.DONE)
    for encoding in unmade.values_list("encoding_id", flat=True):
        _settle(encoding)


def settle_waiting_jobs() -> None:
    """Requeue jobs whose shards are there, after a crash or a lost wakeup too, and cancel shards that nobody needs."""
    for pk in Encoding.objects.filter(waiting_jobs__in=_waiting()).distinct().values_list("pk", flat=True):
        _settle(pk)
    cancel_unneeded_shards()


def cancel_unneeded_shards() -> None:
    """Cancel the shards that no job waits for any more."""
    under_way = Job.objects.filter(kind=Job.Kind.SHARD, cancel_requested=False).exclude(state__in=TERMINAL)
    for job in under_way.filter(shard__encoding__waiting_jobs=None):
        request_cancel(job)


def _settle(encoding_id: int) -> None:
    with transaction.atomic():
        encoding = _lock_encodings(Encoding.objects.filter(pk=encoding_id))
        waiting = list(_waiting().filter(waits_for=encoding_id))
        if encoding is None or not waiting:
            return
        missing = encoding.shards.filter(done_at=None)
        failed = missing.filter(job__state__in=_ENDED_BADLY).select_related("job").first()
        if failed is not None and failed.job is not None:
            _fail_waiting(waiting, failed, failed.job)
        elif not missing.exists():
            _requeue_waiting(encoding)
        elif _make_jobs(encoding, waiting[0]):
            wake_worker(waiting[0].queue)
        else:
            _report_progress(encoding)


def _waiting() -> QuerySet[Job]:
    """Jobs that gave their claim up for an encoding."""
    return Job.objects.filter(state=State.RETRIEVING, lease_expires_at=None, waits_for__isnull=False)


def _lock_encodings(encodings: QuerySet[Encoding]) -> Encoding | None:
    return encodings.select_for_update(of=("self",)).first()


def _get_or_create_encoding(setting: EncodingSetting) -> Encoding:
    """The encoding's row, held, with a row for every shard."""
    encoding, created = Encoding.objects.select_for_update().get_or_create(
        key=setting.key,
        defaults={
            "checkpoint": setting.checkpoint,
            "version": setting.version,
            "engine": setting.engine,
            "parameters": setting.parameters,
            "shard_size": setting.shard_size,
            "shards_expected": setting.shards,
        },
    )
    if created:
        Shard.objects.bulk_create(Shard(encoding=encoding, number=number) for number in range(setting.shards))
    return encoding


def _make_jobs(encoding: Encoding, like: Job) -> int:
    """Jobs, in the queue of the one that waits, for shards that nobody makes, where few wait; returns how many."""
    room = _MOST_WAITING - encoding.shards.filter(job__state=State.QUEUED).count()
    if room < _MOST_WAITING // 2:
        return 0
    unmade = encoding.shards.filter(Q(job=None) | Q(job__state__in=TERMINAL), done_at=None).order_by("number")
    shards = list(unmade[:room])
    if not shards:
        return 0
    turn = next_turn(like.queue, like.submission.team if like.submission else None)
    jobs = Job.objects.bulk_create(
        Job(
            kind=Job.Kind.SHARD,
            queue=like.queue,
            turn=turn + count // SHARDS_A_TURN,
            dataset=like.dataset,
            state=State.QUEUED,
            validated=True,
            payload={
                **_unprotected_payload(like),
                "shard": shard.number,
                "shards": encoding.shards_expected,
            },
        )
        for count, shard in enumerate(shards)
    )
    for shard, job in zip(shards, jobs, strict=True):
        shard.job = job
    Shard.objects.bulk_update(shards, ["job"])
    return len(shards)


def _unprotected_payload(job: Job) -> dict[str, bool]:
    """Whether the job, and so its shards, may run without a sandbox."""
    return {UNPROTECTED: True} if job.payload.get(UNPROTECTED) is True else {}


def _store_shard(
    encoding: Encoding,
    shard: Shard,
    folder: Path,
    manifest: Manifest | None,
    *,
    documents: int,
    seconds: float,
    hardware: str,
) -> None:
    if manifest is not None:
        publish_shard(manifest, encoding.key, shard.number)
    size = manifest.size if manifest is not None else store_shard(folder, encoding.key, shard.number)
    Shard.objects.filter(pk=shard.pk).update(
        done_at=timezone.now(), documents=documents, size=size, seconds=seconds, hardware=hardware
    )


def _report_progress(encoding: Encoding) -> None:
    """Show whoever waits how far the shards are, those under way by their own progress."""
    done = encoding.shards.exclude(done_at=None).count()
    under_way = encoding.shards.filter(done_at=None, job__lease_expires_at__isnull=False)
    shares: Iterable[float] = under_way.values_list("job__progress", flat=True)
    _waiting().filter(waits_for=encoding).update(
        progress=min((done + sum(shares)) / encoding.shards_expected, 1.0),
    )


def _reset_lost_shards(encoding: Encoding) -> None:
    """Shards whose files somebody removed are to be made again."""
    for shard in encoding.shards.exclude(done_at=None):
        if not shard_folder(encoding.key, shard.number).is_dir():
            Shard.objects.filter(pk=shard.pk).update(done_at=None)


def _fetch_all_shards(job: Job, encoding: Encoding, sizes: Mapping[int, int], report: Report) -> bool:
    """Whether all shards of the encoding are on this machine now. Those that cannot be are to be made again."""
    embedding_storage.mark_used(encoding.key)
    lost = fetch_shards(encoding.key, sizes, report)
    with transaction.atomic():
        _lock_encodings(Encoding.objects.filter(pk=encoding.pk))
        encoding.shards.filter(number__in=lost).update(done_at=None)
    for number in sorted(lost):
        write_log(
            job.pk, f"Shard {number + 1} of the corpus is missing or damaged on the storage: made again."
        )
    return not lost


def _requeue_waiting(encoding: Encoding) -> None:
    """Put everyone who waits back into the queue: all shards are there."""
    for job in _waiting().filter(waits_for=encoding):
        if advance(job.pk, State.QUEUED, stage="", progress=0.0, progress_note="", not_before=None):
            write_log(job.pk, "All shards are encoded.")
            wake_worker(job.queue)


def _fail_waiting(waiting: Iterable[Job], shard: Shard, cause: Job) -> None:
    """End those who wait as the shard ended, with its reason."""
    for job in waiting:
        write_log(job.pk, f"Shard {shard.number + 1} of the corpus could not be encoded.")
        advance(
            job.pk,
            State(cause.state),
            report=cause.report,
            error_code=cause.error_code,
            fault=cause.fault,
        )
    logger.warning("shard %s failed %s", shard.pk, cause.error_code)
