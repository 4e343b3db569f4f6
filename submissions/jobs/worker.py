"""Ties our worker to Celery's: it announces itself before it looks for the broker, and gives its work back at its end.

At SIGTERM whoever can leaves by itself, at its next look whether it may go on, and the attempt does not count. After
`GRACE` seconds the worker ends those of its pool processes that could not, and puts their jobs back in their place.

A working pool process reports every `QUEUE_TIMES.look` seconds. Its worker ends one that has not for half a lease in
two looks: between two looks a database that was away is back, and so is whoever only waited for it. One whose
job somebody else has ended hears of it at its next look, and ends itself where its work goes on; its worker ends one
that does neither.

Idle processes also look into the database, so that a lost message, a deaf worker or no broker at all only slow things.
They do so in a thread: the broker's loop stands still while it has no connection, and so does the clock in it.
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
from submissions.queue.lease import ENDS_ITS_PROCESS, STOPPED
from submissions.queue.queue import release, requeue
from submissions.sandbox.processes import send_signal

logger = logging.getLogger(__name__)

#: Tells a pool process to leave. Celery has taken SIGTERM (the end) and SIGUSR1 (a soft time limit).
LEAVE = signal.SIGUSR2
#: Seconds that work may take to leave by itself. The supervisor gives a worker eight in all.
GRACE = 1.5
_PAUSE = 0.1
#: Errors of reading an entry that is not a message: text that is not JSON, is nested too deeply, or lacks a field.
MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
#: A process and the claim under which it has a job: the job's key and fence.
Claim = tuple[int, int, int]


class WorkerPresence(bootsteps.StartStopStep):
    """Between the pool and the consumer: the pool's processes are there, and no broker is needed yet."""

    requires = ("celery.worker.components:Pool",)  # type: ignore[assignment]  # Celery says nothing of the type

    def __init__(self, worker: Any, **_: Any) -> None:
        self._worker = worker
        self._heartbeat: workers.Heartbeat | None = None
        self._draining: threading.Thread | None = None
        worker_shutting_down.connect(self._stop_working, weak=False)

    def start(self, worker: Any) -> None:
        """Announce the worker."""
        monitor, idle_since = HungProcessMonitor(workers.worker_name()), time.monotonic()
        longest = settings.WORKER_UNTIL_IDLE

        def look() -> None:
            nonlocal idle_since
            monitor.end(self._pool())
            if longest and _held_jobs():
                idle_since = time.monotonic()
            if not longest or time.monotonic() - idle_since <= longest:
                return
            # A job of this worker may have ended between two looks.
            own = Job.objects.filter(worker__startswith=f"{workers.worker_name()}:")
            if not own.filter(finished_at__gt=timezone.now() - timedelta(seconds=longest)).exists():
                logger.info("nothing was to be done for %g seconds: the worker ends", longest)
                send_signal(os.getpid(), signal.SIGTERM)

        self._heartbeat = workers.Heartbeat(
            workers.worker_name(), workers.own_queues(), VERSION, each_time=look
        )
        self._heartbeat.start()

    def stop(self, worker: Any) -> None:
        """Take it off the list, once its work is given back."""
        self._stop_working().join(2 * GRACE)
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    terminate = stop

    def _pool(self) -> list[int]:
        """Return the ids of the pool's processes; none if it has no processes."""
        pool = getattr(self._worker.pool, "_pool", None)
        return [process.pid for process in list(getattr(pool, "_pool", ()))]

    def _stop_working(self, **_: Any) -> threading.Thread:
        """Called in a handler of signals, by the main thread. The thread that gives the work back."""
        if self._draining is None:
            workers.STOPPING.set()
            pool = [process for process in self._pool() if process != os.getpid()]
            for process in pool:
                send_signal(process, LEAVE)
            # No daemon: the worker's end waits for it.
            self._draining = threading.Thread(target=_drain_in_thread, args=(pool,), name="draining")
            self._draining.start()
        return self._draining


app.steps["worker"].add(WorkerPresence)


class BrokerRepair(bootsteps.StartStopStep):
    """Bootstep that keeps the consumer alive if the worker's queues contain other data than messages.

    Kombu ends the worker when it reads such an entry, or when a queue's key holds a value of another type. Here the
    consumer reconnects instead, as after a lost connection. Reading a malformed entry removes it.
    """

    def __init__(self, consumer: Any, **_: Any) -> None:
        consumer.channel_errors = (*consumer.channel_errors, *MALFORMED)

    def stop(self, consumer: Any) -> None:
        """Delete the keys of its queues that hold no list, before the consumer reconnects."""
        if consumer.blueprint.state != bootsteps.RUN:
            return  # the worker ends
        with suppress(OperationalError), consumer.app.connection_for_write() as broker:
            channel = broker.default_channel
            keys = [
                channel._q_for_pri(queue, step)
                for queue in workers.own_queues()
                for step in channel.priority_steps
            ]
            for key in keys:
                try:
                    channel.client.llen(key)
                except ResponseError as error:
                    logger.error("the broker's key %r is no queue and is deleted: %s", key, error)
                    channel.client.delete(key)


app.steps["consumer"].add(BrokerRepair)


@worker_init.connect
def register(sender: Any, **_: Any) -> None:
    """Before the pool's processes are forked, which inherit it."""
    workers.set_identity(tuple(sender.app.amqp.queues.consume_from))


@worker_process_init.connect
def start_pool_process(**_: Any) -> None:
    """In each process that works: leave when the worker says so, and look for work."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(LEAVE, lambda number, frame: workers.STOPPING.set())
    ENDS_ITS_PROCESS.set()
    threading.Thread(target=_poll_forever, daemon=True, name="polling").start()


# --- giving work back


def _drain_in_thread(pool: list[int]) -> None:
    try:
        drain_pool(pool)
    except DatabaseError as error:
        logger.warning("jobs were not requeued, their leases run out: %s", type(error).__name__)
    finally:
        connection.close()


def drain_pool(pool: list[int]) -> None:
    """Wait until these processes hold nothing, for `GRACE` seconds; then end them and put back what they hold."""
    deadline = time.monotonic() + GRACE
    while (held := _held_jobs()) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    if not held:
        return
    for process in pool:
        send_signal(process, signal.SIGKILL)
    for job in _held_jobs():
        requeue(job, counted=False, line=STOPPED)


def _held_jobs() -> list[Job]:
    """Return the jobs that pool processes of this worker hold."""
    return list(Job.objects.held_by(workers.worker_name()))


# --- processes that no longer answer


class HungProcessMonitor:
    """What one worker knows of its pool processes from one look to the next."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._silent: set[Claim] = set()
        #: Since when (on the monotonic clock) the job of a claim is known to have ended under its process.
        self._ended: dict[Claim, float] | None = None
        #: What a worker of the same name left, whose process ids may be others' now: containers use both again.
        self._of_old: frozenset[Claim] = frozenset()

    def end(self, pool: Collection[int]) -> list[int]:
        """End those of the pool that were silent before and still are; which. The pool starts others in their place."""
        jobs = Job.objects.silent_or_ended(self._worker).only("worker", "fence", "state")
        found = {(workers.process_number(job.worker), job.pk, job.fence): job for job in jobs}
        over = {claim: job for claim, job in found.items() if job.state in ENDED_BY_OTHERS}
        silent = found.keys() - over
        hung = {claim: found[claim] for claim in silent & self._silent} | self._ended_claims(over)
        self._silent = silent
        ended = []
        for (process, key, _), job in hung.items():
            if process in pool and process != os.getpid():
                logger.error("process %s no longer answers (job %s): ended", process, key)
                send_signal(process, signal.SIGKILL)
                ended.append(process)
                release(job)
        return ended

    def _ended_claims(self, jobs: Mapping[Claim, Job]) -> dict[Claim, Job]:
        """Those of ended jobs that ended for longer than a process goes on that hears of it."""
        now = time.monotonic()
        if self._ended is None:
            self._of_old = frozenset(jobs)
        known = self._ended or {}
        self._ended = {claim: known.get(claim, now) for claim in jobs.keys() - self._of_old}
        longest = settings.QUEUE_TIMES.unheard + settings.QUEUE_TIMES.lease / 2
        return {claim: jobs[claim] for claim, since in self._ended.items() if now - since > longest}


#: Turns by queue for those that hold no jobs; `tasks` says what they are.
TURNS: dict[str, Callable[[], object]] = {}


# --- looking for work


def drain_if_idle(queue: str) -> None:
    """Do what waits in a queue, unless this process works already: another will, or this one when it is done."""
    if not workers.AT_WORK.acquire(blocking=False):
        return
    try:
        drain_queue(queue, workers.process_name())
    finally:
        workers.AT_WORK.release()


def _poll_forever() -> None:
    # Processes that were started together need not look together.
    while not workers.STOPPING.wait(settings.QUEUE_TIMES.idle_poll * random.uniform(0.8, 1.0)):  # noqa: S311
        try:
            close_old_connections()
            poll_queues()
        except DatabaseError as error:
            logger.warning("polling failed, the database does not answer: %s", type(error).__name__)
            connection.close()
        except Exception:
            logger.exception("fault %s while polling", secrets.token_hex(4))
    connection.close()


def poll_queues() -> None:
    """Do whatever waits in the queues of this worker."""
    if workers.refusal():
        return
    for queue in workers.own_queues():
        if turn := TURNS.get(queue):
            turn()
        elif Job.objects.waiting().filter(queue=queue).exists():
            drain_if_idle(queue)


def dispatcher_is_late() -> bool:
    """Whether nobody has dispatched for three times as long as it should take: wakeups are not sent, or get lost."""
    # Within that time to both sides: a clock that was set back must not keep everybody waiting.
    while_ago = timedelta(seconds=3 * settings.QUEUE_TIMES.dispatch)
    now = Now()
    return not Worker.objects.filter(dispatched_at__range=(now - while_ago, now + while_ago)).exists()
