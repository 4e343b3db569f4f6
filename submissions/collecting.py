"""Runs of datasets that collect: checked and kept at once, scored when the first judgements come."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from evaluation.errors import InvalidRun
from evaluation.problems import RunStatistics
from evaluation.scoring import check_run
from leaderboard.board_versions import Kind, board_changed, lock_boards
from leaderboard.judgements import scoring_target
from leaderboard.models import DatasetVersion, Run
from leaderboard.results import forget_runs, publish_waiting
from leaderboard.runs import StoredRun, store_run
from leaderboard.store import Area, path_of
from submissions.lease import Cancelled, Lease, LeaseLost
from submissions.lifecycle import advance, write_log
from submissions.models import Job, State, Submission
from submissions.scoring import forget_upload, keep_run, score_job


def score_or_keep(job: Job, lease: Lease) -> None:
    """Score an uploaded run; where there are no judgements yet, check and keep it. Raises as these do."""
    if job.dataset.awaits_judgements:
        check_and_keep(job, lease)
    else:
        score_job(job, lease)


def check_and_keep(job: Job, lease: Lease) -> None:
    """Validate an uploaded run of a dataset without judgements and store it; its job then waits for these.

    Raises evaluation.errors.InvalidRun for a file that does not pass, LeaseLost when the claim is gone.
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
        if not advance(job.pk, State.QUEUED, fence=job.fence, unless_cancelled=True, **waits, **kept):
            stopped = Job.objects.filter(pk=job.pk, fence=job.fence, cancel_requested=True).exists()
            raise Cancelled if stopped else LeaseLost
        keep_waiting_run(job, submission, stored, statistics, version)
        write_log(job.pk, f"Validated: {statistics.lines:,} lines. It waits for the first judgements.")
    forget_upload(job)


def waiting_payload(stored: StoredRun, statistics: RunStatistics) -> dict[str, Any]:
    """What the job of a validated run knows of it."""
    tag = statistics.tags[0] if statistics.tags else ""
    return {"run_sha256": stored.sha256, "size": stored.size, "tag": tag, "lines": statistics.lines}


def keep_waiting_run(
    job: Job, submission: Submission, stored: StoredRun, statistics: RunStatistics, version: DatasetVersion
) -> Run:
    """The row of a run that waits for judgements: pools are drawn from these, and the dataset's page lists them.

    Call it, and what is below, with the boards of the submission's datasets locked.
    """
    run = keep_run(
        job, submission, submission.system, stored, statistics, version,
        origin=Run.Origin.UPLOADED, label=job.seed,
    )  # fmt: skip
    if submission.public:
        board_changed(job.dataset, Kind.VISIBILITY)
    return run


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
            board_changed(job.dataset, Kind.VISIBILITY)
