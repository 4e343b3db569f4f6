"""What a submitter may do with a submission later: take it back, stop it, show it or keep it private."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.models import Entry, User
from leaderboard.results import records
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from submissions.intake.actors import actor_label, is_team_member, record_curator_action
from submissions.jobs.checkpoints.encodings import cancel_unneeded_shards
from submissions.jobs.kinds.score import delete_upload
from submissions.models import TERMINAL, State, Submission
from submissions.queue.lifecycle import advance, write_log
from submissions.queue.queue import request_cancel


@transaction.atomic
def withdraw(submission: Submission, reason: str, by: User) -> bool:
    """Take the submission off every board; a tombstone with the reason remains. False when it was withdrawn before.

    Jobs under way are ended: their workers lose their claims and write nothing more.
    """
    _lock_boards_and_jobs(submission)
    moved = Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(
        withdrawn_at=timezone.now(), withdrawal_reason=reason[:300]
    )
    if not moved:
        return False
    who = "its team" if is_team_member(submission, by) else "a curator"
    for job in submission.jobs.order_by("pk"):
        if advance(job.pk, State.WITHDRAWN):
            write_log(job.pk, f"Withdrawn by {who}: {reason}")
            transaction.on_commit(partial(delete_upload, job))
    # Whoever stores a shard has its job's row, and wants those of the jobs that wait, which we have.
    transaction.on_commit(cancel_unneeded_shards)
    with acting(by, reason):
        record_curator_action(
            "submission withdrawn", submission, by, before={}, after={"reason": reason[:300]}
        )
        withdraw_entries(submission.pk, reason)
        _delete_waiting_runs(submission)
    submission.refresh_from_db()
    return True


def cancel(submission: Submission, by: User) -> int:
    """Stop every job that has not ended, at once where it waits, soon where it runs. Returns how many."""
    count, who = 0, actor_label(submission, by)
    jobs = list(submission.jobs.exclude(state__in=TERMINAL))
    if jobs:
        # First: each job ends with a commit of its own, and what cut this short would leave an act without a record.
        record_curator_action("submission cancelled", submission, by, before={}, after={"jobs": len(jobs)})
    for job in jobs:
        if request_cancel(job):
            job.refresh_from_db()
            waited = job.state == State.CANCELLED
            asked = f"{who[:1].upper()}{who[1:]} asked to stop."
            write_log(job.pk, f"Cancelled by {who}." if waited else asked)
            if waited:
                delete_upload(job)
            count += 1
    cancel_unneeded_shards()
    if count:
        with transaction.atomic():
            _lock_boards_and_jobs(submission)
            _delete_waiting_runs(submission)
    return count


def _lock_boards_and_jobs(submission: Submission) -> None:
    """Lock the boards that the submission is on, or may be on, then its jobs, until the commit."""
    lock_boards(submission.jobs.values_list("dataset_id", flat=True))
    Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
    list(submission.jobs.select_for_update(no_key=True).order_by("pk").values_list("pk"))


@transaction.atomic
def set_public(submission: Submission, public: bool, by: User | None = None) -> None:
    """Show the submission's results to everyone, or keep them with the team. Withdrawn ones stay as they are.

    `by` is named in the record of what changes on boards.
    """
    _lock_boards_and_jobs(submission)
    was = submission.public
    if not Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(public=public):
        return
    submission.public = public
    with acting(by, f"submission {submission.pk} {'shown' if public else 'kept back'}"):
        if by is not None:
            record_curator_action(
                "visibility", submission, by, before={"public": was}, after={"public": public}
            )
        set_visibility(submission.pk, public=public)
        records.set_waiting_visibility(submission.pk, public=public)
        _waiting_changed(submission)


@transaction.atomic
def set_reusable(submission: Submission, reusable: bool, by: User) -> None:
    """Let others re-rank and fuse the submission's runs from now on, or no longer."""
    before, after = {"reusable": submission.reusable}, {"reusable": reusable}
    record_curator_action(
        "runs lent" if reusable else "runs no longer lent", submission, by, before=before, after=after
    )
    Submission.objects.filter(pk=submission.pk).update(reusable=reusable)
    submission.reusable = reusable
    entries = Entry.objects.filter(submission_reference=submission.pk)
    for evaluation in ("evaluation", "seeds__evaluation"):
        runs = entries.exclude(**{evaluation: None}).values_list(f"{evaluation}__run_id", flat=True)
        records.set_reusable(runs, reusable=reusable)


def _delete_waiting_runs(submission: Submission) -> None:
    """Drop the submission's runs that wait for judgements: no pool is drawn from them, and no page names them."""
    _waiting_changed(submission)
    records.delete_waiting_runs(submission.pk)


def _waiting_changed(submission: Submission) -> None:
    for job in submission.jobs.select_related("dataset"):
        if job.dataset.awaits_judgements and job.validated:
            board_changed(job.dataset, Kind.VISIBILITY, touched=Entry.objects.none())
