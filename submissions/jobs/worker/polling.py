"""Idle processes also look into the database, so that a lost message, a deaf worker or no broker at all only slow
things.

A thread in each process that works: the broker's loop stands still while it has no connection, and so does the clock
in it.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.models.functions import Now

from submissions.jobs.runner import drain_queue
from submissions.models import Job, Worker
from submissions.queue.process import AT_WORK, STOPPING, own_queues, process_name, refusal

logger = logging.getLogger(__name__)

#: Turns by queue for those that hold no jobs; `tasks` says what they are.
TURNS: dict[str, Callable[[], object]] = {}


def drain_if_idle(queue: str) -> None:
    """Do what waits in a queue, unless this process works already: another will, or this one when it is done."""
    if not AT_WORK.acquire(blocking=False):
        return
    try:
        drain_queue(queue, process_name())
    finally:
        AT_WORK.release()


def start_polling() -> None:
    """Start the thread of this process."""
    threading.Thread(target=_poll_forever, daemon=True, name="looking").start()


def _poll_forever() -> None:
    # Processes that were started together need not look together.
    while not STOPPING.wait(settings.IDLE_POLL_SECONDS * random.uniform(0.8, 1.0)):  # noqa: S311
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
    if refusal():
        return
    for queue in own_queues():
        if turn := TURNS.get(queue):
            turn()
        elif Job.objects.waiting().filter(queue=queue).exists():
            drain_if_idle(queue)


def dispatcher_is_late() -> bool:
    """Whether nobody has dispatched for three times as long as it should take: wakeups are not sent, or get lost."""
    # Within that time to both sides: a clock that was set back must not keep everybody waiting.
    while_ago = timedelta(seconds=3 * settings.DISPATCH_SECONDS)
    now = Now()
    return not Worker.objects.filter(dispatched_at__range=(now - while_ago, now + while_ago)).exists()
