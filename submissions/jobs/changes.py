"""Changes requested by submitters and curators: withdraw, cancel, publish, allow reuse, retry, and measure again."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from evaluation.checkpoints.description import FILE_NAME
from leaderboard.core.audit import acting, actor, record
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, path_of
from leaderboard.core.text.dates import format_moment
from leaderboard.models import Entry, System, Team, User
from leaderboard.results import records
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.descriptions import lock_systems
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from leaderboard.systems import records as system_records
from submissions.checkpoints.service import checkpoint_folder
from submissions.core.errors import Refused
from submissions.intake.rounds import INVALID_PRIORITY, ROUND_CLOSED, counted_submissions, may_reorder, readmit
from submissions.intake.run_records import MADE_BY
from submissions.jobs.checkpoints.encodings import cancel_unneeded_shards
from submissions.jobs.kinds.handover import MEASURES, MISS_COUNT, RETRIEVAL, RetrievalResult
from submissions.jobs.kinds.score import delete_upload
from submissions.models import TERMINAL, Checkpoint, Job, State, Submission
from submissions.queue.queue import (
    advance,
    append_log_line,
    log_line,
    next_turn,
    request_cancel,
    revive,
    waiting_state,
    wake_worker,
    write_log,
)
from submissions.queue.workers import UNPROTECTED
from submissions.quotas.ledger import charge_again, lock_quota

#: Payload key: number of retries requested by users.
RETRIES = "retries"
_RUN_MODELS = (Job.Kind.MODEL, Job.Kind.SAMPLE_MODEL)
_NO_VALUES: Mapping[str, Any] = {}


def _is_team_member(submission: Submission, person: User) -> bool:
    return submission.team.memberships.filter(user=person).exists()


def _actor_label(submission: Submission, person: User) -> str:
    """Return the person's role for the log of the submission, which never contains names."""
    if not _is_team_member(submission, person):
        return "a curator"
    return "the submitter" if person.pk == submission.submitter_id else "its team"


def _record_curator_action(
    action: str,
    submission: Submission,
    person: User,
    new_values: Mapping[str, Any],
    previous_values: Mapping[str, Any] = _NO_VALUES,
) -> None:
    """Record a curator's action on a submission in the audit log.

    Nothing is recorded if no value changes, or if the person is a member of the submission's team.
    """
    if previous_values != new_values and not _is_team_member(submission, person):
        with acting(person, actor().reason):
            record(action, f"submission {submission.pk}", before=dict(previous_values), after=dict(new_values))


@transaction.atomic
def withdraw(submission: Submission, reason: str, person: User) -> bool:
    """Withdraw the submission from all boards, leaving a tombstone with the reason.

    Returns False if it was withdrawn before. Active jobs end: their workers lose their claims and can no longer write.
    """
    _lock_boards_and_jobs(submission)
    updated_count = Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(
        withdrawn_at=timezone.now(), withdrawal_reason=reason[:300]
    )
    if not updated_count:
        return False
    role = "its team" if _is_team_member(submission, person) else "a curator"
    for job in submission.jobs.order_by("pk"):
        if advance(job.pk, State.WITHDRAWN, line=f"Withdrawn by {role}: {reason}"):
            transaction.on_commit(partial(delete_upload, job))
    # After the commit: a worker that stores a shard locks its job first and the waiting jobs second.
    transaction.on_commit(cancel_unneeded_shards)
    with acting(person, reason):
        _record_curator_action("submission withdrawn", submission, person, {"reason": reason[:300]})
        withdraw_entries(submission.pk, reason)
        _delete_waiting_runs(submission)
    submission.refresh_from_db()
    return True


def cancel(submission: Submission, person: User) -> int:
    """Cancel all jobs that have not ended, and return their number.

    Waiting jobs are canceled immediately, and running ones by their workers.
    """
    count, role = 0, _actor_label(submission, person)
    if jobs := list(submission.jobs.exclude(state__in=TERMINAL)):
        # Record first: each job ends with its own commit, so an interruption would leave changes without a record.
        _record_curator_action("submission cancelled", submission, person, {"jobs": len(jobs)})
    for job in jobs:
        if request_cancel(job):
            job.refresh_from_db()
            was_waiting = job.state == State.CANCELLED
            request_line = f"{role[:1].upper()}{role[1:]} requested cancellation."
            write_log(job.pk, f"Canceled by {role}." if was_waiting else request_line)
            if was_waiting:
                delete_upload(job)
            count += 1
    cancel_unneeded_shards()
    if count:
        with transaction.atomic():
            _lock_boards_and_jobs(submission)
            _delete_waiting_runs(submission)
    return count


def _lock_boards_and_jobs(submission: Submission) -> None:
    """Lock the boards that the submission is or may be on, then its jobs, until the commit."""
    lock_boards(submission.jobs.values_list("dataset_id", flat=True))
    Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
    list(submission.jobs.select_for_update(no_key=True).order_by("pk").values_list("pk"))


@transaction.atomic
def set_public(submission: Submission, public: bool, person: User | None = None) -> None:
    """Make the results of the submission public or private. A withdrawn submission does not change.

    The audit log names `person` as the author of the change.
    """
    _lock_boards_and_jobs(submission)
    was_public = submission.public
    if not Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(public=public):
        return
    submission.public = public
    with acting(person, f"submission {submission.pk} {'made public' if public else 'made private'}"):
        if person is not None:
            _record_curator_action("visibility", submission, person, {"public": public}, {"public": was_public})
        set_visibility(submission.pk, public=public)
        records.set_waiting_visibility(submission.pk, public=public)
        _mark_boards_changed(submission)


@transaction.atomic
def set_reusable(submission: Submission, reusable: bool, person: User) -> None:
    """Allow or forbid others to re-rank and fuse the submission's runs from now on."""
    action = "runs lent" if reusable else "runs no longer lent"
    _record_curator_action(action, submission, person, {"reusable": reusable}, {"reusable": submission.reusable})
    Submission.objects.filter(pk=submission.pk).update(reusable=reusable)
    submission.reusable = reusable
    entries = Entry.objects.filter(submission_reference=submission.pk)
    for evaluation in ("evaluation", "seeds__evaluation"):
        run_ids = entries.exclude(**{evaluation: None}).values_list(f"{evaluation}__run_id", flat=True)
        records.set_reusable(run_ids, reusable=reusable)


def _delete_waiting_runs(submission: Submission) -> None:
    """Delete runs that wait for judgments, so that pools and pages do not contain them."""
    _mark_boards_changed(submission)
    records.delete_waiting_runs(submission.pk)


def _mark_boards_changed(submission: Submission) -> None:
    """Mark the boards as changed on which validated runs of the submission wait for judgments."""
    for job in submission.jobs.select_related("dataset"):
        if job.dataset.awaits_judgements and job.validated:
            board_changed(job.dataset, Kind.VISIBILITY, row_entries=Entry.objects.none())


@transaction.atomic
def set_priority(submission: Submission, priority: int, person: User) -> None:
    """Set the priority of a submission among its team's runs, and swap priorities with the run that has it.

    Raises Refused if the submission is in no open round, or the round has no such priority.
    """
    Team.objects.select_for_update(no_key=True).get(pk=submission.team_id)
    current_submission = Submission.objects.select_related("round").get(pk=submission.pk)
    round_ = current_submission.round
    if round_ is None or not may_reorder(current_submission):
        is_closed = round_ is not None and timezone.now() >= round_.closes_at
        reason = (
            f"{round_} closed at {format_moment(round_.closes_at)}."
            if round_ and is_closed
            else "The run is in no open round."
        )
        message = f"The priority was not changed. {reason}"
        raise Refused.for_problem(ROUND_CLOSED, message, "You can change priorities until a round closes.")
    if not 1 <= priority <= round_.runs_per_team:
        message = f"Priority {priority} is not between 1 and {round_.runs_per_team}, the number of runs per team."
        raise Refused.for_problem(INVALID_PRIORITY, message, f"Choose a priority from 1 to {round_.runs_per_team}.")
    team_runs = counted_submissions(round_, team=current_submission.team)
    conflicting_run = team_runs.filter(priority=priority).exclude(pk=current_submission.pk).first()
    for row, new_priority in ((conflicting_run, current_submission.priority), (current_submission, priority)):
        if row is not None:
            Submission.objects.filter(pk=row.pk).update(priority=new_priority)
            records.set_priority(row.pk, new_priority)
            _record_curator_action("priority", row, person, {"priority": new_priority}, {"priority": row.priority})
    submission.priority = priority


# --- retry


def retriable_jobs(submission: Submission) -> list[Job]:
    """Return the jobs that failed on our side, not too long ago, and have all their files."""
    failed_jobs = submission.jobs.lost_by_us().select_related("dataset", "submission__checkpoint__team")
    return [job for job in failed_jobs if _has_its_file(job)]


def retry(submission: Submission, person: User) -> int:
    """Requeue failed jobs, charging them again if they were refunded; return their number.

    Raises Refused if the quota or the round is exhausted.
    """
    with transaction.atomic():
        lock_quota(submission.submitter, submission.team)
        Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        jobs = retriable_jobs(submission)
        if not jobs:
            return 0
        readmit(submission)
        charge_again(submission, {job.dataset.pk for job in jobs})
        _record_curator_action("tried again", submission, person, {"jobs": len(jobs)})
        for job in jobs:
            payload, queue = {**job.payload, RETRIES: job.payload.get(RETRIES, 0) + 1}, job.queue
            retrieval = RetrievalResult.from_payload(payload)
            if retrieval is not None and payload.pop(MISS_COUNT, 0):  # its runs no longer exist
                queue = retrieval.queue
                del payload[RETRIEVAL]
            log = append_log_line(f"Retry requested by {_actor_label(submission, person)}.")
            if revive(job.pk, waiting_state(job), payload=payload, queue=queue, log=log):
                wake_worker(queue)
        Submission.objects.filter(pk=submission.pk).update(noticed_at=None)
    return len(jobs)


def _has_its_file(job: Job) -> bool:
    """Return whether the job's run or upload, or the checkpoint of its submission if any, still exists."""
    if job.kind == Job.Kind.SCORE:
        path = run_path(job.payload["run_sha256"]) if job.validated else path_of(Area.UPLOADS, job.upload_sha256)
        return path.exists()
    checkpoint = job.submission.checkpoint if job.submission else None
    return checkpoint is None or (checkpoint_folder(checkpoint) / FILE_NAME).exists()


# --- measure again


class CannotMeasure(ValueError):
    """Refusal to measure the costs of a result again. The message states the reason."""


@transaction.atomic
def request_measurement(entry: Entry) -> Job:
    """Queue a job that runs the entry's model again and measures its costs; present costs remain until it ends.

    Call it within `leaderboard.core.audit.acting` as the requesting curator.

    Raises:
        CannotMeasure: If the model did not run here, or the entry is outdated, withdrawn, or being measured already.
    """
    evaluation = entry.evaluation
    provenance = evaluation.run.metadata.get(MADE_BY) if evaluation else None
    origin = Job.objects.filter(Q(entry=entry) | Q(further_entries=entry), kind__in=_RUN_MODELS).last()
    if evaluation is None or provenance is None or origin is None:
        raise CannotMeasure(f"{entry} was not produced by a model that ran here, so it has no measured costs.")
    if entry.visibility == Entry.Visibility.WITHDRAWN:
        raise CannotMeasure(f"{entry} was withdrawn.")
    if evaluation.run.version_id != entry.dataset.current_version_id:
        raise CannotMeasure(f"{entry} was produced from an earlier version of the dataset. Run the model again.")
    if Job.objects.exclude(state__in=TERMINAL).filter(payload__measures=entry.pk).exists():
        raise CannotMeasure(f"{entry} is already being measured.")
    retrieval = RetrievalResult.from_payload(origin.payload)
    queue = retrieval.queue if retrieval else origin.queue  # a scorer may have finished the job
    if origin.submission is not None:
        checkpoint = origin.submission.checkpoint_id
    else:  # the checkpoint may be the site's own
        site_checkpoints = Checkpoint.objects.filter(
            team=None, model_sha256=provenance.get("checkpoint", {}).get("sha256", "")
        )
        checkpoint = site_checkpoints.values_list("pk", flat=True).first()
    job = Job.objects.create(
        kind=Job.Kind.MODEL,
        queue=queue,
        turn=next_turn(queue, None),
        dataset=entry.dataset,
        state=State.QUEUED,
        validated=True,
        payload={
            MEASURES: entry.pk,
            "system": entry.system.slug,
            "engine": provenance["engine"],
            "parameters": provenance["parameters"],
            "checkpoint": checkpoint,
            "run_ids": origin.payload.get("run_ids", []),
            **({UNPROTECTED: True} if origin.payload.get(UNPROTECTED) else {}),
        },
        log=log_line(f"Measuring {entry} again."),
    )
    record("measurement requested", entry, dataset=entry.dataset, entry=entry, after={"job": job.pk})
    wake_worker(queue)
    return job


# --- merge systems


@transaction.atomic
def merge_systems(duplicate: System, target: System) -> System:
    """Move all submissions and other data of the duplicate to another system, and return that one.

    Submissions keep their teams and submitters. Raises leaderboard.systems.records.CannotMerge with all conflicts, in
    which case nothing is changed. Call it within `leaderboard.core.audit.acting`.
    """
    lock_systems(duplicate, target)
    if conflicts := system_records.merge_conflicts(duplicate, target):
        raise system_records.CannotMerge(conflicts)
    Submission.objects.filter(system=duplicate).update(system=target)
    return system_records.merge_systems(duplicate, target)
