"""Giving work back when a worker is asked to stop: at once, and without counting the attempt.

Whoever can leaves by itself, at its next look whether it may go on. After `GRACE` seconds the worker ends those of its
pool processes that could not, and puts their jobs back in their place.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType

from django.db import Error as DatabaseError
from django.db import connection

from submissions.models import Job
from submissions.queue.lifecycle import write_log
from submissions.queue.process import STOPPING, worker_name
from submissions.queue.queue import put_back

logger = logging.getLogger(__name__)

#: Tells a pool process to leave. Celery has taken SIGTERM (the end) and SIGUSR1 (a soft time limit).
LEAVE = signal.SIGUSR2
#: Seconds that work may take to leave by itself. The supervisor gives a worker eight in all.
GRACE = 1.5
_PAUSE = 0.1


def hear_leave() -> None:
    """Have this pool process leave when its worker tells it to. From its main thread."""
    signal.signal(LEAVE, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    STOPPING.set()


def give_back(processes: Iterable[int]) -> threading.Thread:
    """Have the worker's work given back by its pool processes, or in their place; the thread that sees to it."""
    STOPPING.set()
    pool = [process for process in processes if process != os.getpid()]
    for process in pool:
        _send(process, LEAVE)
    # No daemon: the worker's end waits for it.
    thread = threading.Thread(target=_in_thread, args=(pool,), name="giving back")
    thread.start()
    return thread


def _in_thread(pool: list[int]) -> None:
    try:
        see_to_it(pool)
    except DatabaseError as error:
        logger.warning("work was not given back, its leases run out: %s", type(error).__name__)
    finally:
        connection.close()


def see_to_it(pool: list[int]) -> None:
    """Wait until these processes hold nothing, for `GRACE` seconds; then end them and put back what they hold."""
    deadline = time.monotonic() + GRACE
    while (held := _held()) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    if not held:
        return
    for process in pool:
        _send(process, signal.SIGKILL)
    for job in _held():
        if put_back(job, counted=False):
            write_log(job.pk, "The worker was stopped; the job goes on elsewhere.")


def _held() -> list[Job]:
    """The jobs that pool processes of this worker hold."""
    return list(Job.objects.held_by(worker_name()))


def _send(process: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, what)
