"""Embeddings of a dataset version: made in shards by any worker of a queue, kept, and shared by jobs.

A shard is a row that one job makes, under the lease and the fence of every job. The job that needs the whole corpus
gives up its claim and waits; the transaction that finishes the last shard puts it back into the queue. Every writer
here locks the encoding's row first, so that of two last shards one sees the other.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from evaluation.core.problems import ModelFailure
from evaluation.engines.base import AUTO
from evaluation.engines.corpus_encoding import SHARD_FORMAT
from evaluation.engines.index.vector_index import bytes_of_vector
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.core.storage.store import sync
from leaderboard.models import DatasetVersion
from submissions.jobs.checkpoints import embeddings
from submissions.jobs.checkpoints.embeddings import Report
from submissions.models import TERMINAL, Checkpoint, Encoding, Job, Shard, State
from submissions.queue.lease import WorkEnded, finish
from submissions.queue.queue import advance, end_cancelled, next_turn, request_cancel, wake_worker, write_log
from submissions.queue.workers import UNPROTECTED

logger = logging.getLogger(__name__)

#: States of a shard's job that end the jobs which wait for it. A cancelled one is made again if a job waits for it.
_ENDED_BADLY = frozenset({State.FAILED, State.REJECTED, State.TIMED_OUT})
#: Number of shards that are one turn of their team: a worker that goes on to another model has to load it.
SHARDS_A_TURN = 8
#: Most shards of a corpus in the queue: each claim looks at all waiting jobs. The dispatcher makes more when half of
#: them are taken, which is enough for 50 shards a second.
_MOST_WAITING = 512
#: Number of workers that are woken at once for the shards of a corpus.
_MOST_WAKEUPS = 32


@dataclass(frozen=True, slots=True)
class EncodingSetting:
    """Inputs that decide the bytes of encoded documents, and so which jobs share them.

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
        """Name of the embeddings: a sha256 over the whole setting."""
        what = {
            "format": SHARD_FORMAT,
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
        """Number of documents in the corpus."""
        return int(self.version.statistics.get("documents", 0))

    @property
    def shards(self) -> int:
        """Number of shards of the corpus, at least one."""
        return max(1, -(-self.documents // self.shard_size))

    @property
    def dimension(self) -> int:
        """Dimension of the vectors; 0 if it is not known."""
        wanted = self.parameters.get("truncate_dimension")
        own = self.checkpoint.description.get("dimension")
        return int((own if wanted in (None, AUTO, 0) else wanted) or 0)

    @property
    def least_bytes(self) -> int:
        """Least size of the vectors: one of float32 for each document; 0 if their dimension is not known."""
        return self.documents * self.dimension * 4

    def least_index_bytes(self, parameters: Mapping[str, Any]) -> int:
        """Return the least number of bytes that a search with all these parameters writes beside the vectors.

        An index of lists exists twice while its groups become one.
        """
        stored = parameters.get("stored_dtype", "float32")
        copies = {"exact": int(stored != "float32"), "hnsw": 1, "ivf": 2}.get(parameters.get("search", ""), 0)
        return copies * self.documents * bytes_of_vector(self.dimension, stored)


def require_room(setting: EncodingSetting, parameters: Mapping[str, Any]) -> None:
    """Raise DiskTooSmall if embeddings and index will not fit, rather than after hours of encoding.

    Raises ModelFailure if the index alone is larger than a job may write.
    """
    index = setting.least_index_bytes(parameters)
    if index > settings.MODEL_OUTPUT_BYTES:
        raise ModelFailure("too_much_output", MODEL_FAILURES["too_much_output"].meaning)
    made = Shard.objects.filter(encoding__key=setting.key).exclude(done_at=None)
    found = made.aggregate(size=Sum("size", default=0), documents=Sum("documents", default=0))
    # Of several vectors a document the first shards say more than its one.
    expected = max(setting.least_bytes, setting.documents * found["size"] // max(found["documents"], 1))
    embeddings.embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    if embeddings.embeddings_root().stat().st_dev == Path(settings.VAR).stat().st_dev:
        expected += index
    # Shards in a bucket need local space too, because they are downloaded.
    embeddings.require_free(expected - (0 if embeddings.is_remote() else found["size"]))


class WaitsForShards(WorkEnded):
    """The job can go on once all shards of its corpus exist; `setting` names them."""

    def __init__(self, setting: EncodingSetting) -> None:
        self.setting = setting
        super().__init__(f"{setting.shards} shards")

    def settle(self, job: Job) -> None:
        """Give up the claim until they exist."""
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
        """Folder of the shards."""
        return embeddings.embeddings_folder(self.key)


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """A shard that a child wrote into a folder, with its statistics; `hardware` is the slug of the machine's class."""

    folder: Path
    documents: int
    seconds: float
    hardware: str


def use_encoding(job: Job, setting: EncodingSetting, report: Report) -> EncodedCorpus | None:
    """Return the embeddings if all exist: those that the job waited for, or that another job left behind.

    They are kept for as long as the job is under way. Embeddings in a storage elsewhere are downloaded first; damaged
    ones are forgotten, and made again for the waiting jobs. Raises DiskTooSmall, and whatever `report` does.
    """
    with transaction.atomic():
        wanted = Q(waiting_jobs=job.pk) if job.waits_for_id else Q(key=setting.key)
        encoding = _lock(Encoding.objects.filter(wanted, format=SHARD_FORMAT))
        if encoding is None:
            return None
        if not embeddings.is_remote():
            for shard in encoding.shards.exclude(done_at=None):
                folder = embeddings.shard_folder(encoding.key, shard.number)
                if not folder.is_dir() or embeddings.checked_size(folder) != shard.size:
                    Shard.objects.filter(pk=shard.pk).update(done_at=None)
        shards = list(encoding.shards.exclude(done_at=None))
        if len(shards) < encoding.shards_expected:
            return None
        Job.objects.filter(pk=job.pk, fence=job.fence).update(waits_for=encoding)
    embeddings.mark_used(encoding.key)
    if embeddings.is_remote():
        lost = embeddings.fetch_shards(
            encoding.key, {shard.number: shard.manifest for shard in shards}, report
        )
        if lost:
            with transaction.atomic():
                _lock(Encoding.objects.filter(pk=encoding.pk))
                encoding.shards.filter(number__in=lost).update(done_at=None)
            for number in sorted(lost):
                write_log(
                    job.pk,
                    f"Shard {number + 1} of the corpus is missing or damaged on the storage: made again.",
                )
            return None
    return EncodedCorpus(
        encoding.key,
        encoding.shards_expected,
        encoding.shard_size,
        sum(shard.documents for shard in shards),
        sum(shard.seconds for shard in shards),
        frozenset(shard.hardware for shard in shards),
    )


def wait_for_shards(job: Job, setting: EncodingSetting) -> bool:
    """Give up the claim until the shards exist: rows for all, and a job for each that is not being made.

    Call it once nothing keeps the job's lease alive any more. Returns False if the claim was lost.
    """
    with transaction.atomic():
        encoding = _get_or_create_encoding(setting)
        columns: dict[str, Any] = {
            "line": f"The corpus is encoded in {encoding.shards_expected} shards, by any worker that is free.",
            "stage": "encoding",
            "waits_for": encoding,
            "lease_expires_at": None,
            "attempts": max(job.attempts - 1, 0),
        }
        if not advance(job.pk, State.RETRIEVING, fence=job.fence, unless_cancelled=True, **columns):
            return end_cancelled(job)
        # Shards that failed earlier jobs are tried anew, also those that get no job of theirs yet.
        encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).update(job=None)
    settle_encoding(encoding.pk)  # in another transaction: this one holds the row of a job
    return True


def finish_shard(job: Job, shard: Shard, encoded: EncodedShard, report: Report) -> None:
    """Store the encoded shard, end its job, and wake the jobs that waited for it alone.

    Its bytes travel, and are synced, before the transaction, which uses no storage but that of a folder. Raises
    LeaseLost or Cancelled.
    """
    with _arriving(encoded, shard.encoding.key, shard.number, report) as store, transaction.atomic():
        encoding = Encoding.objects.select_for_update().get(pk=shard.encoding_id)
        finish(job, f"{encoded.documents:,} documents encoded in {encoded.seconds:.1f} s.")
        store(shard)
        # The dispatcher reports the overall progress: each shard makes as few queries as it can.
        if not encoding.shards.filter(done_at=None).exists():
            requeue_waiting(encoding, "All shards are encoded.")


def store_single_shard(setting: EncodingSetting, encoded: EncodedShard, report: Report) -> None:
    """Store the one shard of a small corpus, which the job that needed it encoded itself."""
    with _arriving(encoded, setting.key, 0, report) as store, transaction.atomic():
        shard = _get_or_create_encoding(setting).shards.get()
        if shard.done_at is None:
            store(shard)


def _get_or_create_encoding(setting: EncodingSetting) -> Encoding:
    """Return the encoding's row, locked, with a row for every shard."""
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


@contextmanager
def _arriving(
    encoded: EncodedShard, key: str, number: int, report: Report
) -> Iterator[Callable[[Shard], None]]:
    """Transfer the shard's bytes; the yielded function stores it in the caller's transaction. Raises UnusableOutput."""
    manifest = embeddings.send_shard(encoded.folder, key, number, report)
    size = manifest.size if manifest else embeddings.checked_size(encoded.folder)
    columns = {"size": size, "manifest": manifest.sha256 if manifest else ""}
    with (
        nullcontext()
        if manifest
        else embeddings.arriving(encoded.folder, embeddings.embeddings_root()) as folder
    ):
        yield partial(_store_shard, encoded, folder, columns)
    if manifest is None:
        # Not while others wait for the row: a shard whose name a loss of power takes is made again.
        with suppress(FileNotFoundError):  # no job needed it, and it was swept
            sync(embeddings.embeddings_folder(key))


def _store_shard(
    encoded: EncodedShard, folder: Path | None, columns: Mapping[str, Any], shard: Shard
) -> None:
    """Give the shard's folder, if it has any here, its name, and complete its row."""
    if folder is not None:
        embeddings.take_name(folder, embeddings.shard_folder(shard.encoding.key, shard.number))
    Shard.objects.filter(pk=shard.pk).update(
        done_at=timezone.now(),
        documents=encoded.documents,
        seconds=encoded.seconds,
        hardware=encoded.hardware,
        **columns,
    )


# --- jobs of shards, and the jobs that wait for them


def settle_shard_waiters(job: Job) -> None:
    """Settle the jobs that wait for a shard whose job has just ended without it, or may have."""
    unmade = Shard.objects.filter(job=job.pk).exclude(job__state=State.DONE)
    for encoding in unmade.values_list("encoding_id", flat=True):
        settle_encoding(encoding)


def settle_waiting_jobs() -> None:
    """Requeue jobs whose shards exist, after a crash or a lost wakeup too, and cancel shards that no job needs."""
    encodings = Encoding.objects.filter(waiting_jobs__in=_waiting_jobs()).distinct()
    for pk in encodings.values_list("pk", flat=True):
        settle_encoding(pk)
    cancel_unneeded_shards()


def cancel_unneeded_shards() -> None:
    """Cancel the shards that no job waits for any more."""
    under_way = Job.objects.filter(kind=Job.Kind.SHARD, cancel_requested=False).exclude(state__in=TERMINAL)
    for job in under_way.filter(shard__encoding__waiting_jobs=None):
        request_cancel(job)


def settle_encoding(encoding_id: int) -> None:
    """Requeue or end the jobs that wait for an encoding, as its shards are, and have missing shards made."""
    with transaction.atomic():
        encoding = _lock(Encoding.objects.filter(pk=encoding_id))
        waiting = list(_waiting_jobs().filter(waits_for=encoding_id))
        if encoding is None or not waiting:
            return
        if encoding.format != SHARD_FORMAT:
            line = "The corpus is encoded anew: this version writes shards of another format."
            requeue_waiting(encoding, line)
            return
        missing = Q(done_at=None)
        counts = encoding.shards.aggregate(
            missing=Count("pk", filter=missing),
            failed=Count("pk", filter=missing & Q(job__state__in=_ENDED_BADLY)),
            queued=Count("pk", filter=Q(job__state=State.QUEUED)),
            under_way=Sum(
                "job__progress", filter=missing & Q(job__lease_expires_at__isnull=False), default=0.0
            ),
        )
        if counts["failed"]:
            _fail_waiting(waiting, encoding)
        elif not counts["missing"]:
            requeue_waiting(encoding, "All shards are encoded.")
        else:
            made = make_shard_jobs(encoding, waiting[0], int(_MOST_WAITING - counts["queued"]))
            for _ in range(min(made, _MOST_WAKEUPS)):
                wake_worker(waiting[0].queue)
            # The waiting jobs show how far the shards are, those under way by their own progress. A job that is being
            # withdrawn is left out: waiting for it here would hold rows that its withdrawal wants.
            done = encoding.shards_expected - counts["missing"] + counts["under_way"]
            shown = (
                _waiting_jobs().filter(waits_for=encoding).select_for_update(skip_locked=True, no_key=True)
            )
            Job.objects.filter(pk__in=list(shown.values_list("pk", flat=True))).update(
                progress=min(done / encoding.shards_expected, 1.0)
            )


def _waiting_jobs() -> QuerySet[Job]:
    """Return the jobs that gave up their claim for an encoding."""
    return Job.objects.filter(state=State.RETRIEVING, lease_expires_at=None, waits_for__isnull=False)


def _lock(encodings: QuerySet[Encoding]) -> Encoding | None:
    return encodings.select_for_update(of=("self",)).first()


def make_shard_jobs(encoding: Encoding, like: Job, most: int) -> int:
    """Create at most so many jobs for shards that are not being made, and none while few may be; return how many.

    They are in the queue of the job `like`, which waits for them, and may run without a sandbox if it may.
    """
    if most < _MOST_WAITING // 2:
        return 0
    unmade = encoding.shards.filter(Q(job=None) | Q(job__state__in=TERMINAL), done_at=None).order_by("number")
    shards = list(unmade[:most])
    if not shards:
        return 0
    turn = next_turn(like.queue, like.submission.team if like.submission else None)
    unprotected = {UNPROTECTED: True} if like.payload.get(UNPROTECTED) is True else {}
    jobs = Job.objects.bulk_create(
        Job(
            kind=Job.Kind.SHARD,
            queue=like.queue,
            turn=turn + count // SHARDS_A_TURN,
            dataset=like.dataset,
            state=State.QUEUED,
            validated=True,
            payload={**unprotected, "shard": shard.number, "shards": encoding.shards_expected},
        )
        for count, shard in enumerate(shards)
    )
    for shard, job in zip(shards, jobs, strict=True):
        shard.job = job
    Shard.objects.bulk_update(shards, ["job"])
    return len(shards)


def requeue_waiting(encoding: Encoding, line: str) -> None:
    """Put all waiting jobs back into the queue."""
    for job in _waiting_jobs().filter(waits_for=encoding):
        if advance(job.pk, State.QUEUED, line=line, not_before=None):
            wake_worker(job.queue)


def _fail_waiting(waiting: list[Job], encoding: Encoding) -> None:
    """End the waiting jobs as the first shard that failed has ended, with its reason."""
    failed = encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).select_related("job")
    shard = failed[0]
    cause = shard.job
    assert cause is not None
    for job in waiting:
        line = f"Shard {shard.number + 1} of the corpus could not be encoded."
        outcome = {"report": cause.report, "error_code": cause.error_code, "fault": cause.fault}
        advance(job.pk, State(cause.state), line=line, **outcome)
    logger.warning("shard %s failed %s", shard.pk, cause.error_code)
