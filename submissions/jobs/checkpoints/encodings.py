"""Embeddings of a dataset version, encoded in shards by all workers of a queue and shared by jobs.

Each shard is a row with its own job. The job that needs the corpus gives up its claim and waits; the transaction
that finishes the last shard requeues it. All writers lock the encoding's row first, so that of two last shards one sees
the other.
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

from evaluation.core.problems import ModelFailure, format_count
from evaluation.engines.base import AUTO
from evaluation.engines.corpus_encoding import SHARD_FORMAT
from evaluation.engines.index.vector_index import bytes_per_vector
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.core.storage.store import sync
from leaderboard.models import DatasetVersion
from submissions.jobs.checkpoints import embeddings
from submissions.jobs.checkpoints.embeddings import Report
from submissions.models import TERMINAL, Checkpoint, Encoding, Job, Shard, State, Submission
from submissions.queue.lease import WorkEnded, finish
from submissions.queue.queue import advance, end_cancelled, next_turn, request_cancel, wake_worker, write_log
from submissions.queue.workers import UNPROTECTED

logger = logging.getLogger(__name__)

#: States of a shard's job that end the waiting jobs. Canceled shards are encoded again if a job waits for them.
_ENDED_BADLY = frozenset({State.FAILED, State.REJECTED, State.TIMED_OUT})
#: Number of shards in one turn of a team. Switching to another model costs the time of loading it.
SHARDS_A_TURN = 8
#: Maximum number of queued shards per corpus, since each claim scans all waiting jobs. The dispatcher adds shards when
#: half of them are claimed, which suffices for 12 shards per second.
_MAX_WAITING = 256
#: Maximum number of workers woken at the same time for the shards of a corpus.
_MAX_WAKEUPS = 32


@dataclass(frozen=True, slots=True)
class EncodingSetting:
    """Inputs that determine the bytes of encoded documents; jobs with the same inputs share them.

    `parameters` are the engine's `encoding_parameters`; `hardware` is the slug of the hardware class. Embeddings belong
    to the owner of the checkpoint.
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
        """Name of the embeddings: a SHA-256 over the whole setting."""
        inputs = {
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
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    @property
    def documents(self) -> int:
        return int(self.version.statistics.get("documents", 0))

    @property
    def shards(self) -> int:
        """Number of shards of the corpus, at least one."""
        return max(1, -(-self.documents // self.shard_size))

    @property
    def dimension(self) -> int:
        """Dimension of the vectors, or 0 if it is unknown."""
        requested = self.parameters.get("truncate_dimension")
        native = self.checkpoint.description.get("dimension")
        return int((native if requested in (None, AUTO, 0) else requested) or 0)

    @property
    def least_bytes(self) -> int:
        """Minimum size of the vectors: one float32 vector per document, or 0 if the dimension is unknown."""
        return self.documents * self.dimension * 4

    def least_index_bytes(self, parameters: Mapping[str, Any]) -> int:
        """Return the minimum size in bytes of an index with these parameters, besides the vectors.

        An IVF index exists twice while its groups are merged.
        """
        dtype = parameters.get("stored_dtype", "float32")
        copies = {"exact": int(dtype != "float32"), "hnsw": 1, "ivf": 2}.get(parameters.get("search", ""), 0)
        return copies * self.documents * bytes_per_vector(self.dimension, dtype)


def require_disk_space(setting: EncodingSetting, parameters: Mapping[str, Any]) -> None:
    """Raise DiskTooSmall if the disk is too small for embeddings and index. Call it before encoding.

    Raises ModelFailure if the index alone exceeds the output limit of a job.
    """
    index = setting.least_index_bytes(parameters)
    if index > settings.MODEL_OUTPUT_BYTES:
        raise ModelFailure("too_much_output", MODEL_FAILURES["too_much_output"].meaning)
    finished_shards = Shard.objects.filter(encoding__key=setting.key).exclude(done_at=None)
    totals = finished_shards.aggregate(size=Sum("size", default=0), documents=Sum("documents", default=0))
    # With several vectors per document, finished shards give a better estimate than one vector per document.
    required_bytes = max(setting.least_bytes, setting.documents * totals["size"] // max(totals["documents"], 1))
    embeddings.embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    if embeddings.embeddings_root().stat().st_dev == Path(settings.VAR).stat().st_dev:
        required_bytes += index
    # Remote shards need local space too, because they are downloaded.
    embeddings.require_free_bytes(required_bytes - (0 if embeddings.is_remote() else totals["size"]))


class WaitsForShards(WorkEnded):
    """Exception that makes a job wait until all shards of its corpus exist. `setting` identifies them."""

    def __init__(self, setting: EncodingSetting) -> None:
        self.setting = setting
        super().__init__(f"{setting.shards} shards")

    def settle(self, job: Job) -> None:
        wait_for_shards(job, self.setting)


@dataclass(frozen=True, slots=True)
class EncodedCorpus:
    """Completely encoded corpus with its encoding time in seconds and the hardware classes used."""

    key: str
    shards: int
    shard_size: int
    documents: int
    seconds: float
    hardware: frozenset[str]

    @property
    def folder(self) -> Path:
        return embeddings.embeddings_folder(self.key)


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """Shard that a child wrote into a folder, with its statistics; `hardware` is the slug of the hardware class."""

    folder: Path
    documents: int
    seconds: float
    hardware: str


def use_encoding(job: Job, setting: EncodingSetting, report: Report) -> EncodedCorpus | None:
    """Return the embeddings if all shards exist, else None.

    The sweep does not remove them while the job is active. Remote embeddings are downloaded first. Damaged shards are
    encoded again for the waiting jobs. Raises DiskTooSmall and the exceptions of `report`.
    """
    with transaction.atomic():
        criteria = Q(waiting_jobs=job.pk) if job.waits_for_id else Q(key=setting.key)
        encoding = _lock(Encoding.objects.filter(criteria, format=SHARD_FORMAT))
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
        damaged_numbers = embeddings.fetch_shards(
            encoding.key, {shard.number: shard.manifest for shard in shards}, report
        )
        if damaged_numbers:
            with transaction.atomic():
                _lock(Encoding.objects.filter(pk=encoding.pk))
                encoding.shards.filter(number__in=damaged_numbers).update(done_at=None)
            for number in sorted(damaged_numbers):
                write_log(
                    job.pk,
                    f"Shard {number + 1} of the corpus is missing or damaged in the storage and will be encoded again.",
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
    """Make the job wait, without a claim, until all shards exist; create rows for all shards and jobs for missing ones.

    Call it when the job's lease is no longer extended. A canceled job ends instead. Returns False if the claim was
    lost.
    """
    with transaction.atomic():
        encoding = _get_or_create_encoding(setting)
        columns: dict[str, Any] = {
            "line": f"All available workers encode {format_count(encoding.shards_expected, 'shard')} of the corpus.",
            "stage": "encoding",
            "waits_for": encoding,
            "lease_expires_at": None,
            "attempts": max(job.attempts - 1, 0),
        }
        if not advance(job.pk, State.RETRIEVING, fence=job.fence, unless_cancelled=True, **columns):
            return end_cancelled(job)
        # Retry shards that failed for earlier jobs, including shards that get no job yet.
        encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).update(job=None)
    settle_encoding(encoding.pk)  # in another transaction, since this one has locked a job
    return True


def finish_shard(job: Job, shard: Shard, encoded_shard: EncodedShard, report: Report) -> None:
    """Store the encoded shard, end its job, and requeue the waiting jobs if it is the last one.

    Its bytes are transferred and synced before the transaction. Raises LeaseLost or Cancelled.
    """
    with _transfer_shard(encoded_shard, shard.encoding.key, shard.number, report) as store, transaction.atomic():
        encoding = Encoding.objects.select_for_update().get(pk=shard.encoding_id)
        finish(job, f"{format_count(encoded_shard.documents, 'document')} encoded in {encoded_shard.seconds:.1f} s.")
        store(shard)
        # The dispatcher reports the overall progress, so that each shard makes as few queries as possible.
        if not encoding.shards.filter(done_at=None).exists():
            requeue_waiting(encoding, "All shards are encoded.")


def store_single_shard(setting: EncodingSetting, encoded_shard: EncodedShard, report: Report) -> None:
    """Store the only shard of a small corpus, encoded by the job that needs it."""
    with _transfer_shard(encoded_shard, setting.key, 0, report) as store, transaction.atomic():
        shard = _get_or_create_encoding(setting).shards.get()
        if shard.done_at is None:
            store(shard)


def _get_or_create_encoding(setting: EncodingSetting) -> Encoding:
    """Return the locked row of the encoding, creating it with a row for every shard if necessary."""
    encoding, created = Encoding.objects.select_for_update().update_or_create(
        key=setting.key,
        defaults={"format": SHARD_FORMAT},  # part of the key; a row may be older than the column
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
def _transfer_shard(encoded: EncodedShard, key: str, number: int, report: Report) -> Iterator[Callable[[Shard], None]]:
    """Transfer the shard's bytes, and yield a function that stores the shard in the caller's transaction.

    Raises UnusableOutput.
    """
    manifest = embeddings.send_shard(encoded.folder, key, number, report)
    size = manifest.size if manifest else embeddings.checked_size(encoded.folder)
    columns = {"size": size, "manifest": manifest.sha256 if manifest else ""}
    with nullcontext() if manifest else embeddings.moved_folder(encoded.folder, embeddings.embeddings_root()) as folder:
        yield partial(_store_shard, encoded, folder, columns)
    if manifest is None:
        # Sync without holding the row: a shard that is lost in a power failure is encoded again.
        with suppress(FileNotFoundError):  # no job needed the shard, and it was swept
            sync(embeddings.embeddings_folder(key))


def _store_shard(encoded: EncodedShard, folder: Path | None, columns: Mapping[str, Any], shard: Shard) -> None:
    """Rename the shard's local folder, if there is one, and complete its row."""
    if folder is not None:
        embeddings.rename_into_place(folder, embeddings.shard_folder(shard.encoding.key, shard.number))
    Shard.objects.filter(pk=shard.pk).update(
        done_at=timezone.now(),
        documents=encoded.documents,
        seconds=encoded.seconds,
        hardware=encoded.hardware,
        **columns,
    )


# --- jobs of shards, and the jobs that wait for them


def settle_shard_waiters(job: Job) -> None:
    """Settle the jobs that wait for a shard, because its job may have ended without storing it."""
    unfinished_shards = Shard.objects.filter(job=job.pk).exclude(job__state=State.DONE)
    for encoding in unfinished_shards.values_list("encoding_id", flat=True):
        settle_encoding(encoding)


def settle_waiting_jobs() -> None:
    """Requeue jobs with complete shards, in case of a crash or lost wakeup, and cancel unneeded shards."""
    encodings = Encoding.objects.filter(waiting_jobs__in=_waiting_jobs()).distinct()
    for pk in encodings.values_list("pk", flat=True):
        settle_encoding(pk)
    cancel_unneeded_shards()


def cancel_unneeded_shards() -> None:
    """Cancel the shards for which no job waits."""
    active_jobs = Job.objects.filter(kind=Job.Kind.SHARD, cancel_requested=False).exclude(state__in=TERMINAL)
    for job in active_jobs.filter(shard__encoding__waiting_jobs=None):
        request_cancel(job)


def settle_encoding(encoding_id: int) -> None:
    """Requeue the jobs that wait for an encoding if all its shards exist, or end them if a shard failed.

    Otherwise, create jobs for missing shards and record the progress on the waiting jobs. They are also requeued if the
    shards have an outdated format.
    """
    with transaction.atomic():
        encoding = _lock(Encoding.objects.filter(pk=encoding_id))
        waiting_jobs = list(_waiting_jobs().filter(waits_for=encoding_id))
        if encoding is None or not waiting_jobs:
            return
        if encoding.format != SHARD_FORMAT:
            line = "The corpus is encoded again, because this version uses another format for shards."
            requeue_waiting(encoding, line)
            return
        is_missing = Q(done_at=None)
        counts = encoding.shards.aggregate(
            missing=Count("pk", filter=is_missing),
            failed=Count("pk", filter=is_missing & Q(job__state__in=_ENDED_BADLY)),
            queued=Count("pk", filter=Q(job__state=State.QUEUED)),
            under_way=Sum("job__progress", filter=is_missing & Q(job__lease_expires_at__isnull=False), default=0.0),
        )
        if counts["failed"]:
            _fail_waiting(waiting_jobs, encoding)
        elif not counts["missing"]:
            requeue_waiting(encoding, "All shards are encoded.")
        else:
            created_count = make_shard_jobs(encoding, waiting_jobs[0], int(_MAX_WAITING - counts["queued"]))
            for _ in range(min(created_count, _MAX_WAKEUPS)):
                wake_worker(waiting_jobs[0].queue)
            # The waiting jobs show the progress of all shards. Locked jobs are skipped: a withdrawal may hold them and
            # wait for rows that are locked here.
            progress = encoding.shards_expected - counts["missing"] + counts["under_way"]
            updatable_jobs = _waiting_jobs().filter(waits_for=encoding).select_for_update(skip_locked=True, no_key=True)
            Job.objects.filter(pk__in=list(updatable_jobs.values_list("pk", flat=True))).update(
                progress=min(progress / encoding.shards_expected, 1.0)
            )


def _waiting_jobs() -> QuerySet[Job]:
    """Return the jobs that wait for an encoding."""
    return Job.objects.filter(state=State.RETRIEVING, lease_expires_at=None, waits_for__isnull=False)


def _lock(encodings: QuerySet[Encoding]) -> Encoding | None:
    return encodings.select_for_update(of=("self",)).first()


def make_shard_jobs(encoding: Encoding, template: Job, limit: int) -> int:
    """Create up to `limit` jobs for missing shards without an active job; return their number.

    None is created if `limit` is less than half of the maximum number of queued shards. The jobs have the queue of the
    waiting job `template`, and may run without a sandbox if it may.
    """
    if limit < _MAX_WAITING // 2:
        return 0
    available_shards = encoding.shards.filter(Q(job=None) | Q(job__state__in=TERMINAL), done_at=None).order_by("number")
    shards = list(available_shards[:limit])
    if not shards:
        return 0
    # Retrievers may read only some columns of submissions.
    team_id = Submission.objects.filter(pk=template.submission_id).values_list("team", flat=True).first()
    turn = next_turn(template.queue, team_id)
    permission = {UNPROTECTED: True} if template.payload.get(UNPROTECTED) is True else {}
    jobs = Job.objects.bulk_create(
        Job(
            kind=Job.Kind.SHARD,
            queue=template.queue,
            turn=turn + count // SHARDS_A_TURN,
            dataset=template.dataset,
            state=State.QUEUED,
            validated=True,
            payload={**permission, "shard": shard.number, "shards": encoding.shards_expected},
        )
        for count, shard in enumerate(shards)
    )
    for shard, job in zip(shards, jobs, strict=True):
        shard.job = job
    Shard.objects.bulk_update(shards, ["job"])
    return len(shards)


def requeue_waiting(encoding: Encoding, line: str) -> None:
    """Requeue all jobs that wait for the encoding."""
    for job in _waiting_jobs().filter(waits_for=encoding):
        if advance(job.pk, State.QUEUED, line=line, not_before=None):
            wake_worker(job.queue)


def _fail_waiting(waiting_jobs: list[Job], encoding: Encoding) -> None:
    """End the waiting jobs with the state and reason of the first failed shard."""
    failed_shards = encoding.shards.filter(done_at=None, job__state__in=_ENDED_BADLY).select_related("job")
    shard = failed_shards[0]
    cause = shard.job
    assert cause is not None
    for job in waiting_jobs:
        line = f"Shard {shard.number + 1} of the corpus could not be encoded."
        outcome = {"report": cause.report, "error_code": cause.error_code, "fault": cause.fault}
        advance(job.pk, State(cause.state), line=line, **outcome)
    logger.warning("Shard %s failed with %s", shard.pk, cause.error_code)
