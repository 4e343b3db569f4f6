"""Job queue in the database: states, claims, leases, and retries are columns of the job; Celery only sends wakeups.

Jobs change state by compare-and-set, along the transitions below. Each claim increments the fence, and writes with an
older fence change nothing. `reap` returns the jobs of silent workers to the queue, up to three attempts.
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
from leaderboard.models import User, WorkRequest
from submissions.models import TERMINAL, WAITING, Job, State
from submissions.quotas.ledger import settle_quota

_ENDS = {State.FAILED, State.CANCELLED, State.TIMED_OUT, State.WITHDRAWN}

#: Permitted transitions. Returning to a waiting state is a retry.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.UPLOADING: frozenset({State.VALIDATING, State.QUEUED, State.REJECTED} | _ENDS),
    # Queued: the run is valid and waits for judgments that its dataset does not have yet.
    State.VALIDATING: frozenset({State.VALIDATING, State.QUEUED, State.SCORING, State.REJECTED} | _ENDS),
    # Rejected: another job of the submission found that their checkpoint cannot be run.
    State.QUEUED: frozenset({State.QUEUED, State.RETRIEVING, State.SCORING, State.REJECTED} | _ENDS),
    # Retrieving again: a job that waits for the shards of its corpus. Done: a shard, which has nothing to score.
    State.RETRIEVING: frozenset({State.RETRIEVING, State.SCORING, State.QUEUED, State.REJECTED, State.DONE} | _ENDS),
    State.SCORING: frozenset({State.DONE, State.REJECTED, State.QUEUED, State.VALIDATING} | _ENDS),
    State.DONE: frozenset({State.WITHDRAWN}),
    **dict.fromkeys(TERMINAL - {State.DONE}, frozenset()),
}

#: The state of a submission is the first of these that one of its jobs has.
_PRECEDENCE = (
    State.UPLOADING, State.VALIDATING, State.QUEUED, State.RETRIEVING, State.SCORING, State.DONE,
    State.FAILED, State.TIMED_OUT, State.REJECTED, State.CANCELLED, State.WITHDRAWN,
)  # fmt: skip


def advance(
    job_id: int,
    new_state: State,
    *,
    fence: int | None = None,
    unless_cancelled: bool = False,
    charged: bool = True,
    line: str = "",
    **changes: Any,
) -> bool:
    """Move the job to `new_state` if its present state permits it and the caller still holds the claim.

    A single UPDATE, so that of two concurrent callers one succeeds. Ending a job frees its lease and the encoding that
    it waits for, and settles its quota. A claim that returns to the queue ends immediately, so that its holder can no
    longer write.

    Args:
        job_id: Key of the job.
        new_state: New state.
        fence: Fence of the caller's claim; None if the job need not be claimed.
        unless_cancelled: Do nothing if cancellation was requested.
        charged: False if the job belongs to no submission, so that no quota is read.
        line: Line for the log that the submitter reads.
        **changes: Other columns to set.

    Returns:
        Whether the job moved.
    """
    sources = [state for state, followers in TRANSITIONS.items() if new_state in followers]
    jobs = Job.objects.filter(pk=job_id, state__in=sources)
    if fence is not None:
        jobs = jobs.filter(fence=fence)
    if unless_cancelled:
        jobs = jobs.filter(cancel_requested=False)
    if line:
        changes["log"] = append_log_line(line)
    if new_state in WAITING:
        unclaimed_columns = {"lease_expires_at": None, "stage": "", "progress": 0.0, "progress_note": ""}
        changes = {**unclaimed_columns, **changes}
        if fence is not None:
            changes["fence"] = F("fence") + 1
    if new_state in TERMINAL:
        # A result that is withdrawn later keeps the time at which it finished.
        finished_at = Coalesce(F("finished_at"), Value(timezone.now()), output_field=DateTimeField())
        terminal_columns = {"lease_expires_at": None, "finished_at": finished_at, "waits_for": None}
        changes = {**terminal_columns, "stage": "", "progress_note": "", **changes}
        with transaction.atomic(savepoint=False):
            has_moved = jobs.update(state=new_state, **changes) == 1
            if has_moved and charged:
                settle_quota(job_id)
        return has_moved
    return jobs.update(state=new_state, **changes) == 1


def revive(job_id: int, new_state: State, **changes: Any) -> bool:
    """Move a failed or timed-out job to a waiting state, and reset its attempts and errors; return whether it moved.

    It is not one of the transitions, because holders of earlier claims must not be able to write.
    """
    jobs = Job.objects.filter(pk=job_id, state__in=(State.FAILED, State.TIMED_OUT))
    reset_columns: dict[str, Any] = {"attempts": 0, "progress": 0.0, "cancel_requested": False}
    texts = dict.fromkeys(("error_code", "fault", "worker"), "")
    times = dict.fromkeys(("started_at", "finished_at", "not_before"))
    return jobs.update(state=new_state, fence=F("fence") + 1, **reset_columns, **texts, **times, **changes) == 1


def log_line(line: str) -> str:
    """Return a line of the submitter's log with its time."""
    return f"{timezone.now():%H:%M:%S}  {line}\n"


def append_log_line(line: str) -> Concat:
    """Return an expression that appends a line to the log."""
    return Concat(F("log"), Value(log_line(line)))


def write_log(job_id: int, line: str) -> None:
    """Append a line to the log that the submitter reads."""
    Job.objects.filter(pk=job_id).update(log=append_log_line(line))


def submission_state(states: Iterable[str]) -> State:
    """Return the state of a submission from the states of its jobs.

    That is the least advanced state while a job is active, then `done` if any job is done, else the worst state.
    """
    job_states = set(states)
    return next((state for state in _PRECEDENCE if state in job_states), State.UPLOADING)


# --- claims


ATTEMPTS = 3
#: Delays before the second and third attempt. A lost worker is usually replaced immediately; after a second loss, wait.
BACKOFF = tuple(timedelta(seconds=seconds) for seconds in settings.QUEUE_TIMES.retries)
#: Background job kinds, scheduled after all scoring.
_BACKGROUND_KINDS = (Job.Kind.CERTAINTY, Job.Kind.STATISTICS)
#: Kinds that read the dataset when they begin, so that one waiting job is enough.
_SINGLE_KINDS = (*_BACKGROUND_KINDS, Job.Kind.BASELINE)
#: Kinds of jobs for retrievers; jobs that read judgments run on the scorer.
_RETRIEVING = (Job.Kind.BASELINE, Job.Kind.RETRIEVE, Job.Kind.SAMPLE_MODEL, Job.Kind.STATISTICS)
#: Downloads, for which a curator waits, and baselines, with which a dataset is published, are first. Rescores are last
#: among scoring jobs.
_PRIORITIES = {Job.Kind.DOWNLOAD: 0, Job.Kind.BASELINE: 0, Job.Kind.RESCORE: 2, **dict.fromkeys(_BACKGROUND_KINDS, 3)}
_PRIORITY = Case(*(When(kind=kind, then=turn) for kind, turn in _PRIORITIES.items()), default=1)
#: Columns that a retriever may not read (leaderboard.core.database_grants); of users it may read id and name.
_NOT_READ = (
    "submission__note", "submission__withdrawal_reason",
    *(f"submission__submitter__{field.name}" for field in User._meta.concrete_fields
      if field.name not in ("id", "name")),
)  # fmt: skip
#: Key in a job's payload: seconds of work by earlier holders, before the job was handed over.
WORKED_SECONDS = "worked_seconds"
#: Name of the task that a wakeup starts. Part of the protocol with the broker.
WORK = "runboard.work"


def wake_worker(queue: str) -> None:
    transaction.on_commit(partial(wakeup.send_wakeup, WORK, queue, queue=queue))


def _lease_end() -> CombinedExpression:
    """Return the end of a new lease by the database's clock, since the clocks of workers may differ."""
    return Now() + timedelta(seconds=settings.QUEUE_TIMES.lease)


def claim(queues: Sequence[str], worker: str, job_filter: Q | None = None) -> Job | None:
    """Claim the next waiting job in these queues under a lease, or return None if there is none.

    `job_filter` restricts the jobs to those that this worker can run, see `Capability.job_filter`.
    """
    while True:
        with transaction.atomic():
            candidates = (
                Job.objects.waiting().filter(job_filter or Q(), queue__in=queues).order_by(_PRIORITY, "turn", "pk")
            )
            if connection.features.has_select_for_update_skip_locked:
                candidates = candidates.select_for_update(skip_locked=True, of=("self",))
            candidate = candidates.values("pk", "fence", "kind").first()
            if candidate is None:
                return None
            # The row is locked, on SQLite with the database, so comparing the fence suffices.
            rows = Job.objects.filter(pk=candidate["pk"], fence=candidate["fence"])
            if rows.update(
                fence=F("fence") + 1,
                attempts=F("attempts") + 1,
                lease_expires_at=_lease_end(),
                worker=worker,
                started_at=Now(),
                progress=0.0,
                progress_note="",
            ):
                jobs = Job.objects.filter(pk=candidate["pk"])
                if candidate["kind"] == Job.Kind.SHARD:
                    return jobs.get()
                related = ("dataset__current_version", "submission__submitter", "submission__system__team")
                deferred = () if settings.PRIVATE_STORAGE else _NOT_READ
                return jobs.select_related(*related).defer(*deferred).get()


def next_turn(queue: str, team_id: int | None) -> int:
    """Return the round for the team's next job in a queue: one after its last waiting job, else the present round.

    Each of a team's waiting jobs is thus in a separate round, and every team's first job precedes any second job. A.
    Demers et al., "Analysis and simulation of a fair queueing algorithm", 1989, for jobs instead of packets.
    """
    waiting_jobs = Job.objects.filter(queue=queue, state__in=WAITING, lease_expires_at=None)
    team_jobs = Q(submission__team=team_id) | Q(shard__encoding__waiting_jobs__submission__team=team_id)
    turns = waiting_jobs.aggregate(present=Min("turn"), last=Max("turn", filter=team_jobs if team_id else Q(pk=None)))
    return max(turns["present"] or 0, -1 if turns["last"] is None else turns["last"] + 1)


def extend_lease(
    job: Job,
    progress: float,
    stage: str,
    note: str = "",
    *,
    waited: float = 0.0,
    unless_cancelled: bool = False,
) -> bool:
    """Extend the lease and write the progress. Return False if the claim is no longer the caller's.

    Args:
        job: The claimed job.
        progress: Share of the work, 0 to 1.
        stage: Name of the stage.
        note: Details for the submitter.
        waited: Seconds since the claim spent waiting for the machine. They move the start of
            the job, so that they count neither towards JOB_WALL_CLOCK_SECONDS nor in estimates.
        unless_cancelled: Write nothing and return False also if cancellation was requested.
    """
    rows = Job.objects.filter(pk=job.pk, fence=job.fence).exclude(state__in=TERMINAL)
    if unless_cancelled:
        rows = rows.filter(cancel_requested=False)
    columns = {"progress": min(max(progress, 0.0), 1.0), "stage": stage, "progress_note": note[:120]}
    if waited and job.started_at is not None:
        columns["started_at"] = job.started_at + timedelta(seconds=waited)
    return rows.update(lease_expires_at=_lease_end(), **columns) == 1


def earlier_work_seconds(payload: Mapping[str, Any]) -> float:
    """Return the seconds of work, without waiting, until the job was last handed over."""
    return float(payload.get(WORKED_SECONDS, 0.0))


def waiting_state(job: Job) -> State:
    """Return the state in which the job waits for its next attempt."""
    return State.QUEUED if job.validated or job.kind != Job.Kind.SCORE else State.VALIDATING


def requeue(job: Job, *, counts_attempt: bool, delay: timedelta = timedelta(0), line: str = "") -> bool:
    """Return a claimed job to the queue, or end it if cancellation was requested.

    Args:
        job: The claimed job.
        counts_attempt: Whether the attempt counts; it does not if the worker was stopped.
        delay: Minimum delay before the next attempt if this one does not count.
        line: Line for its log.

    Returns:
        Whether the claim was still the caller's.
    """
    attempts = job.attempts if counts_attempt else job.attempts - 1
    delay = BACKOFF[min(attempts, len(BACKOFF)) - 1] if counts_attempt else delay
    changes: dict[str, Any] = {"attempts": attempts, "not_before": Now() + delay if delay else None}
    if has_moved := advance(job.pk, waiting_state(job), fence=job.fence, unless_cancelled=True, line=line, **changes):
        wake_worker(job.queue)
    return has_moved or end_cancelled(job)


def end_cancelled(job: Job, line: str = "") -> bool:
    """End a claimed job if cancellation was requested. Return False if not, or if the claim is over."""
    is_requested = Job.objects.filter(pk=job.pk, fence=job.fence, cancel_requested=True).exists()
    return is_requested and advance(job.pk, State.CANCELLED, fence=job.fence, line=line)


def release(job: Job) -> None:
    """Clear the job's worker once its process has stopped.

    If another process has ended or requeued the job, the cleared name is the only sign that the former process has
    stopped working on it.
    """
    completed_states = (State.DONE, State.REJECTED, State.FAILED)
    released_jobs = Job.objects.filter(pk=job.pk, worker=job.worker, lease_expires_at=None)
    released_jobs.exclude(state__in=completed_states).update(worker="")


def reap() -> int:
    """End or requeue jobs whose workers are silent or which ran too long; return their number.

    Does nothing shortly after a restart of the database, since workers could not extend their leases before.
    """
    # A negative uptime means that the clock was set back past the server's start. It says nothing about the real
    # uptime, so do not wait. A clock set back by less causes one pause of a few seconds, as a restart does.
    if 0 <= _database_uptime() < 5 * settings.QUEUE_TIMES.claim_interval:
        return 0
    count = 0
    for job in Job.objects.expired():
        if job.attempts >= ATTEMPTS:
            line = "The worker was lost three times. This is a fault on our side."
            reason: dict[str, Any] = {"line": line, "error_code": "worker_lost"}
            has_failed = advance(job.pk, State.FAILED, fence=job.fence, unless_cancelled=True, **reason)
            count += has_failed or end_cancelled(job)
        else:
            count += requeue(job, counts_attempt=True, line="The worker was lost. The job will be retried.")
    # The holder also counts by its own monotonic clock (lease.py), which expires first if the clock was set back.
    limit = Now() - timedelta(seconds=settings.JOB_WALL_CLOCK_SECONDS)
    overdue_jobs = Job.objects.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False, started_at__lt=limit)
    return count + sum(time_out(job) for job in overdue_jobs)


def time_out(job: Job) -> bool:
    """End a claimed job that ran longer than JOB_WALL_CLOCK_SECONDS."""
    line = "The job exceeded its time limit and was stopped."
    return advance(job.pk, State.TIMED_OUT, fence=job.fence, line=line, error_code="timed_out")


def _database_uptime() -> float:
    """Return the server's uptime in seconds by its own clock; infinite for SQLite.

    The result is negative if that clock was set back past the server's start.
    """
    if connection.vendor != "postgresql":
        return float("inf")
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())")
        return float(cursor.fetchone()[0])


def create_requested_jobs() -> int:
    """Create a job for each new work request, exactly once; return their number.

    For kinds that read the dataset when they begin, no job is created if one already waits. Each batch of topics is
    started by one job.
    """
    count = 0
    # Other steps of the dispatcher process requests for notices and settlements.
    for request in WorkRequest.objects.filter(taken_at=None, kind__in=Job.Kind.values):
        kind = Job.Kind(request.kind)
        with transaction.atomic():
            if not WorkRequest.objects.filter(pk=request.pk, taken_at=None).update(taken_at=timezone.now()):
                continue
            if request.dataset_id is None or _has_job(kind, request):
                continue
            Job.objects.create(
                kind=kind, queue=Job.Queue.CPU if kind in _RETRIEVING else Job.Queue.SCORE,
                dataset_id=request.dataset_id, payload=request.payload, state=State.QUEUED, validated=True,
            )  # fmt: skip
            count += 1
    return count


def _has_job(kind: Job.Kind, request: WorkRequest) -> bool:
    """Return whether a job will do this work: one that will read the present dataset, or that starts the same batch."""
    same_work = {"kind": kind, "dataset": request.dataset_id}
    if kind == Job.Kind.RENEW:
        same_work["payload__number"] = request.payload["number"]
        return Job.objects.filter(**same_work).exclude(state__in=TERMINAL).exists()
    return kind in _SINGLE_KINDS and Job.objects.waiting().filter(**same_work).exists()


def wake_waiting_queues() -> None:
    """Send one wakeup for each queue with waiting jobs, in case messages were lost.

    Queues with pending messages are skipped, since without workers messages would pile up in the broker.
    """
    for queue in Job.objects.waiting().order_by().values_list("queue", flat=True).distinct():
        if not wakeup.count_pending(queue):
            wakeup.send_wakeup(WORK, queue, queue=queue)


def queue_position(job: Job) -> int | None:
    """Return the number of jobs before this one in its queue, or None if it does not wait for a worker.

    A job that waits for judgments does not wait for a worker.
    """
    if job.state not in (State.QUEUED, State.VALIDATING) or job.lease_expires_at is not None:
        return None
    if awaits_judgements(job):
        return None
    priority = _PRIORITIES.get(Job.Kind(job.kind), 1)
    precedes = Q(turn__lt=job.turn) | Q(turn=job.turn, pk__lt=job.pk)
    waiting_jobs = Job.objects.waiting().filter(queue=job.queue).annotate(priority=_PRIORITY)
    return waiting_jobs.filter(Q(priority__lt=priority) | Q(precedes, priority=priority)).count()


def awaits_judgements(job: Job) -> bool:
    """Return whether the job cannot continue before its dataset has judgments."""
    needs_judgements = job.kind in Job.NEEDS_JUDGEMENTS or (job.kind == Job.Kind.SCORE and job.validated)
    return needs_judgements and job.state in (State.QUEUED, State.VALIDATING) and job.dataset.awaits_judgements


def request_cancel(job: Job) -> bool:
    """Cancel a waiting job immediately, or a running one through its worker. Return False if it had ended."""
    if job.lease_expires_at is None and advance(job.pk, State.CANCELLED, fence=job.fence):
        return True
    # It may have been claimed meanwhile: its worker, or the final transaction, sees the request.
    updated_count = Job.objects.filter(pk=job.pk).exclude(state__in=TERMINAL).update(cancel_requested=True)
    # It may have been requeued meanwhile: nothing would see the request before the next claim.
    unclaimed_jobs = Job.objects.filter(pk=job.pk, cancel_requested=True, lease_expires_at=None)
    for fence in unclaimed_jobs.exclude(state__in=TERMINAL).values_list("fence", flat=True):
        advance(job.pk, State.CANCELLED, fence=fence)
    return bool(updated_count)
