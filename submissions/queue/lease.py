"""Leases of claimed jobs, extended by a thread that also learns when the work must stop.

The time of each stage is recorded and added to the histograms at the end of the attempt.
"""

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from leaderboard.core.logging import job_context
from submissions.models import TERMINAL, Job, StageTime, State
from submissions.queue.queue import advance, extend_lease, requeue, time_out
from submissions.queue.workers import STOPPING
from submissions.sandbox.machine_lock import WAITING_STAGE

logger = logging.getLogger(__name__)

#: Seconds between two heartbeats of a job, which also check for cancellation. By default a lease lasts 30 times as
#: long.
CHECK_INTERVAL: float = settings.QUEUE_TIMES.claim_interval
#: Set in pool processes: a process whose work does not stop when it must is killed and replaced.
ENDS_ITS_PROCESS = threading.Event()
#: Upper limits of the histogram buckets in seconds, from the scoring of small runs to models that run all day.
LIMITS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
STOPPED_LINE = "The worker was stopped. The job continues on another worker."
#: Limit of the bucket that counts all attempts.
NO_LIMIT = 0.0
#: New buckets start with the present count, even if it is zero, so that each histogram has all buckets.
_UPSERT = """INSERT INTO submissions_stagetime AS kept (kind, stage, "limit", count, seconds) VALUES {}
ON CONFLICT (kind, stage, "limit") DO UPDATE SET count = kept.count + excluded.count,
seconds = kept.seconds + excluded.seconds WHERE excluded.count > 0"""


class WorkEnded(Exception):
    """Base class of exceptions that end the work on a job without a result."""

    def settle(self, job: Job) -> None:
        """Move the job to its next state once the lease is no longer extended."""
        raise NotImplementedError


class LeaseLost(WorkEnded):
    """Raised when a worker has lost its claim, because the job has ended or another worker has claimed it."""

    def settle(self, job: Job) -> None:
        """Log that nothing was written."""
        logger.warning("Job %s: another worker has claimed it; nothing was written.", job.pk)


class Cancelled(WorkEnded):
    """Raised when the submitter has canceled the job."""

    def settle(self, job: Job) -> None:
        advance(job.pk, State.CANCELLED, fence=job.fence, line="Canceled.")


class Stopped(LeaseLost):
    """Exception while the worker stops. The job returns to the queue, and the attempt does not count."""

    def settle(self, job: Job) -> None:
        requeue(job, counts_attempt=False, line=STOPPED_LINE)


def advance_claimed(job: Job, new_state: State, *, line: str = "", **changes: object) -> None:
    """Move a claimed job to another state, in the transaction that writes its result.

    Raises:
        Cancelled: If the submitter canceled the job.
        LeaseLost: If the claim was lost.
    """
    # A finished run keeps its unit. Only the end of a seed may settle the unit of its seed set.
    charged = job.submission_id is not None and (new_state != State.DONE or bool(job.seed))
    options: dict[str, Any] = {"charged": charged, "line": line, **changes}
    if not advance(job.pk, new_state, fence=job.fence, unless_cancelled=True, **options):
        is_cancelled = Job.objects.filter(pk=job.pk, fence=job.fence, cancel_requested=True).exists()
        raise Cancelled if is_cancelled else LeaseLost
    job.state = new_state


def finish(job: Job, line: str) -> None:
    """Mark the job as done with a line in its log, in the transaction that writes its result.

    Raises the exceptions of `advance_claimed`.
    """
    advance_claimed(job, State.DONE, progress=1.0, line=line)


class Lease:
    """Lease of a job, through which the work reports progress and learns whether it must stop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stage = job.stage
        #: Time per stage; stages of work in this thread are entered by `report_stage`.
        self.clock = StageTimer(job.stage)
        self.progress = 0.0
        self.note = ""
        #: Seconds spent waiting for the machine, as of the last report.
        self.waited = 0.0
        self._reported_at = self.claimed_at = time.monotonic()
        #: Time of the last extension written to the row.
        self.extended_at = self.claimed_at
        self.lost = False
        self.lost_database = False
        self.cancelled = False
        #: Seconds for which the work has ignored the request to stop.
        self.ignored_seconds = 0.0

    @property
    def seconds_left(self) -> float:
        """Remaining wall-clock time in seconds, not counting the time spent waiting for the machine."""
        return settings.JOB_WALL_CLOCK_SECONDS - (time.monotonic() - self.claimed_at - self.waited)

    def report(self, progress: float) -> None:
        """Record the progress, 0 to 1. Raises LeaseLost, Stopped, or Cancelled if the work must stop."""
        self.progress = progress
        self.check()

    def report_stage(self, stage: str, progress: float, note: str = "") -> None:
        """Record the stage and progress, with a note for details that a progress bar cannot show."""
        now = time.monotonic()
        if stage != self.stage:
            self.clock.enter(stage)
        if self.stage == WAITING_STAGE:
            self.waited += now - self._reported_at
        self._reported_at = now
        self.stage, self.note = stage, note
        self.report(progress)

    def check(self) -> None:
        """Raise LeaseLost, Stopped, or Cancelled if the work must stop."""
        if self.lost:
            raise LeaseLost
        if STOPPING.is_set():
            raise Stopped
        if self.cancelled:
            raise Cancelled

    def extend_or_kill(self) -> None:
        """Extend the lease, and kill this process if its work ignores the request to stop.

        Third-party code may run for long without checking the lease.
        """
        try:
            if not self.lost:
                self.extend()
        except Exception:
            logger.exception("Fault %s while extending a lease", secrets.token_hex(4))
        self.ignored_seconds = self.ignored_seconds + CHECK_INTERVAL if self.lost or self.cancelled else 0.0
        if self.ignored_seconds > settings.QUEUE_TIMES.cancellation_grace and ENDS_ITS_PROCESS.is_set():
            logger.error("Job %s must stop but does not: killing this process.", self.job.pk)
            with suppress(DatabaseError):
                if self.cancelled and not self.lost:
                    advance(self.job.pk, State.CANCELLED, fence=self.job.fence)
            os.kill(os.getpid(), signal.SIGKILL)

    def extend(self) -> None:
        """Extend the lease in the database, and record whether the work must stop."""
        job = self.job
        try:
            if self.seconds_left < 0:
                time_out(job)  # the dispatcher also checks this, but it may be down
            now = time.monotonic()
            # Users do not watch or cancel single shards, and hundreds of workers extend leases: write the row of a
            # shard only twice per lease.
            if job.kind == Job.Kind.SHARD and now - self.extended_at < settings.QUEUE_TIMES.lease / 2.5:
                return
            report = (self.progress, self.stage, self.note)
            if not extend_lease(job, *report, waited=self.waited, unless_cancelled=True):
                active_jobs = Job.objects.filter(pk=job.pk, fence=job.fence).exclude(state__in=TERMINAL)
                self.cancelled = active_jobs.filter(cancel_requested=True).exists()
                # Keep the lease until the work has stopped.
                self.lost = not (self.cancelled and extend_lease(job, *report, waited=self.waited))
            self.extended_at = now
        except DatabaseError:
            connection.close()  # the next attempt opens a new one; the lease outlasts several failures


class _LeaseKeeper(threading.Thread):
    """Thread that extends one lease after another over one database connection.

    Opening a connection costs more than all queries of a shard.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="lease")
        self._lease: Lease | None = None
        #: Held during an extension, so that a lease is released only after it.
        self._extension_lock = threading.Lock()
        self._stop_event = threading.Event()

    @contextmanager
    def hold(self, lease: Lease) -> Iterator[None]:
        """Extend this lease while the block runs."""
        with self._extension_lock:
            self._lease = lease
        try:
            yield
        finally:
            with self._extension_lock:
                self._lease = None

    def end(self) -> None:
        """Stop the thread and wait for it."""
        self._stop_event.set()
        self.join()

    def run(self) -> None:
        """Extend the present lease at each interval until `end` is called."""
        try:
            while not self._stop_event.wait(CHECK_INTERVAL):
                with self._extension_lock:
                    if self._lease is not None and time.monotonic() - self._lease.claimed_at >= CHECK_INTERVAL:
                        self._lease.extend_or_kill()
        finally:
            connection.close()


_thread_local = threading.local()


@contextmanager
def keep_leases() -> Iterator[None]:
    """Use one thread and one connection for all leases that the current thread holds in the block."""
    _thread_local.keeper = keeper = _LeaseKeeper()
    keeper.start()
    try:
        yield
    finally:
        _thread_local.keeper = None
        keeper.end()


@contextmanager
def hold_lease(job: Job) -> Iterator[Lease]:
    """Yield the job's lease, which is extended while the block runs. Record the stage times at the end."""
    with ExitStack() as stack:
        if getattr(_thread_local, "keeper", None) is None:
            stack.enter_context(keep_leases())
        lease = Lease(job)
        try:
            with _thread_local.keeper.hold(lease), job_context(job.pk):
                yield lease
        except DatabaseError:
            lease.lost_database = True
            raise
        finally:
            # Statistics only: no job fails because of them. After losing the job or the database, write nothing.
            if not lease.lost and not lease.lost_database:
                try:
                    add_stage_times(job.kind, lease.clock.finish())
                except DatabaseError:
                    logger.warning("Job %s: its stage times were not recorded.", job.pk)


class StageTimer:
    """Timer of the stages of one attempt. Not thread-safe."""

    def __init__(self, stage: str) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = stage
        self._stage_start = time.monotonic()

    def enter(self, stage: str) -> None:
        """End the current stage and begin or resume `stage`."""
        now = time.monotonic()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._stage_start
        self._stage, self._stage_start = stage, now

    def finish(self) -> Mapping[str, float]:
        """End the current stage and return seconds by stage; time before the first stage counts as "starting"."""
        self.enter(self._stage)
        return {stage or "starting": seconds for stage, seconds in self._seconds.items()}


def add_stage_times(kind: str, seconds: Mapping[str, float]) -> None:
    """Add the stage times to the histograms in one statement, so that concurrent workers lose no counts.

    `bulk_create(update_conflicts=True)` would replace the old counts. The rows are sorted by key, so that two
    concurrent statements lock them in the same order and cannot deadlock.
    """
    values: list[str | float] = []
    for stage, duration in sorted(seconds.items()):
        values += [kind, stage, NO_LIMIT, 1, duration]
        for limit in LIMITS:
            values += [kind, stage, limit, int(duration <= limit), 0.0]
    rows = ", ".join(["(%s, %s, %s, %s, %s)"] * (len(values) // 5))
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(rows), values)


def histograms() -> Iterator[tuple[str, str, list[tuple[float, int]], int, float]]:
    """Yield (kind, stage, [(limit, cumulative count)], total count, total seconds) for each kind and stage."""
    rows: dict[tuple[str, str], list[StageTime]] = {}
    for row in StageTime.objects.all():
        rows.setdefault((row.kind, row.stage), []).append(row)
    for (kind, stage), buckets in rows.items():
        total = next((bucket for bucket in buckets if bucket.limit == NO_LIMIT), None)
        if total is not None:
            limits = [(bucket.limit, bucket.count) for bucket in buckets if bucket.limit != NO_LIMIT]
            yield kind, stage, limits, total.count, total.seconds
