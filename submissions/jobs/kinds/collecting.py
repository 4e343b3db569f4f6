"""Runs of datasets that collect: checked and kept at once, scored when the first judgements come."""

from __future__ import annotations

from django.db import transaction

from evaluation.core.errors import InvalidRun
from evaluation.runs.score import check_run
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.qrels import scoring_target
from leaderboard.models import Entry
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.records import forget_runs, publish_waiting
from submissions.intake.run_records import keep_waiting_run, waiting_payload
from submissions.jobs.kinds.score import forget_upload, score_job
from submissions.jobs.registry import does
from submissions.models import Job, State, Submission
from submissions.queue.lease import Lease, advance_claimed
from submissions.queue.lifecycle import write_log


@does(Job.Kind.SCORE)
def score_or_keep(job: Job, lease: Lease) -> None:
    """Score an uploaded run; where there are no judgements yet, check and keep it. Raises as these do."""
    if job.dataset.awaits_judgements:
        check_and_keep(job, lease)
    else:
        score_job(job, lease)


def check_and_keep(job: Job, lease: Lease) -> None:
    """Validate an uploaded run of a dataset without judgements and store it; its job then waits for these.

    Raises evaluation.core.errors.InvalidRun for a file that does not pass, LeaseLost when the claim is gone.
    """
    version, submission = job.dataset.current_version, job.submission
    if version is None or submission is None:
        raise RuntimeError(f"job {job.pk}: nothing to keep a run for")
    upload = path_of(Area.UPLOADS, job.upload_sha256)
    report = check_run(upload, scoring_target(version), progress=lease.report)
    if not report.valid:
        raise InvalidRun(report)
    stored = store_run(upload)
    statistics = report.statistics
    payload = {**job.payload, **waiting_payload(stored, statistics)}
    with transaction.atomic():
        lock_boards([job.dataset_id])
        submission = Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        waits = {"validated": True, "lease_expires_at": None, "attempts": 0, "progress": 0.0, "stage": ""}
        kept = {"payload": payload, "report": report.as_dict(), "progress_note": ""}
        advance_claimed(job, State.QUEUED, **waits, **kept)
        keep_waiting_run(job, submission, stored, statistics, version)
        write_log(job.pk, f"Validated: {statistics.lines:,} lines. It waits for the first judgements.")
    forget_upload(job)


def take_back_waiting(submission: Submission) -> None:
    """Drop the submission's runs that wait for judgements: no pool is drawn from them, and no page names them."""
    _waiting_changed(submission)
    forget_runs(submission.pk)


def show_waiting(submission: Submission, public: bool) -> None:
    """Let everyone know of the submission's runs while they wait, or its team alone."""
    publish_waiting(submission.pk, public=public)
    _waiting_changed(submission)


def _waiting_changed(submission: Submission) -> None:
    for job in submission.jobs.select_related("dataset"):
        if job.dataset.awaits_judgements and job.validated:
            board_changed(job.dataset, Kind.VISIBILITY, touched=Entry.objects.none())
