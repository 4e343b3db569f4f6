"""Main loop of workers: claim jobs, run them, and settle them in all outcomes."""

import logging
import math
import secrets
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Q

from evaluation.core.problems import EndlessPattern, InvalidRun, ModelFailure
from evaluation.verification.comparing import ScoresDiffer
from leaderboard.core.audit import acting
from leaderboard.core.storage import shared
from leaderboard.core.storage.disk import is_disk_full
from leaderboard.datasets.derived_files import lacks_excerpts, prepare_files
from leaderboard.datasets.qrels import JudgementsNotCopied
from submissions.core.errors import INVALID_RUN
from submissions.intake.run_records import shown_report
from submissions.jobs.checkpoints.embeddings import trim_cache
from submissions.jobs.checkpoints.encodings import settle_shard_waiters
from submissions.jobs.checkpoints.own_engines import retrieve_job, sweep_indexes
from submissions.jobs.checkpoints.run_model import model_job, sample_model_job
from submissions.jobs.checkpoints.running import WARM_ENCODER, reject_model, shard_job, sweep_work
from submissions.jobs.kinds import datasets
from submissions.jobs.kinds.datasets import rescore_job
from submissions.jobs.kinds.downloads import download_job
from submissions.jobs.kinds.renewal import renew_job
from submissions.jobs.kinds.score import delete_upload, score_job
from submissions.models import Job, State
from submissions.queue import workers
from submissions.queue.lease import Lease, WorkEnded, hold_lease, keep_leases
from submissions.queue.queue import ATTEMPTS, BACKOFF, advance, end_cancelled, release, requeue, write_log
from submissions.sandbox import SandboxUnavailable

logger = logging.getLogger(__name__)

#: Kinds of jobs that score runs.
_SCORING = (Job.Kind.SCORE, Job.Kind.RETRIEVE, Job.Kind.BASELINE, Job.Kind.MODEL)
#: Seconds for which a worker tries to reach the database to requeue its job. After that, `reap` finds the job.
_PATIENCE = 3600.0
#: Maximum number of claims of a job if attempts do not count because of the database or the worker. This limit ends
#: jobs that crash the database.
_CLAIMS = 30
#: Maximum number of times that the pause of a process with failing shards is doubled.
_DOUBLINGS = 3

#: Seconds between two sweeps of the disk while jobs are waiting.
_DISK_PAUSE = 60.0

#: SQLSTATE codes with which PostgreSQL ends a session: shutdown, crash, startup, and idle transactions.
_SESSION_END_CODES = frozenset({"57P01", "57P02", "57P03", "25P03"})

#: Function for each kind of job, called while the lease is held.
WORK: dict[Job.Kind, Callable[[Job, Lease], None]] = {
    Job.Kind.SCORE: score_job,
    Job.Kind.RETRIEVE: retrieve_job,
    Job.Kind.BASELINE: retrieve_job,
    Job.Kind.MODEL: model_job,
    Job.Kind.SAMPLE_MODEL: sample_model_job,
    Job.Kind.SHARD: shard_job,
    Job.Kind.RESCORE: rescore_job,
    Job.Kind.CERTAINTY: datasets.certainty_job,
    Job.Kind.STATISTICS: datasets.statistics_job,
    Job.Kind.POOL: datasets.pool_job,
    Job.Kind.MERGE: datasets.merge_job,
    Job.Kind.PROTECT: datasets.protect_job,
    Job.Kind.REVEAL: datasets.reveal_job,
    Job.Kind.DOWNLOAD: download_job,
    Job.Kind.RENEW: renew_job,
}


class _Failures:
    """Consecutive failures of shards in this process, and the time until which it claims no model jobs."""

    consecutive_failures = 0
    paused_until = -math.inf

    @classmethod
    def add(cls) -> None:
        """Count a failure and pause, since a broken worker would soon use up the attempts of all shards."""
        pause = BACKOFF[-1].total_seconds() * 2 ** min(cls.consecutive_failures, _DOUBLINGS)
        cls.consecutive_failures, cls.paused_until = cls.consecutive_failures + 1, time.monotonic() + pause


def drain_queue(queue: str, worker: str) -> int:
    """Run the waiting jobs of a queue that this worker can run, in order, while it accepts work; return their number.

    Caches on this host's disk are trimmed meanwhile and at the end.
    """
    count, swept_at = 0, time.monotonic()
    with keep_leases(), closing(WARM_ENCODER):
        while not workers.refusal():
            job_filter = workers.own_capability([queue]).job_filter() if workers.runs_models([queue]) else Q()
            if time.monotonic() < _Failures.paused_until:
                job_filter &= ~Q(kind__in=workers.KINDS)
            job = WARM_ENCODER.claim_next(queue, worker, job_filter)
            if job is None:
                break
            if job.kind != Job.Kind.SHARD:
                WARM_ENCODER.close()
            run_job(job)
            count += 1
            if time.monotonic() - swept_at > _DISK_PAUSE:  # a sweep costs more than many shards
                _trim_disk(queue)
                swept_at = time.monotonic()
    _trim_disk(queue)  # also without a job: the worker may have been woken for this
    return count


def _trim_disk(queue: str) -> None:
    """Trim caches and copies on this host's disk, logging failures. Scorers have none."""
    if queue == Job.Queue.SCORE:
        return
    trim_cache()
    steps: list[Callable[[], object]] = [sweep_work, sweep_indexes, shared.remove_partial]
    if settings.STORE_COPIES_BYTES:
        steps.append(partial(shared.trim_copies, settings.STORE_COPIES_BYTES))
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("Could not sweep this host's disk")


def run_job(job: Job) -> None:
    """Run a claimed job and settle it: done, rejected (the file's fault), failed (our fault), or requeued."""
    is_done = False
    try:
        is_done = _run_and_settle(job) and job.state == State.DONE
    except DatabaseError as error:
        if not is_connection_lost(error):
            raise
        requeue_after_loss(job)
    finally:
        if job.kind == Job.Kind.SHARD and not is_done:
            settle_shard_waiters(job)
    if not is_done:
        release(job)
    prepare_query_pages(job)


def _run_and_settle(job: Job) -> bool:
    """Run the job, and settle it if the work raises an exception. Return whether it returned normally.

    Raises the error of a lost database connection, and SystemExit or KeyboardInterrupt after requeuing the job.
    """
    # The audit log names the submitter, or else the site, as the author of the job's changes.
    submission = job.submission
    person = submission.submitter if submission is not None else None
    reason = f"submission {submission.pk}" if submission else f"{job.get_kind_display()} (job {job.pk})"
    try:
        with hold_lease(job) as lease:
            if job.attempts > 1:
                write_log(job.pk, f"Attempt {job.attempts} of {ATTEMPTS}.")
            with acting(person, reason):
                WORK[Job.Kind(job.kind)](job, lease)
        if job.kind in workers.KINDS:
            _Failures.consecutive_failures = 0
        return True
    except WorkEnded as end:
        end.settle(job)
    except JudgementsNotCopied:
        # The dispatcher copies open judgments within seconds if it is alive, so this is not a failure.
        line = "The judgments are not available here yet; the job waits for them."
        _put_back(job, line, timedelta(seconds=2 * settings.QUEUE_TIMES.dispatch))
    except InvalidRun as error:
        line = "The file did not pass validation and was not stored."
        report = shown_report(job, error.report).as_dict()
        if advance(job.pk, State.REJECTED, fence=job.fence, line=line, report=report, error_code=INVALID_RUN):
            delete_upload(job)
    except ModelFailure as failure:
        reject_model(job, failure)
    except (SystemExit, KeyboardInterrupt):
        requeue(job, counts_attempt=False)
        raise
    except Exception as error:
        if is_connection_lost(error):
            raise
        if job.kind == Job.Kind.SHARD:
            _Failures.add()
        if shared.is_unavailable(error):
            line = "The site's storage cannot be reached, which is a fault on our side. The job waits for it."
            _put_back(job, line, BACKOFF[-1], error)
        elif (line := _worker_fault(job, error)) and job.fence < _CLAIMS:
            _put_back(
                job,
                f"{line}, which is a fault on our side. The job waits for another worker.",
                BACKOFF[-1],
                error,
            )
        else:
            _fail(job, error)
    return False


def _worker_fault(job: Job, error: Exception) -> str:
    """Return why this worker caused the failure, so that the attempt does not count; "" if the job may be the cause.

    The worker is at fault if it has no working sandbox or no disk space, or if several shards in a row failed on it
    while other workers are alive. Its capability is checked again. Space that the job itself filled is free by now.
    """
    if isinstance(error, SandboxUnavailable):
        workers.reset_own_capability()
        if job.kind == Job.Kind.SHARD or not workers.own_capability([job.queue]).works:
            return "This worker has no working sandbox or no free disk space"
    elif job.kind == Job.Kind.SHARD and _Failures.consecutive_failures > 1 and workers.workers_alive(job.queue) > 1:
        return "Several parts of a corpus failed on this worker"
    return ""


def _put_back(job: Job, line: str, delay: timedelta, error: Exception | None = None) -> None:
    """Requeue the job after a delay without counting the attempt."""
    if requeue(job, counts_attempt=False, delay=delay, line=line if line not in job.log else ""):
        logger.log(logging.ERROR if error else logging.INFO, "Job %s: %s", job.pk, line, exc_info=error)


def _fail(job: Job, error: Exception) -> None:
    """Log the failure under an id, and retry the job if attempts remain; otherwise, end it as failed.

    Wrong scores are not retried: they would be wrong again, or right by chance. Patterns in a dataset's answers that
    exceed the time limit are not retried either, since only its curator can correct them.
    """
    fault = secrets.token_hex(4)
    logger.error("Fault %s in job %s (%s)", fault, job.pk, job.kind, exc_info=error)
    is_full = is_disk_full(error)
    description = ("The site's disk is full, which is a fault" if is_full else "A fault") + f" on our side ({fault})"
    if isinstance(error, ScoresDiffer):
        code, line = "scores_differ", f"The scores could not be verified, a fault on our side ({fault})."
    elif isinstance(error, EndlessPattern):
        code = "endless_pattern"
        line = f"A pattern among {job.dataset}’s answers is too slow. Its curators must correct it ({fault})."
    elif job.attempts < ATTEMPTS:
        requeue(job, counts_attempt=True, line=f"{description}. The job will be retried.")
        return
    else:
        code, line = "disk_full" if is_full else "fault", f"{description} occurred three times."
    columns: dict[str, Any] = {"line": f"{line} We are sorry.", "error_code": code, "fault": fault}
    if not advance(job.pk, State.FAILED, fence=job.fence, unless_cancelled=True, **columns):
        end_cancelled(job, "Canceled.")


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the error means that this process lost its connection to the database.

    SQLite has no connection to lose, and the connection remains usable after the server rejects a query. If the server
    reports the end of the session, a new connection may exist already.
    """
    if not isinstance(error, DatabaseError):
        return False
    return getattr(error.__cause__, "sqlstate", None) in _SESSION_END_CODES or not connection.is_usable()


def requeue_after_loss(job: Job) -> None:
    """Requeue a job after losing the database connection, as soon as the database is available.

    The attempt does not count, since the job is not at fault. Committed results remain, and then the job is not
    requeued. Raises the error if the database is unavailable for an hour or the worker stops.
    """
    logger.warning("Job %s: lost the connection to the database; the job is requeued once it is available.", job.pk)
    deadline = time.monotonic() + _PATIENCE
    while True:
        connection.close()
        try:
            requeue(job, counts_attempt=job.fence >= _CLAIMS)
            return
        except (OperationalError, InterfaceError):
            if time.monotonic() > deadline or workers.STOPPING.wait(settings.QUEUE_TIMES.claim_interval):
                raise


def prepare_query_pages(job: Job) -> None:
    """Create the excerpts for the query pages of an open dataset when it has its first result.

    Runs after the result is published, without the job's lease; failures are only logged.
    """
    try:
        is_wanted = job.kind in _SCORING and lacks_excerpts(job.dataset)
        if is_wanted and Job.objects.filter(pk=job.pk, state=State.DONE).exists():
            prepare_files(job.dataset)
    except Exception:
        logger.exception("Job %s: could not create derived files", job.pk)
