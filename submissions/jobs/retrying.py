"""Tries again what was lost through our fault: without another upload, and counted once."""

from __future__ import annotations

from django.db import transaction

from evaluation.checkpoints.description import FILE_NAME
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import User
from submissions.checkpoints.service import folder_of
from submissions.intake.actors import actor_label, record_curator_action
from submissions.intake.rounds import readmit
from submissions.jobs.kinds.handover import KEY, MISSED, RetrievalResult
from submissions.models import Job, Submission
from submissions.queue.lifecycle import revive, write_log
from submissions.queue.queue import waiting_state, wake_worker
from submissions.quotas.ledger import charge_again, lock_quota

#: In a job's payload: how often its people had it tried again.
RETRIES = "retries"


def retriable_jobs(submission: Submission) -> list[Job]:
    """The submission's jobs that may be tried again: lost through our fault, with what they work on still here."""
    lost = submission.jobs.lost_by_us().select_related("submission__checkpoint__team")
    return [job for job in lost if _has_its_file(job)]


def retry(submission: Submission, by: User) -> int:
    """Queue what was lost again, and count it again where its unit was given back. Returns how many jobs.

    Raises Refused where no quota, or no place in the round, is left for it.
    """
    with transaction.atomic():
        lock_quota(submission.submitter, submission.team)
        Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        jobs = retriable_jobs(submission)
        if not jobs:
            return 0
        readmit(submission)
        charge_again(submission, {job.dataset_id for job in jobs})
        record_curator_action("tried again", submission, by, before={}, after={"jobs": len(jobs)})
        for job in jobs:
            _queue_again(job, f"Tried again: asked for by {actor_label(submission, by)}.")
        Submission.objects.filter(pk=submission.pk).update(noticed_at=None)
    return len(jobs)


def _queue_again(job: Job, line: str) -> None:
    payload, queue = {**job.payload, RETRIES: job.payload.get(RETRIES, 0) + 1}, job.queue
    found = RetrievalResult.from_payload(payload)
    if found is not None and payload.pop(MISSED, 0):  # what was retrieved is lost
        queue = found.queue
        del payload[KEY]
    if revive(job.pk, waiting_state(job), payload=payload, queue=queue):
        write_log(job.pk, line)
        wake_worker(queue)


def _has_its_file(job: Job) -> bool:
    if job.kind == Job.Kind.SCORE:
        validated = job.validated
        path = run_path(job.payload["run_sha256"]) if validated else path_of(Area.UPLOADS, job.upload_sha256)
        return path.exists()
    checkpoint = job.submission.checkpoint if job.submission else None
    return checkpoint is None or (folder_of(checkpoint) / FILE_NAME).exists()
