"""Integration with Celery: heartbeats, graceful shutdown, replacement of hung processes, and polling.

At SIGTERM, work that checks its lease stops by itself, and the attempt does not count. After `GRACE` seconds the worker
kills the remaining pool processes and requeues their jobs.

Working pool processes extend their leases every `QUEUE_TIMES.claim_interval` seconds. The worker kills a process whose
lease was not extended for half its length at two consecutive checks: after an outage of the database, processes need a
moment to extend their leases. A process whose job was ended elsewhere notices at its next extension and kills itself if
the work continues; the worker kills processes that do neither.

Idle processes poll the database, so that lost messages or a missing broker only delay work. They poll in a thread,
because the event loop and its timers stop while the broker is not connected.
"""

import logging
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from celery import bootsteps
from celery.signals import worker_init, worker_process_init, worker_shutting_down
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis import ResponseError

from leaderboard import VERSION
from leaderboard.celery import app
from submissions.jobs.runner import drain_queue
from submissions.models import ENDED_BY_OTHERS, Job, Worker
from submissions.queue import workers
from submissions.queue.lease import ENDS_ITS_PROCESS, STOPPED_LINE
from submissions.queue.queue import release, requeue
from submissions.sandbox.processes import send_signal

logger = logging.getLogger(__name__)

#: Signal that makes a pool process stop. Celery uses SIGTERM (exit) and SIGUSR1 (soft time limit).
STOP_SIGNAL = signal.SIGUSR2
#: Seconds for work to stop by itself. The supervisor allows eight seconds in all.
GRACE = 1.5
_PAUSE = 0.1
#: Errors of malformed queue entries: invalid or too deeply nested JSON, or a missing field.
MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
#: Process id, and key and fence of the job that it has claimed.
Claim = tuple[int, int, int]


class WorkerPresence(bootsteps.StartStopStep):
    """Bootstep that runs the worker's heartbeat.

    It starts after the processes of the pool, and before the consumer connects to the broker.
    """

    requires = ("celery.worker.components:Pool",)  # type: ignore[assignment]  # untyped in Celery

    def __init__(self, worker: Any, **_: Any) -> None:
        self._worker = worker
        self._heartbeat: workers.Heartbeat | None = None
        self._draining: threading.Thread | None = None
        worker_shutting_down.connect(self._stop_working, weak=False)

    def start(self, worker: Any) -> None:
        """Start the heartbeat, which also kills hung processes and stops a worker that is idle for too long."""
        monitor, idle_since = HungProcessMonitor(workers.worker_name()), time.monotonic()
        idle_limit = settings.WORKER_UNTIL_IDLE

        def check() -> None:
            nonlocal idle_since
            monitor.kill_hung(self._pool())
            if idle_limit and _held_jobs():
                idle_since = time.monotonic()
            if not idle_limit or time.monotonic() - idle_since <= idle_limit:
                return
            # A job of this worker may have started and ended between two checks.
            own_jobs = Job.objects.filter(worker__startswith=f"{workers.worker_name()}:")
            if not own_jobs.filter(finished_at__gt=timezone.now() - timedelta(seconds=idle_limit)).exists():
                logger.info("The worker was idle for %g seconds and stops.", idle_limit)
                send_signal(os.getpid(), signal.SIGTERM)

        self._heartbeat = workers.Heartbeat(workers.worker_name(), workers.own_queues(), VERSION, callback=check)
        self._heartbeat.start()

    def stop(self, worker: Any) -> None:
        """Stop all work, requeue the worker's jobs, and end its heartbeat."""
        self._stop_working().join(2 * GRACE)
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    terminate = stop

    def _pool(self) -> list[int]:
        """Return the process ids of the pool; empty for pools without processes."""
        pool = getattr(self._worker.pool, "_pool", None)
        return [process.pid for process in list(getattr(pool, "_pool", ()))]

    def _stop_working(self, **_: Any) -> threading.Thread:
        """Stop all work and return the thread that requeues jobs. Called by a signal handler in the main thread."""
        if self._draining is None:
            workers.STOPPING.set()
            pool = [process for process in self._pool() if process != os.getpid()]
            for process in pool:
                send_signal(process, STOP_SIGNAL)
            # Not a daemon thread: the worker must wait for it.
            self._draining = threading.Thread(target=_drain_in_thread, args=(pool,), name="draining")
            self._draining.start()
        return self._draining


app.steps["worker"].add(WorkerPresence)


class BrokerRepair(bootsteps.StartStopStep):
    """Bootstep that keeps the consumer alive if the worker's queues contain anything but messages.

    Kombu would stop the worker on reading such an entry, or if a queue's key holds a value of another type. Here the
    consumer reconnects instead, as after a lost connection. Reading a malformed entry removes it.
    """

    def __init__(self, consumer: Any, **_: Any) -> None:
        consumer.channel_errors = (*consumer.channel_errors, *MALFORMED)

    def stop(self, consumer: Any) -> None:
        """Delete keys of the worker's queues that hold no list, before the consumer reconnects."""
        if consumer.blueprint.state != bootsteps.RUN:
            return  # the worker is stopping
        with suppress(OperationalError), consumer.app.connection_for_write() as broker:
            channel = broker.default_channel
            keys = [
                channel._q_for_pri(queue, step) for queue in workers.own_queues() for step in channel.priority_steps
            ]
            for key in keys:
                try:
                    channel.client.llen(key)
                except ResponseError as error:
                    logger.error("Deleting the broker's key %r, which is not a queue: %s", key, error)
                    channel.client.delete(key)


app.steps["consumer"].add(BrokerRepair)


@worker_init.connect
def register(sender: Any, **_: Any) -> None:
    """Set the worker's identity before the pool's processes are forked."""
    workers.set_identity(tuple(sender.app.amqp.queues.consume_from))


@worker_process_init.connect
def start_pool_process(**_: Any) -> None:
    """Install the signal handler of a pool process and start polling."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(STOP_SIGNAL, lambda number, frame: workers.STOPPING.set())
    ENDS_ITS_PROCESS.set()
    threading.Thread(target=_poll_forever, daemon=True, name="polling").start()


# --- returning work


def _drain_in_thread(pool: list[int]) -> None:
    """Drain the pool, and close this thread's database connection. Database errors are only logged."""
    try:
        drain_pool(pool)
    except DatabaseError as error:
        logger.warning("Could not requeue jobs; their leases will expire: %s", type(error).__name__)
    finally:
        connection.close()


def drain_pool(pool: list[int]) -> None:
    """Wait up to `GRACE` seconds until these processes hold no jobs; then kill them and requeue their jobs."""
    deadline = time.monotonic() + GRACE
    while (jobs := _held_jobs()) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    if not jobs:
        return
    for process in pool:
        send_signal(process, signal.SIGKILL)
    for job in _held_jobs():
        requeue(job, counts_attempt=False, line=STOPPED_LINE)


def _held_jobs() -> list[Job]:
    return list(Job.objects.claimed_by(workers.worker_name()))


# --- hung processes


class HungProcessMonitor:
    """Monitor of a worker's pool processes that compares consecutive checks."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._silent_claims: set[Claim] = set()
        #: Monotonic time of the check that found the job of a claim ended elsewhere.
        self._end_times: dict[Claim, float] | None = None
        #: Claims of a former worker of the same name. Its process ids may be reused; containers reuse both.
        self._former_claims: frozenset[Claim] = frozenset()

    def kill_hung(self, pool: Collection[int]) -> list[int]:
        """Kill pool processes that hang and return their ids. The pool replaces them.

        A process hangs if its claim is silent at two consecutive checks, or if its job ended elsewhere a while ago.
        """
        jobs = Job.objects.silent_or_ended(self._worker).only("worker", "fence", "state")
        jobs_by_claim = {(workers.process_number(job.worker), job.pk, job.fence): job for job in jobs}
        ended_elsewhere = {claim: job for claim, job in jobs_by_claim.items() if job.state in ENDED_BY_OTHERS}
        silent_claims = jobs_by_claim.keys() - ended_elsewhere
        hung = {claim: jobs_by_claim[claim] for claim in silent_claims & self._silent_claims} | self._ended_claims(
            ended_elsewhere
        )
        self._silent_claims = silent_claims
        killed_processes = []
        for (process, key, _), job in hung.items():
            if process in pool and process != os.getpid():
                logger.error("Process %s hangs (job %s); killing it.", process, key)
                send_signal(process, signal.SIGKILL)
                killed_processes.append(process)
                release(job)
        return killed_processes

    def _ended_claims(self, jobs: Mapping[Claim, Job]) -> dict[Claim, Job]:
        """Return the claims, with their jobs, that ended elsewhere so long ago that processes should have noticed."""
        now = time.monotonic()
        if self._end_times is None:
            self._former_claims = frozenset(jobs)
        first_seen = self._end_times or {}
        self._end_times = {claim: first_seen.get(claim, now) for claim in jobs.keys() - self._former_claims}
        grace_seconds = settings.QUEUE_TIMES.cancellation_grace + settings.QUEUE_TIMES.lease / 2
        return {claim: jobs[claim] for claim, seen_at in self._end_times.items() if now - seen_at > grace_seconds}


#: Actions when polling queues that hold no jobs; set in `submissions.tasks`.
TURNS: dict[str, Callable[[], object]] = {}


# --- polling


def drain_if_idle(queue: str) -> None:
    """Run the waiting jobs of a queue, unless this process is already working."""
    if not workers.AT_WORK.acquire(blocking=False):
        return
    try:
        drain_queue(queue, workers.process_name())
    finally:
        workers.AT_WORK.release()


def _poll_forever() -> None:
    """Poll the queues at slightly varying intervals until the worker stops, logging all errors."""
    # Spread the polls of processes that started together.
    while not workers.STOPPING.wait(settings.QUEUE_TIMES.idle_poll * random.uniform(0.8, 1.0)):  # noqa: S311
        try:
            close_old_connections()
            poll_queues()
        except DatabaseError as error:
            logger.warning("Polling failed because the database does not respond: %s", type(error).__name__)
            connection.close()
        except Exception:
            logger.exception("Fault %s while polling", secrets.token_hex(4))
    connection.close()


def poll_queues() -> None:
    """Run the waiting jobs in the queues of this worker, or a queue's action in `TURNS`, unless it refuses work."""
    if workers.refusal():
        return
    for queue in workers.own_queues():
        if turn := TURNS.get(queue):
            turn()
        elif Job.objects.waiting().filter(queue=queue).exists():
            drain_if_idle(queue)


def dispatcher_is_late() -> bool:
    """Return whether no worker dispatched for three intervals, so that wakeups may be missing."""
    # The range has an upper limit, because a clock that was set back must not delay dispatching.
    tolerance = timedelta(seconds=3 * settings.QUEUE_TIMES.dispatch)
    now = Now()
    return not Worker.objects.filter(dispatched_at__range=(now - tolerance, now + tolerance)).exists()
