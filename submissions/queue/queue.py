"""The queue: states, claims, leases and retries are columns of the job's row; Celery only carries wakeups.

A job moves from state to state by compare-and-set, as one table permits. A claim counts the fence up; a write under an
older fence changes nothing. A silent worker loses its lease, and `reap` puts the job back, three attempts at most.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Case, DateTimeField, F, Max, Min, Q, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Concat, Now
from django.utils import timezone

from leaderboard.core import wakeup
from leaderboard.models import Team, User, WorkRequest
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
    **dict.fromkeys(TERMINAL - {State.DONE}, frozenset()),
}

#: A submission is in the first of these states that one of its jobs is in.
_PRECEDENCE = (
    State.UPLOADING, State.VALIDATING, State.QUEUED, State.RETRIEVING, State.SCORING, State.DONE,
    State.FAILED, State.TIMED_OUT, State.REJECTED, State.CANCELLED, State.WITHDRAWN,
)  # fmt: skip


def advance(
    job_id: int,
    to: State,
    *,
    fence: int | None = None,
    unless_cancelled: bool = False,
    charged: bool = True,
    line: str = "",
    **changes: Any,
) -> bool:
    """Move the job to `to` if its present state allows it and, if given, the caller still holds the claim.

    One UPDATE, so that of two callers one wins. Ending a job frees its lease and the encoding that it waited for, and
    settles its cost. A claim that goes back to the queue ends there, not when the next one begins: its holder can write
    no more.

    Args:
        job_id: the job's key.
        to: the new state.
        fence: the fence of the caller's claim.
        unless_cancelled: do nothing if somebody asked to stop the job.
        charged: False if the job belongs to no submission, so that no quota is read.
        line: a line for the log that the submitter reads.
        **changes: other columns to set.

    Returns:
        Whether it moved.
    """
    sources = [state for state, followers in TRANSITIONS.items() if to in followers]
    jobs = Job.objects.filter(pk=job_id, state__in=sources)
    if fence is not None:
        jobs = jobs.filter(fence=fence)
    if unless_cancelled:
        jobs = jobs.filter(cancel_requested=False)
    if line:
        changes["log"] = append_log_line(line)
    if to in WAITING:
        unclaimed = {"lease_expires_at": None, "stage": "", "progress": 0.0, "progress_note": ""}
        changes = {**unclaimed, **changes}
        if fence is not None:
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
    """Put a job that ended through our fault back into its waiting state, as if never tried. Return whether it moved.

    No holder of an earlier claim can write any more, which is why this is none of the transitions.
    """
    ended = Job.objects.filter(pk=job_id, state__in=(State.FAILED, State.TIMED_OUT))
    anew: dict[str, Any] = {"attempts": 0, "progress": 0.0, "cancel_requested": False}
    texts = dict.fromkeys(("error_code", "fault", "worker"), "")
    times = dict.fromkeys(("started_at", "finished_at", "not_before"))
    return ended.update(state=to, fence=F("fence") + 1, **anew, **texts, **times, **changes) == 1


def log_line(line: str) -> str:
    """Return a line of the log that the submitter reads, with its time."""
    return f"{timezone.now():%H:%M:%S}  {line}\n"


def append_log_line(line: str) -> Concat:
    """Return the log with one more line, for an update of the row."""
    return Concat(F("log"), Value(log_line(line)))


def write_log(job_id: int, line: str) -> None:
    """Add a line, with its time, to the log that the submitter reads."""
    Job.objects.filter(pk=job_id).update(log=append_log_line(line))


def submission_state(states: Iterable[str]) -> State:
    """Return the state of a submission from those of its jobs.

    While one is under way, the least advanced of them; then `done` if any is done, else the worst.
    """
    present = set(states)
    return next((state for state in _PRECEDENCE if state in present), State.UPLOADING)


# --- claims


ATTEMPTS = 3
#: How long a job waits before its second and third attempt: a lost worker is made good at once, a second loss is not.
BACKOFF = tuple(timedelta(seconds=seconds) for seconds in settings.QUEUE_TIMES.retries)
#: What nobody waits for: it comes after every verdict.
_LAST = (Job.Kind.CERTAINTY, Job.Kind.STATISTICS)
#: What finds the dataset as it is when it begins: one that waits is enough.
_ONCE = (*_LAST, Job.Kind.BASELINE)
#: What retrievers do; whatever reads judgements is the scorer's.
_RETRIEVING = (Job.Kind.BASELINE, Job.Kind.RETRIEVE, Job.Kind.SAMPLE_MODEL, Job.Kind.STATISTICS)
#: Baselines first, since a dataset is published with its own; then by turn, but a rescore after every verdict.
_PRIORITIES = {Job.Kind.BASELINE: 0, Job.Kind.RESCORE: 2, **dict.fromkeys(_LAST, 3)}
_PRIORITY = Case(*(When(kind=kind, then=turn) for kind, turn in _PRIORITIES.items()), default=1)
#: What a retriever may not read (leaderboard.core.database_grants): of people it knows key and name.
_NOT_READ = (
    "submission__note", "submission__withdrawal_reason",
    *(f"submission__submitter__{field.name}" for field in User._meta.concrete_fields
      if field.name not in ("id", "name")),
)  # fmt: skip
#: In a job's payload: how many seconds those took who had it before it was handed over to who has it now.
WORKED = "worked_seconds"
#: The task that a wakeup starts. A name on the wire.
WORK = "runboard.work"


def wake_worker(queue: str) -> None:
    """Wake a worker of this queue once the current transaction has committed."""
    transaction.on_commit(partial(wakeup.send_wakeup, WORK, queue, queue=queue))


def _lease_end() -> CombinedExpression:
    """By the database's clock, as all times that decide about claims: those of several machines may differ."""
    return Now() + timedelta(seconds=settings.QUEUE_TIMES.lease)


def claim(queues: Sequence[str], worker: str, permitted: Q | None = None) -> Job | None:
    """Take the waiting job whose turn it is in these queues under a lease, or None where there is none.

    `permitted`: which of them this worker can do, as its capability says.
    """
    while True:
        with transaction.atomic():
            waiting = (
                Job.objects.waiting()
                .filter(permitted or Q(), queue__in=queues)
                .order_by(_PRIORITY, "turn", "pk")
            )
            if connection.features.has_select_for_update_skip_locked:
                waiting = waiting.select_for_update(skip_locked=True, of=("self",))
            candidate = waiting.values("pk", "fence").first()
            if candidate is None:
                return None
            taken = Job.objects.waiting().filter(pk=candidate["pk"], fence=candidate["fence"])
            if taken.update(
                fence=F("fence") + 1,
                attempts=F("attempts") + 1,
                lease_expires_at=_lease_end(),
                worker=worker,
                started_at=Now(),
                progress=0.0,
                progress_note="",
            ):
                related = ("dataset__current_version", "submission__submitter", "submission__system__team")
                deferred = () if settings.PRIVATE_STORAGE else _NOT_READ
                return Job.objects.select_related(*related).defer(*deferred).get(pk=candidate["pk"])


def next_turn(queue: str, team: Team | None) -> int:
    """Return the round of a queue that the team's next job is in: that behind its last one there, else the present one.

    So a team's sixty jobs stand in sixty rounds, and everybody's first one comes before its second. A. Demers et al.,
    "Analysis and simulation of a fair queueing algorithm", 1989, for jobs instead of packets.
    """
    waiting = Job.objects.filter(queue=queue, state__in=WAITING, lease_expires_at=None)
    own = Q(submission__team=team) | Q(shard__encoding__waiting_jobs__submission__team=team)
    found = waiting.aggregate(present=Min("turn"), last=Max("turn", filter=own if team else Q(pk=None)))
    return max(found["present"] or 0, -1 if found["last"] is None else found["last"] + 1)


def extend_lease(
    job: Job,
    progress: float,
    stage: str,
    note: str = "",
    *,
    waited: float = 0.0,
    unless_cancelled: bool = False,
) -> bool:
    """Say that the holder is alive and how far it is. False when the claim is no longer theirs.

    `unless_cancelled`: nothing is said, and False comes back, also where somebody asked to stop the job.
    `waited` are the seconds since the claim in which it could not work, because the machine was another's: its start
    moves by them, so that they count neither towards JOB_WALL_CLOCK_SECONDS nor in estimates.
    """
    held = Job.objects.filter(pk=job.pk, fence=job.fence).exclude(state__in=TERMINAL)
    if unless_cancelled:
        held = held.filter(cancel_requested=False)
    told = {"progress": min(max(progress, 0.0), 1.0), "stage": stage, "progress_note": note[:120]}
    if waited and job.started_at is not None:
        told["started_at"] = job.started_at + timedelta(seconds=waited)
    return held.update(lease_expires_at=_lease_end(), **told) == 1


def seconds_worked_before(payload: Mapping[str, Any]) -> float:
    """Return how long a job was worked on, without waiting, before it was handed over for the last time."""
    return float(payload.get(WORKED, 0.0))


def waiting_state(job: Job) -> State:
    """Return where the job waits when it is to be done (again)."""
    return State.QUEUED if job.validated or job.kind != Job.Kind.SCORE else State.VALIDATING


def requeue(job: Job, *, counted: bool, delay: timedelta = timedelta(0), line: str = "") -> bool:
    """Give a claimed job back to the queue, or end it if its submitter asked to stop it.

    Args:
        job: the job.
        counted: whether the attempt counts; it does not if the worker was asked to stop.
        delay: how long a job whose attempt does not count waits at least.
        line: a line for its log.

    Returns:
        Whether the claim was still the caller's.
    """
    attempts = job.attempts if counted else job.attempts - 1
    delay = BACKOFF[min(attempts, len(BACKOFF)) - 1] if counted else delay
    changes: dict[str, Any] = {"attempts": attempts, "not_before": Now() + delay if delay else None}
    moved = advance(job.pk, waiting_state(job), fence=job.fence, unless_cancelled=True, line=line, **changes)
    if moved:
        wake_worker(job.queue)
    return moved or end_cancelled(job)


def end_cancelled(job: Job, line: str = "") -> bool:
    """End a claimed job that its submitter asked to stop. Return False if nobody did, or the claim is over."""
    wished = Job.objects.filter(pk=job.pk, fence=job.fence, cancel_requested=True).exists()
    return wished and advance(job.pk, State.CANCELLED, fence=job.fence, line=line)


def release(job: Job) -> None:
    """Note that the process which had claimed the job works on it no more, however that ended.

    Of a job that somebody else ended, or put back, this alone tells that its process has heard of it.
    """
    done_by_itself = (State.DONE, State.REJECTED, State.FAILED)
    left = Job.objects.filter(pk=job.pk, worker=job.worker, lease_expires_at=None)
    left.exclude(state__in=done_by_itself).update(worker="")


def reap() -> int:
    """Take jobs from workers that went silent or ran too long, in every state that is not terminal.

    Not while the database has only just come back: until then nobody could say that they are alive.
    """
    # Less than nothing is a clock that was set back past the server's start: it says nothing of how long ago that was,
    # and nobody waits until it has caught up. Set back by less, it costs a few seconds' pause, as a start does, once.
    if 0 <= _database_uptime() < 5 * settings.QUEUE_TIMES.look:
        return 0
    count = 0
    for job in Job.objects.expired():
        if job.attempts >= ATTEMPTS:
            line = "The worker was lost three times. This is a fault of ours."
            reason: dict[str, Any] = {"line": line, "error_code": "worker_lost"}
            failed = advance(job.pk, State.FAILED, fence=job.fence, unless_cancelled=True, **reason)
            count += failed or end_cancelled(job)
        else:
            count += requeue(job, counted=True, line="The worker was lost; the job is tried again.")
    # The holder counts by its own steady clock too (lease.py): after one that was set back, that comes first.
    limit = Now() - timedelta(seconds=settings.JOB_WALL_CLOCK_SECONDS)
    overdue = Job.objects.exclude(state__in=TERMINAL).filter(
        lease_expires_at__isnull=False, started_at__lt=limit
    )
    return count + sum(time_out(job) for job in overdue)


def time_out(job: Job) -> bool:
    """End a claimed job that ran longer than JOB_WALL_CLOCK_SECONDS, whatever it is doing."""
    line = "The job ran longer than it may and was stopped."
    return advance(job.pk, State.TIMED_OUT, fence=job.fence, line=line, error_code="timed_out")


def _database_uptime() -> float:
    """For how many seconds the server has been running, by its clock; SQLite has none that could be away.

    Negative after that clock was set back past the server's start.
    """
    if connection.vendor != "postgresql":
        return float("inf")
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())")
        return float(cursor.fetchone()[0])


def create_requested_jobs() -> int:
    """Turn the domain's wishes into jobs, each exactly once."""
    count = 0
    # What people are told of and what is settled is no job: other steps of the dispatcher take these.
    for request in WorkRequest.objects.filter(taken_at=None, kind__in=Job.Kind.values):
        kind = Job.Kind(request.kind)
        with transaction.atomic():
            if not WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
                continue
            if request.dataset_id is None or (kind in _ONCE and _is_waiting(kind, request.dataset_id)):
                continue  # it will find the dataset as it is now
            Job.objects.create(
                kind=kind,
                queue=Job.Queue.CPU if kind in _RETRIEVING else Job.Queue.SCORE,
                dataset_id=request.dataset_id,
                payload=request.payload,
                state=State.QUEUED,
                validated=True,
            )
            count += 1
    return count


def _is_waiting(kind: Job.Kind, dataset_id: int) -> bool:
    """Return whether such a job waits that nobody has claimed."""
    return Job.objects.waiting().filter(kind=kind, dataset=dataset_id).exists()


def wake_waiting_queues() -> None:
    """Send one wakeup for every queue that has waiting jobs: what a lost message, or a restart, left behind.

    Not where messages lie already: a worker that comes takes those, and without one they would pile up in the broker.
    """
    for queue in Job.objects.waiting().order_by().values_list("queue", flat=True).distinct():
        if not wakeup.count_pending(queue):
            wakeup.send_wakeup(WORK, queue, queue=queue)


def queue_position(job: Job) -> int | None:
    """Return how many jobs are before this one in its queue; None when it does not wait."""
    if job.state not in (State.QUEUED, State.VALIDATING) or job.lease_expires_at is not None:
        return None
    if awaits_judgements(job):
        return None
    priority = _PRIORITIES.get(Job.Kind(job.kind), 1)
    earlier = Q(turn__lt=job.turn) | Q(turn=job.turn, pk__lt=job.pk)
    waiting = Job.objects.waiting().filter(queue=job.queue).annotate(priority=_PRIORITY)
    return waiting.filter(Q(priority__lt=priority) | Q(earlier, priority=priority)).count()


def awaits_judgements(job: Job) -> bool:
    """Return whether the job has nothing to do before its dataset is judged."""
    checked = job.kind in Job.NEEDS_JUDGEMENTS or (job.kind == Job.Kind.SCORE and job.validated)
    return checked and job.state in (State.QUEUED, State.VALIDATING) and job.dataset.awaits_judgements


def request_cancel(job: Job) -> bool:
    """Cancel the job: at once where it waits, through its worker where it runs. False when it had ended."""
    if job.lease_expires_at is None and advance(job.pk, State.CANCELLED, fence=job.fence):
        return True
    # It runs, perhaps since we looked: its worker, or the moment of publishing, sees the wish.
    wished = Job.objects.filter(pk=job.pk).exclude(state__in=TERMINAL).update(cancel_requested=True)
    # Or it was put back since: nobody would see the wish before the next claim, which may be far away.
    waits = Job.objects.filter(pk=job.pk, cancel_requested=True, lease_expires_at=None)
    for fence in waits.exclude(state__in=TERMINAL).values_list("fence", flat=True):
        advance(job.pk, State.CANCELLED, fence=fence)
    return bool(wished)
