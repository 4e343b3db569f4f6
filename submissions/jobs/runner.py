"""Work through a queue: claim, do, and settle however it ends."""

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
from submissions.jobs.checkpoints.embeddings import trim_cache
from submissions.jobs.checkpoints.encodings import settle_shard_waiters
from submissions.jobs.checkpoints.own_engines import retrieve_job, sweep_indexes
from submissions.jobs.checkpoints.run_model import model_job, sample_model_job
from submissions.jobs.checkpoints.running import WARM, reject_model, shard_job, sweep_work
from submissions.jobs.kinds import datasets
from submissions.jobs.kinds.datasets import rescore_job
from submissions.jobs.kinds.score import delete_upload, score_job
from submissions.models import Job, State
from submissions.queue import workers
from submissions.queue.lease import Lease, WorkEnded, hold_lease, keep_leases
from submissions.queue.queue import ATTEMPTS, BACKOFF, advance, end_cancelled, release, requeue, write_log
from submissions.sandbox import SandboxUnavailable

logger = logging.getLogger(__name__)

#: The kinds of jobs that score runs.
_SCORING = (Job.Kind.SCORE, Job.Kind.RETRIEVE, Job.Kind.BASELINE, Job.Kind.MODEL)
#: How long a worker waits for the database to give its job back, in seconds; then the reaper finds the job.
_PATIENCE = 3600.0
#: How often one job may be given back in this way, or because of its worker: one that takes the database down with it
#: ends all the same.
_CLAIMS = 30
#: How often the pause of a process in which shards keep failing is doubled.
_DOUBLINGS = 3

#: Seconds between two looks at the disk by a worker that has much to do.
_DISK_PAUSE = 60.0

#: What PostgreSQL says when it ends a session: shut down, crashed, not up yet, a transaction that stood still.
_ENDED = frozenset({"57P01", "57P02", "57P03", "25P03"})

#: The function that does the work of each kind of job under a lease.
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
}


class _Failures:
    """Shards that failed in this process in a row through a fault of ours, and until when it takes no models."""

    in_a_row = 0
    paused_until = -math.inf

    @classmethod
    def add(cls) -> None:
        """Count one: what ails this worker would take an attempt of each shard, faster than others encode them."""
        pause = BACKOFF[-1].total_seconds() * 2 ** min(cls.in_a_row, _DOUBLINGS)
        cls.in_a_row, cls.paused_until = cls.in_a_row + 1, time.monotonic() + pause


def drain_queue(queue: str, worker: str) -> int:
    """Do the waiting jobs of a queue that this worker can do, oldest first, until there are none. Returns how many."""
    done, swept_at = 0, time.monotonic()
    with keep_leases(), closing(WARM):
        while not workers.refusal():
            permitted = workers.own_capability([queue]).permitted() if workers.runs_models([queue]) else Q()
            if time.monotonic() < _Failures.paused_until:
                permitted &= ~Q(kind__in=workers.KINDS)
            job = WARM.claim_next(queue, worker, permitted)
            if job is None:
                break
            if job.kind != Job.Kind.SHARD:
                WARM.close()
            run_job(job)
            done += 1
            if time.monotonic() - swept_at > _DISK_PAUSE:  # it costs more than many a shard
                _trim_disk(queue)
                swept_at = time.monotonic()
    _trim_disk(queue)  # without a job, too: perhaps it was woken for this
    return done


def _trim_disk(queue: str) -> None:
    """Keep what a worker that runs models brought to its host, or left there, within its bounds. Logs what fails."""
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
            logger.exception("this host's disk could not be swept")


def run_job(job: Job) -> None:
    """Do one claimed job and settle it: done, rejected (their file), failed (our fault), or back in the queue."""
    done = False
    try:
        done = _settle_outcome(job) and job.state == State.DONE
    except DatabaseError as error:
        if not is_connection_lost(error):
            raise
        requeue_after_loss(job)
    finally:
        if job.kind == Job.Kind.SHARD and not done:
            settle_shard_waiters(job)
    if not done:
        release(job)
    prepare_query_pages(job)


def _settle_outcome(job: Job) -> bool:
    """Do the job, and settle it if its work ends otherwise than by returning. Return whether it returned."""
    # The submitter is named in the record of what the job changes, else the site.
    submission = job.submission
    person = submission.submitter if submission is not None else None
    why = f"submission {submission.pk}" if submission else f"{job.get_kind_display()} (job {job.pk})"
    try:
        with hold_lease(job) as lease:
            if job.attempts > 1:
                write_log(job.pk, f"Attempt {job.attempts} of {ATTEMPTS}.")
            with acting(person, why):
                WORK[Job.Kind(job.kind)](job, lease)
        if job.kind in workers.KINDS:
            _Failures.in_a_row = 0
        return True
    except WorkEnded as ended:
        ended.settle(job)
    except JudgementsNotCopied:
        # The dispatcher copies open judgments within seconds if it is alive: this is not a fault.
        line = "The judgements are not laid out here yet: the job waits for them."
        _put_back(job, line, timedelta(seconds=2 * settings.QUEUE_TIMES.dispatch))
    except InvalidRun as error:
        line = "The file did not pass validation and was not kept."
        report = error.report.as_dict()
        if advance(job.pk, State.REJECTED, fence=job.fence, line=line, report=report, error_code=INVALID_RUN):
            delete_upload(job)
    except ModelFailure as failure:
        reject_model(job, failure)
    except (SystemExit, KeyboardInterrupt):
        requeue(job, counted=False)
        raise
    except Exception as error:
        if is_connection_lost(error):
            raise
        if job.kind == Job.Kind.SHARD:
            _Failures.add()
        if shared.is_away(error):
            line = "The site's storage cannot be reached: a fault of ours. The job waits for it."
            _put_back(job, line, BACKOFF[-1], error)
        elif (line := _what_ails_worker(job, error)) and job.fence < _CLAIMS:
            _put_back(
                job, f"{line}: a fault of ours. The job waits for one that can do it.", BACKOFF[-1], error
            )
        else:
            _fail(job, error)
    return False


def _what_ails_worker(job: Job, error: Exception) -> str:
    """Return why this worker caused the failure, so that the attempt does not count. Empty if the job may be the cause.

    A disk that the job filled itself is free again by now, so it does not count as the worker's fault.
    """
    if isinstance(error, SandboxUnavailable):
        workers.reset_own_capability()
        if job.kind == Job.Kind.SHARD or not workers.own_capability([job.queue]).works:
            return "This worker has no working sandbox, or no room on its disk"
    elif job.kind == Job.Kind.SHARD and _Failures.in_a_row > 1 and workers.workers_alive(job.queue) > 1:
        return "One part of a corpus after the other fails on this worker"
    return ""


def _put_back(job: Job, line: str, delay: timedelta, error: Exception | None = None) -> None:
    """Put the job back for a while, its attempt not counted: as things are, none can do better."""
    if requeue(job, counted=False, delay=delay, line=line if line not in job.log else ""):
        logger.log(logging.ERROR if error else logging.INFO, "job %s: %s", job.pk, line, exc_info=error)


def _fail(job: Job, error: Exception) -> None:
    """Log a fault of ours under an id, and try the job again while attempts are left.

    Wrong scores are not tried again: they would be wrong again, or be right by chance. Nor is a pattern among the
    dataset's answers that takes too long, which only its curator can correct.
    """
    fault = secrets.token_hex(4)
    logger.error("fault %s in job %s (%s)", fault, job.pk, job.kind, exc_info=error)
    full = is_disk_full(error)
    what = ("The site's disk is full: a" if full else "A") + f" fault of ours ({fault})"
    if isinstance(error, ScoresDiffer):
        code, line = "scores_differ", f"The scores could not be confirmed: a fault of ours ({fault})."
    elif isinstance(error, EndlessPattern):
        code = "endless_pattern"
        line = (
            f"A pattern among {job.dataset}’s answers takes too long: its curators must correct it ({fault})."
        )
    elif job.attempts < ATTEMPTS:
        requeue(job, counted=True, line=f"{what}; the job is tried again.")
        return
    else:
        code, line = "disk_full" if full else "fault", f"{what}, three times."
    columns: dict[str, Any] = {"line": f"{line} We are sorry.", "error_code": code, "fault": fault}
    if not advance(job.pk, State.FAILED, fence=job.fence, unless_cancelled=True, **columns):
        end_cancelled(job, "Cancelled.")


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the error is that this process has lost its connection to the database.

    Of SQLite it has none to lose; a question that the server refused leaves the connection as it was. Where the server
    says that it ended the session, a new connection may be there already.
    """
    if not isinstance(error, DatabaseError):
        return False
    return getattr(error.__cause__, "sqlstate", None) in _ENDED or not connection.is_usable()


def requeue_after_loss(job: Job) -> None:
    """Put a job that the loss of the database has broken off back into the queue, as soon as there is one.

    The attempt is not counted: it is no fault of the job. What had been committed stands, and the job is not put back.
    """
    logger.warning(
        "job %s: the connection to the database was lost; the job is requeued once there is one", job.pk
    )
    deadline = time.monotonic() + _PATIENCE
    while True:
        connection.close()
        try:
            requeue(job, counted=job.fence >= _CLAIMS)
            return
        except (OperationalError, InterfaceError):
            if time.monotonic() > deadline or workers.STOPPING.wait(settings.QUEUE_TIMES.look):
                raise


def prepare_query_pages(job: Job) -> None:
    """Make the excerpts that the query pages of an open dataset show of its documents, with its first result.

    After the result is out, and without the job's lease: nothing of the result depends on it, and a fault is logged.
    """
    try:
        is_wanted = job.kind in _SCORING and lacks_excerpts(job.dataset)
        if is_wanted and Job.objects.filter(pk=job.pk, state=State.DONE).exists():
            prepare_files(job.dataset)
    except Exception:
        logger.exception("job %s: derived files were not made", job.pk)
