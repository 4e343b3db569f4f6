"""Work through a queue: claim, do, and settle however it ends."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from importlib import import_module
from pkgutil import iter_modules

from django.conf import settings
from django.db import DatabaseError

from evaluation.core.errors import InvalidRun, ModelFailure
from evaluation.verification import ScoresDiffer
from leaderboard.core.audit import acting
from leaderboard.core.storage.disk import is_disk_full
from leaderboard.datasets.qrels import NotLaidOut
from leaderboard.models import User
from submissions.core.errors import INVALID_RUN
from submissions.jobs import kinds, models
from submissions.jobs.database_errors import give_back, lost_database
from submissions.jobs.kinds.derived_files import prepare_for_pages
from submissions.jobs.kinds.score import forget_upload
from submissions.jobs.models.embedding_cache import tidy_up
from submissions.jobs.models.encodings import settle_shard
from submissions.jobs.models.running import reject_model
from submissions.jobs.registry import WORK
from submissions.models import Job, State
from submissions.queue.capability import forget_own_capability, own_capability, runs_models
from submissions.queue.lease import Lease, WorkEnded, holding
from submissions.queue.lifecycle import advance, write_log
from submissions.queue.process import refusal
from submissions.queue.queue import ATTEMPTS, claim, end_cancelled, let_go, put_back
from submissions.sandbox import SandboxUnavailable

logger = logging.getLogger(__name__)

for _package in (kinds, models):
    for _module in iter_modules(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)  # each registers what it does


def work_through(queue: str, worker: str) -> int:
    """Do the waiting jobs of a queue that this worker can do, oldest first, until there are none. Returns how many."""
    done = 0
    while (job := _next(queue, worker)) is not None:
        do(job)
        done += 1
        _tidy_up_after(queue)
    if not done:  # rung for this, perhaps
        _tidy_up_after(queue)
    return done


def _tidy_up_after(queue: str) -> None:
    """See to the embeddings where the worker runs models, and so has what their storage takes."""
    if queue != Job.Queue.SCORE:
        tidy_up()


def _next(queue: str, worker: str) -> Job | None:
    if refusal():
        return None
    return claim([queue], worker, own_capability().permitted() if runs_models([queue]) else None)


def do(job: Job) -> None:
    """Do one claimed job and settle it: done, rejected (their file), failed (our fault), or back in the queue."""
    try:
        _settled(job)
    except DatabaseError as error:
        if not lost_database(error):
            raise
        give_back(job)
    finally:
        if job.kind == Job.Kind.SHARD:
            settle_shard(job)
    let_go(job)
    prepare_for_pages(job)


def _settled(job: Job) -> None:
    try:
        with holding(job) as lease:
            _attempt(job, lease)
    except WorkEnded as ended:
        ended.settle(job)
    except NotLaidOut:
        _wait_for_judgements(job)
    except InvalidRun as error:
        _reject(job, error)
    except ModelFailure as failure:
        reject_model(job, failure)
    except (SystemExit, KeyboardInterrupt):
        put_back(job, counted=False)
        raise
    except Exception as error:
        if lost_database(error):
            raise
        if isinstance(error, SandboxUnavailable):
            forget_own_capability()
        _fail(job, error)


def _wait_for_judgements(job: Job) -> None:
    """Open judgements are laid out by the dispatcher, within seconds where one is alive: no fault of anybody's."""
    line = "The judgements are not laid out here yet: the job waits for them."
    if put_back(job, counted=False, delay=timedelta(seconds=2 * settings.DISPATCH_SECONDS)):
        logger.info("job %s: open judgements are not laid out yet", job.pk)
        if line not in job.log:
            write_log(job.pk, line)


def _attempt(job: Job, lease: Lease) -> None:
    if job.attempts > 1:
        write_log(job.pk, f"Attempt {job.attempts} of {ATTEMPTS}.")
    with acting(*_on_whose_behalf(job)):
        WORK[Job.Kind(job.kind)](job, lease)


def _on_whose_behalf(job: Job) -> tuple[User | None, str]:
    """Who is named in the record of what the job changes, and as what: the submitter, else the site."""
    if job.submission is None:
        return None, f"{job.get_kind_display()} (job {job.pk})"
    # By key and name: who retrieves may read no more of people (leaderboard.core.database_grants).
    submitter = User.objects.only("pk", "name").get(pk=job.submission.submitter_id)
    return submitter, f"submission {job.submission.pk}"


def _reject(job: Job, error: InvalidRun) -> None:
    if advance(
        job.pk, State.REJECTED, fence=job.fence, report=error.report.as_dict(), error_code=INVALID_RUN
    ):
        write_log(job.pk, "The file did not pass validation and was not kept.")
        forget_upload(job)


def _fail(job: Job, error: Exception) -> None:
    """A fault of ours: logged whole under an id; tried again while attempts are left.

    Not so where scores are wrong: they would be so again, or be right by chance.
    """
    fault = secrets.token_hex(4)
    logger.error("fault %s in job %s (%s)", fault, job.pk, job.kind, exc_info=error)
    if isinstance(error, ScoresDiffer):
        _end_failed(
            job, "scores_differ", fault, f"The scores could not be confirmed: a fault of ours ({fault})."
        )
        return
    full = is_disk_full(error)
    what = "The site's disk is full: a fault of ours" if full else "A fault of ours"
    if job.attempts < ATTEMPTS:
        if put_back(job, counted=True):
            write_log(job.pk, f"{what} ({fault}); the job is tried again.")
        return
    _end_failed(job, "disk_full" if full else "fault", fault, f"{what} ({fault}), three times.")


def _end_failed(job: Job, error_code: str, fault: str, line: str) -> None:
    if advance(
        job.pk, State.FAILED, fence=job.fence, unless_cancelled=True, error_code=error_code, fault=fault
    ):
        write_log(job.pk, f"{line} We are sorry.")
    elif end_cancelled(job):
        write_log(job.pk, "Cancelled.")
