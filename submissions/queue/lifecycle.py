"""How a job moves from state to state: one table, and one function that moves it by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, F, Value
from django.db.models.functions import Coalesce, Concat
from django.utils import timezone

from submissions.models import TERMINAL, WAITING, Job, State
from submissions.quotas.ledger import settle_quota

_ENDS = {State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN}

#: Which states may follow which. Going back to a waiting state is a retry.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.UPLOADING: frozenset({State.VALIDATING, State.QUEUED, State.REJECTED} | _ENDS),
    # Queued: it passed, and waits for judgements that its dataset does not have yet.
    State.VALIDATING: frozenset({State.VALIDATING, State.QUEUED, State.SCORING, State.REJECTED} | _ENDS),
    # Rejected: another job of its submission has found that the checkpoint of both cannot be run.
    State.QUEUED: frozenset({State.QUEUED, State.RETRIEVING, State.SCORING, State.REJECTED} | _ENDS),
    # Again "retrieving": a job that waits for the shards of its corpus. Done: a shard, which has nothing to score.
    State.RETRIEVING: frozenset(
        {State.RETRIEVING, State.SCORING, State.QUEUED, State.REJECTED, State.DONE} | _ENDS
    ),
    State.SCORING: frozenset({State.DONE, State.REJECTED, State.QUEUED, State.VALIDATING} | _ENDS),
    State.DONE: frozenset({State.WITHDRAWN}),
    State.REJECTED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.TIMED_OUT: frozenset(),
    State.WITHDRAWN: frozenset(),
}

#: From best to worst: a submission without a finished job is in the worst state of its jobs.
_SEVERITY = (
    State.DONE,
    State.WITHDRAWN,
    State.CANCELLED,
    State.REJECTED,
    State.TIMED_OUT,
    State.FAILED,
)
#: From furthest to least far: while jobs are under way, a submission is where its last job is.
_PROGRESS = (State.SCORING, State.RETRIEVING, State.QUEUED, State.VALIDATING, State.UPLOADING)


def advance(
    job_id: int,
    to: State,
    *,
    fence: int | None = None,
    unless_cancelled: bool = False,
    charged: bool = True,
    **changes: Any,
) -> bool:
    """Move the job to `to` if its present state allows it and, where given, the caller still holds the claim.

    `unless_cancelled`: not where somebody asked to stop it. `charged`: False where the job belongs to no submission, so
    that no quota is asked for. Returns whether it moved. One UPDATE, so of two callers
    one wins. Ending a job frees its lease, and what it waited for, and settles what it cost, all at once. A claim that
    goes back to the queue ends there, not where the next one begins: its holder can write no more.
    """
    sources = [state for state, followers in TRANSITIONS.items() if to in followers]
    jobs = Job.objects.filter(pk=job_id, state__in=sources)
    if fence is not None:
        jobs = jobs.filter(fence=fence)
    if unless_cancelled:
        jobs = jobs.filter(cancel_requested=False)
    if fence is not None and to in WAITING:
        changes["fence"] = F("fence") + 1
    if to in TERMINAL:
        # A result that is withdrawn later keeps the time at which it was there.
        finished = Coalesce(F("finished_at"), Value(timezone.now()), output_field=DateTimeField())
        ended = {"lease_expires_at": None, "finished_at": finished, "waits_for": None}
        changes = {**ended, "stage": "", "progress_note": "", **changes}
        with transaction.atomic(savepoint=False):
            moved = jobs.update(state=to, **changes) == 1
            if moved and charged:
                settle_quota(job_id)
        return moved
    return jobs.update(state=to, **changes) == 1


def revive(job_id: int, to: State, **changes: Any) -> bool:
    """Put a job that ended through our fault back to where it waits, as if nobody had tried it. Whether it was moved.

    No holder of an earlier claim can write any more, which is why this is none of the transitions.
    """
    ended = Job.objects.filter(pk=job_id, state__in=(State.FAILED, State.TIMED_OUT))
    anew = {
        "attempts": 0,
        "progress": 0.0,
        "error_code": "",
        "fault": "",
        "worker": "",
        "cancel_requested": False,
    }
    times = dict.fromkeys(("started_at", "finished_at", "not_before"))
    return ended.update(state=to, fence=F("fence") + 1, **anew, **times, **changes) == 1


def log_line(line: str) -> str:
    """A line of the log that the submitter reads, with its time."""
    return f"{timezone.now():%H:%M:%S}  {line}\n"


def append_log_line(line: str) -> Concat:
    """The log with one more line, for an update of the row."""
    return Concat(F("log"), Value(log_line(line)))


def write_log(job_id: int, line: str) -> None:
    """Add a line, with its time, to the log that the submitter reads."""
    Job.objects.filter(pk=job_id).update(log=append_log_line(line))


def submission_state(states: Iterable[str]) -> State:
    """The state of a submission from those of its jobs.

    While one is under way, the least advanced of them; then `done` if any is done, else the worst.
    """
    present = {State(state) for state in states}
    under_way = [state for state in reversed(_PROGRESS) if state in present]
    if under_way:
        return under_way[0]
    if State.DONE in present:
        return State.DONE
    ended = [state for state in reversed(_SEVERITY) if state in present]
    return ended[0] if ended else State.UPLOADING
