"""Holding a claimed job: a thread says that we are alive and how far we are, and hears when to stop.

How long each stage took is noted meanwhile, and added up once the attempt has ended.
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
from submissions.sandbox.machine_lock import WAITING

logger = logging.getLogger(__name__)

#: Seconds between two signs of life, which also look for a wish to cancel; a lease is thirty times as long by default.
LOOK: float = settings.QUEUE_TIMES.look
#: Set in pool processes, which are replaced when they end: one whose work does not stop when it must is ended.
ENDS_ITS_PROCESS = threading.Event()
#: Upper limits of the buckets, in seconds: from a run that is scored at once to a model that runs all day.
LIMITS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
STOPPED = "The worker was stopped; the job goes on elsewhere."
#: The bucket of all.
NO_LIMIT = 0.0
#: A new bucket begins with what is counted now, be it nothing, so that a histogram has all of them.
_UPSERT = """INSERT INTO submissions_stagetime AS kept (kind, stage, "limit", count, seconds) VALUES {}
ON CONFLICT (kind, stage, "limit") DO UPDATE SET count = kept.count + excluded.count,
seconds = kept.seconds + excluded.seconds WHERE excluded.count > 0"""


class WorkEnded(Exception):
    """The work on a job ended without a result; each subclass says what becomes of the job."""

    def settle(self, job: Job) -> None:
        """Move the job to where it goes from here, once its lease is not kept alive any more."""
        raise NotImplementedError


class LeaseLost(WorkEnded):
    """Another worker holds the job now, or it has ended: write nothing more."""

    def settle(self, job: Job) -> None:
        """Nothing is left to do here."""
        logger.warning("job %s: another worker holds it now, nothing was written", job.pk)


class Cancelled(WorkEnded):
    """The submitter asked to stop."""

    def settle(self, job: Job) -> None:
        """End the job."""
        advance(job.pk, State.CANCELLED, fence=job.fence, line="Cancelled.")


class Stopped(LeaseLost):
    """The worker is to stop: the job goes back into the queue, as if nobody had tried it."""

    def settle(self, job: Job) -> None:
        """Put the job back."""
        requeue(job, counted=False, line=STOPPED)


def advance_claimed(job: Job, to: State, *, line: str = "", **changes: object) -> None:
    """Move the job on, in the transaction that writes its result.

    Raises Cancelled where its submitter asked to stop before this moment, LeaseLost where the claim is gone.
    """
    # A run that is done counts; only that of a seed may decide for others of its set.
    charged = job.submission_id is not None and (to != State.DONE or bool(job.seed))
    options: dict[str, Any] = {"charged": charged, "line": line, **changes}
    if not advance(job.pk, to, fence=job.fence, unless_cancelled=True, **options):
        stopped = Job.objects.filter(pk=job.pk, fence=job.fence, cancel_requested=True).exists()
        raise Cancelled if stopped else LeaseLost
    job.state = to


def finish(job: Job, line: str) -> None:
    """End the job as done, with a line in its log, in the transaction that writes its result.

    Raises as `advance_claimed`.
    """
    advance_claimed(job, State.DONE, progress=1.0, line=line)


class Lease:
    """What the working code tells (progress) and asks (may I go on?) while it works."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stage = job.stage
        #: How long each stage takes; the stages of what is done here, in this thread, enter by themselves.
        self.clock = StageTimer(job.stage)
        self.progress = 0.0
        self.note = ""
        #: Seconds in which the job waited for the machine, as of the last report.
        self.waited = 0.0
        self._reported_at = self.claimed_at = time.monotonic()
        #: When the row was last told of it, and with which stage.
        self.extended_at, self.told_stage = self.claimed_at, job.stage
        self.lost = False
        self.lost_database = False
        self.cancelled = False
        #: For how many seconds the work has not stopped though it must.
        self.unheard = 0.0

    @property
    def seconds_left(self) -> float:
        """For how many seconds the job may go on, beside those that it waits for the machine."""
        return settings.JOB_WALL_CLOCK_SECONDS - (time.monotonic() - self.claimed_at - self.waited)

    def report(self, progress: float) -> None:
        """Note how far the work is, 0 to 1. Raises LeaseLost or Cancelled when it must stop."""
        self.progress = progress
        self.check()

    def report_stage(self, stage: str, progress: float, note: str = "") -> None:
        """Note the stage too, and what a bar cannot say of it."""
        now = time.monotonic()
        if stage != self.stage:
            self.clock.enter(stage)
        if self.stage == WAITING:
            self.waited += now - self._reported_at
        self._reported_at = now
        self.stage, self.note = stage, note
        self.report(progress)

    def check(self) -> None:
        """Raise LeaseLost, Stopped or Cancelled when the work must stop."""
        if self.lost:
            raise LeaseLost
        if STOPPING.is_set():
            raise Stopped
        if self.cancelled:
            raise Cancelled

    def look_after(self) -> None:
        """Extend the lease. End this process if its work, foreign code that never asks, does not stop as it must."""
        try:
            if not self.lost:
                self.extend()
        except Exception:
            logger.exception("fault %s in keeping a lease", secrets.token_hex(4))
        self.unheard = self.unheard + LOOK if self.lost or self.cancelled else 0.0
        if self.unheard > settings.QUEUE_TIMES.unheard and ENDS_ITS_PROCESS.is_set():
            logger.error("job %s must stop and does not: the process ends", self.job.pk)
            with suppress(DatabaseError):
                if self.cancelled and not self.lost:
                    advance(self.job.pk, State.CANCELLED, fence=self.job.fence)
            os.kill(os.getpid(), signal.SIGKILL)

    def extend(self) -> None:
        """Report that the worker is alive, and note whether the work must stop."""
        job = self.job
        try:
            if self.seconds_left < 0:
                time_out(job)  # the dispatcher does so too, but it may be away
            now, stage = time.monotonic(), self.stage
            # Nobody watches the progress of a shard, or waits for it to be cancelled: its row is written several times
            # in a lease, and not at each look. Hundreds of workers look.
            is_recent = stage == self.told_stage and now - self.extended_at < settings.QUEUE_TIMES.lease / 6
            if job.kind == Job.Kind.SHARD and is_recent:
                return
            told = (self.progress, stage, self.note)
            if not extend_lease(job, *told, waited=self.waited, unless_cancelled=True):
                held = Job.objects.filter(pk=job.pk, fence=job.fence).exclude(state__in=TERMINAL)
                self.cancelled = held.filter(cancel_requested=True).exists()
                # It is held until the work has stopped.
                self.lost = not (self.cancelled and extend_lease(job, *told, waited=self.waited))
            self.extended_at, self.told_stage = now, stage
        except DatabaseError:
            connection.close()  # the next look opens a new one; the lease outlasts several failures


class _Keeper(threading.Thread):
    """Keeps a lease alive, one after the other over one connection: to open one costs more than all a shard asks."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="lease")
        self._lease: Lease | None = None
        #: Held while the row is told: whoever lets go of a lease waits for that.
        self._telling = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def hold(self, lease: Lease) -> Iterator[None]:
        """Keep this one alive while the block runs."""
        with self._telling:
            self._lease = lease
        try:
            yield
        finally:
            with self._telling:
                self._lease = None

    def end(self) -> None:
        """Return when the thread has ended."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        try:
            while not self._ended.wait(LOOK):
                with self._telling:
                    if self._lease is not None and time.monotonic() - self._lease.claimed_at >= LOOK:
                        self._lease.look_after()
        finally:
            connection.close()


_own = threading.local()


@contextmanager
def keep_leases() -> Iterator[None]:
    """Have all leases that this thread holds in the block kept by one thread, over one connection."""
    _own.keeper = keeper = _Keeper()
    keeper.start()
    try:
        yield
    finally:
        _own.keeper = None
        keeper.end()


@contextmanager
def hold_lease(job: Job) -> Iterator[Lease]:
    """Keep the job's lease alive while the block runs."""
    with ExitStack() as stack:
        if getattr(_own, "keeper", None) is None:
            stack.enter_context(keep_leases())
        lease = Lease(job)
        try:
            with _own.keeper.hold(lease), job_context(job.pk):
                yield lease
        except DatabaseError:
            lease.lost_database = True
            raise
        finally:
            # Figures only: no job fails for want of them. Who lost the job, or the database, writes nothing.
            if not lease.lost and not lease.lost_database:
                try:
                    add_stage_times(job.kind, lease.clock.ended())
                except DatabaseError:
                    logger.warning("the stage times of job %s were not recorded", job.pk)


class StageTimer:
    """Seconds by stage, of one attempt. Not for several threads."""

    def __init__(self, stage: str) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = stage
        self._since = time.monotonic()

    def enter(self, stage: str) -> None:
        """The stage so far has ended; `stage` begins, perhaps again."""
        now = time.monotonic()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    def ended(self) -> Mapping[str, float]:
        """Seconds by stage, now that the attempt has ended. Time before any stage was named counts as "starting"."""
        self.enter(self._stage)
        return {stage or "starting": seconds for stage, seconds in self._seconds.items()}


def add_stage_times(kind: str, seconds: Mapping[str, float]) -> None:
    """Count each of these stages in its buckets, in one statement, so that two workers lose none of each other's.

    `bulk_create(update_conflicts=True)` would put the new counts in place of the old ones. The rows are in the order of
    their key, so two statements at once take the rows' locks in one order and no deadlock comes of it.
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
    """For each kind and stage: (kind, stage, [(limit, how many took at most so long)], how many in all, seconds)."""
    rows: dict[tuple[str, str], list[StageTime]] = {}
    for row in StageTime.objects.all():
        rows.setdefault((row.kind, row.stage), []).append(row)
    for (kind, stage), buckets in rows.items():
        all_of_them = next((bucket for bucket in buckets if bucket.limit == NO_LIMIT), None)
        if all_of_them is not None:
            limits = [(bucket.limit, bucket.count) for bucket in buckets if bucket.limit != NO_LIMIT]
            yield kind, stage, limits, all_of_them.count, all_of_them.seconds
