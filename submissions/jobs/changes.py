"""Changes that submitters and curators request: withdraw, cancel, show, lend, try again, measure again."""

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
from leaderboard.models import Entry, System, Team, User
from leaderboard.results import records
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.descriptions import lock_systems
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from leaderboard.rounds.lifecycle import utc
from leaderboard.systems import records as system_records
from submissions.checkpoints.service import folder_of
from submissions.core.errors import Refused
from submissions.intake.rounds import (
    INVALID_PRIORITY,
    ROUND_CLOSED,
    counted_submissions,
    may_reorder,
    readmit,
)
from submissions.intake.run_records import MADE_BY
from submissions.jobs.checkpoints.encodings import cancel_unneeded_shards
from submissions.jobs.kinds.handover import KEY, MEASURES, MISSED, RetrievalResult
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

#: Payload key: how often its people had the job tried again.
RETRIES = "retries"
_RUN_MODELS = (Job.Kind.MODEL, Job.Kind.SAMPLE_MODEL)
_NOTHING: Mapping[str, Any] = {}


def _is_team_member(submission: Submission, person: User) -> bool:
    return submission.team.memberships.filter(user=person).exists()


def _actor_label(submission: Submission, person: User) -> str:
    """Return the person's role for the submission's log, which its team reads: never a name."""
    if not _is_team_member(submission, person):
        return "a curator"
    return "the submitter" if person.pk == submission.submitter_id else "its team"


def _record_curator_action(
    action: str,
    submission: Submission,
    by: User,
    after: Mapping[str, Any],
    before: Mapping[str, Any] = _NOTHING,
) -> None:
    """Record what a curator did to a submission. The acts of its own team are not recorded."""
    if before != after and not _is_team_member(submission, by):
        with acting(by, actor().reason):
            record(action, f"submission {submission.pk}", before=dict(before), after=dict(after))


@transaction.atomic
def withdraw(submission: Submission, reason: str, by: User) -> bool:
    """Take the submission off every board; a tombstone with the reason remains. False if it was before.

    Jobs under way are ended: their workers lose their claims and write nothing more.
    """
    _lock_boards_and_jobs(submission)
    moved = Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(
        withdrawn_at=timezone.now(), withdrawal_reason=reason[:300]
    )
    if not moved:
        return False
    who = "its team" if _is_team_member(submission, by) else "a curator"
    for job in submission.jobs.order_by("pk"):
        if advance(job.pk, State.WITHDRAWN, line=f"Withdrawn by {who}: {reason}"):
            transaction.on_commit(partial(delete_upload, job))
    # After the commit: a worker that stores a shard holds its job's row, and wants those of the waiting jobs.
    transaction.on_commit(cancel_unneeded_shards)
    with acting(by, reason):
        _record_curator_action("submission withdrawn", submission, by, {"reason": reason[:300]})
        withdraw_entries(submission.pk, reason)
        _delete_waiting_runs(submission)
    submission.refresh_from_db()
    return True


def cancel(submission: Submission, by: User) -> int:
    """Stop every job that has not ended, at once if it waits, soon if it runs. Return how many."""
    count, who = 0, _actor_label(submission, by)
    jobs = list(submission.jobs.exclude(state__in=TERMINAL))
    if jobs:
        # First: each job ends with a commit of its own, and what cut this short would leave an act without a record.
        _record_curator_action("submission cancelled", submission, by, {"jobs": len(jobs)})
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
    """Show the submission's results to everyone, or keep them with the team; withdrawn ones remain as they are.

    The record of what changes on boards names `by`.
    """
    _lock_boards_and_jobs(submission)
    was = submission.public
    if not Submission.objects.filter(pk=submission.pk, withdrawn_at=None).update(public=public):
        return
    submission.public = public
    with acting(by, f"submission {submission.pk} {'shown' if public else 'kept back'}"):
        if by is not None:
            _record_curator_action("visibility", submission, by, {"public": public}, {"public": was})
        set_visibility(submission.pk, public=public)
        records.set_waiting_visibility(submission.pk, public=public)
        _waiting_changed(submission)


@transaction.atomic
def set_reusable(submission: Submission, reusable: bool, by: User) -> None:
    """Let others re-rank and fuse the submission's runs from now on, or no longer."""
    action, before = "runs lent" if reusable else "runs no longer lent", {"reusable": submission.reusable}
    _record_curator_action(action, submission, by, {"reusable": reusable}, before)
    Submission.objects.filter(pk=submission.pk).update(reusable=reusable)
    submission.reusable = reusable
    entries = Entry.objects.filter(submission_reference=submission.pk)
    for evaluation in ("evaluation", "seeds__evaluation"):
        runs = entries.exclude(**{evaluation: None}).values_list(f"{evaluation}__run_id", flat=True)
        records.set_reusable(runs, reusable=reusable)


def _delete_waiting_runs(submission: Submission) -> None:
    """Delete the submission's runs that wait for judgments: no pool is drawn from them, and no page names them."""
    _waiting_changed(submission)
    records.delete_waiting_runs(submission.pk)


def _waiting_changed(submission: Submission) -> None:
    for job in submission.jobs.select_related("dataset"):
        if job.dataset.awaits_judgements and job.validated:
            board_changed(job.dataset, Kind.VISIBILITY, touched=Entry.objects.none())


@transaction.atomic
def set_priority(submission: Submission, priority: int, by: User) -> None:
    """Give the submission another place among its team's runs; a run that has that place gets the old one.

    Raises Refused for one that is in no open round, and for a place that the round does not have.
    """
    Team.objects.select_for_update(no_key=True).get(pk=submission.team_id)
    found = Submission.objects.select_related("round").get(pk=submission.pk)
    row = found.round
    if row is None or not may_reorder(found):
        closed = row is not None and timezone.now() >= row.closes_at
        when = f"{row} closed at {utc(row.closes_at)}." if row and closed else "It is in no open round."
        message = f"The priority stays. {when}"
        raise Refused.of(ROUND_CLOSED, message, "Priorities change until a round closes.")
    if not 1 <= priority <= row.runs_per_team:
        message = f"Priority {priority} is not between 1 and {row.runs_per_team}, the runs of a team."
        raise Refused.of(INVALID_PRIORITY, message, f"Send one of 1 to {row.runs_per_team}.")
    other = counted_submissions(row, team=found.team).filter(priority=priority).exclude(pk=found.pk).first()
    for each, place in ((other, found.priority), (found, priority)):
        if each is not None:
            Submission.objects.filter(pk=each.pk).update(priority=place)
            records.set_priority(each.pk, place)
            _record_curator_action("priority", each, by, {"priority": place}, {"priority": each.priority})
    submission.priority = priority


# --- try again


def retriable_jobs(submission: Submission) -> list[Job]:
    """Return the jobs that may be tried again: lost through our fault, and whose file is still here."""
    lost = submission.jobs.lost_by_us().select_related("submission__checkpoint__team")
    return [job for job in lost if _has_its_file(job)]


def retry(submission: Submission, by: User) -> int:
    """Queue lost jobs again, and count them again if their units were refunded. Return how many.

    Raises Refused if no quota, or no place in the round, is left for them.
    """
    with transaction.atomic():
        lock_quota(submission.submitter, submission.team)
        Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        jobs = retriable_jobs(submission)
        if not jobs:
            return 0
        readmit(submission)
        charge_again(submission, {job.dataset_id for job in jobs})
        _record_curator_action("tried again", submission, by, {"jobs": len(jobs)})
        for job in jobs:
            payload, queue = {**job.payload, RETRIES: job.payload.get(RETRIES, 0) + 1}, job.queue
            retrieval = RetrievalResult.from_payload(payload)
            if retrieval is not None and payload.pop(MISSED, 0):  # its runs are lost
                queue = retrieval.queue
                del payload[KEY]
            log = append_log_line(f"Tried again: asked for by {_actor_label(submission, by)}.")
            if revive(job.pk, waiting_state(job), payload=payload, queue=queue, log=log):
                wake_worker(queue)
        Submission.objects.filter(pk=submission.pk).update(noticed_at=None)
    return len(jobs)


def _has_its_file(job: Job) -> bool:
    if job.kind == Job.Kind.SCORE:
        validated = job.validated
        path = run_path(job.payload["run_sha256"]) if validated else path_of(Area.UPLOADS, job.upload_sha256)
        return path.exists()
    checkpoint = job.submission.checkpoint if job.submission else None
    return checkpoint is None or (folder_of(checkpoint) / FILE_NAME).exists()


# --- measure again


class CannotMeasure(ValueError):
    """The costs of a result cannot be measured again; the text says why."""


@transaction.atomic
def request_measurement(entry: Entry) -> Job:
    """Queue a job that runs the entry's model again and measures it. The present costs remain until it ends.

    Call it as the requesting curator (`leaderboard.core.audit.acting`). Raises CannotMeasure.
    """
    evaluation = entry.evaluation
    made = evaluation.run.metadata.get(MADE_BY) if evaluation else None
    origin = Job.objects.filter(Q(entry=entry) | Q(further_entries=entry), kind__in=_RUN_MODELS).last()
    if evaluation is None or made is None or origin is None:
        raise CannotMeasure(f"{entry} was not made by a model that ran here, so nothing was timed.")
    if entry.visibility == Entry.Visibility.WITHDRAWN:
        raise CannotMeasure(f"{entry} was withdrawn.")
    if evaluation.run.version_id != entry.dataset.current_version_id:
        raise CannotMeasure(f"{entry} was made from earlier content of the dataset: run the model again.")
    if Job.objects.exclude(state__in=TERMINAL).filter(payload__measures=entry.pk).exists():
        raise CannotMeasure(f"{entry} is being measured already.")
    retrieval = RetrievalResult.from_payload(origin.payload)
    queue = retrieval.queue if retrieval else origin.queue  # a scorer may have ended it
    if origin.submission is not None:
        checkpoint = origin.submission.checkpoint_id
    else:  # the site's own, if any
        own = Checkpoint.objects.filter(team=None, model_sha256=made.get("checkpoint", {}).get("sha256", ""))
        checkpoint = own.values_list("pk", flat=True).first()
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
            "engine": made["engine"],
            "parameters": made["parameters"],
            "checkpoint": checkpoint,
            "run_ids": origin.payload.get("run_ids", []),
            **({UNPROTECTED: True} if origin.payload.get(UNPROTECTED) else {}),
        },
        log=log_line(f"{entry} is measured again."),
    )
    record("measurement requested", entry, dataset=entry.dataset, entry=entry, after={"job": job.pk})
    wake_worker(queue)
    return job


# --- merge systems


@transaction.atomic
def merge_systems(duplicate: System, into: System) -> System:
    """Move the duplicate's submissions and everything else of it to the other system, in one transaction.

    Submissions stay their team's and their submitter's. Raises leaderboard.systems.records.CannotMerge with all
    conflicts, and nothing is changed. Call within `leaderboard.core.audit.acting`.
    """
    lock_systems(duplicate, into)
    if conflicts := system_records.merge_conflicts(duplicate, into):
        raise system_records.CannotMerge(conflicts)
    Submission.objects.filter(system=duplicate).update(system=into)
    return system_records.merge_systems(duplicate, into)
