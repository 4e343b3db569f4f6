"""Wakeups: empty messages that ask a process to look for work in the database.

Losing a wakeup is harmless, because the dispatcher and idle workers poll every few seconds. Senders therefore never
wait for an unresponsive broker, especially not while a page is being served.
"""

import functools
import logging
import os
from time import monotonic
from typing import Any

from django.db import transaction
from kombu.connection import ConnectionPool

from leaderboard.celery import app

logger = logging.getLogger(__name__)

#: Task name that the dispatcher listens to. It is part of the protocol, not an import path.
DISPATCH = "runboard.dispatch"
#: Timeout of the broker, and the pause after it failed to answer, in seconds.
PATIENCE, PAUSE = 1.0, 5.0
#: Seconds until a wakeup expires, long after workers have polled. The receiver's clock decides and may be
#: minutes ahead.
EXPIRES = 3600.0

_silent_until = 0.0


def wake_dispatcher() -> None:
    """Wake the dispatcher once the current transaction has committed, or immediately outside of one."""
    transaction.on_commit(lambda: send_wakeup(DISPATCH, "dispatch"))


def send_wakeup(task: str, destination: str, **arguments: Any) -> bool:
    """Send a wakeup for a task to a queue and return whether the broker accepted it. Never raises."""
    global _silent_until
    if monotonic() < _silent_until:
        return False
    try:
        with _connections(os.getpid()).acquire(block=True, timeout=PATIENCE) as connection:
            app.send_task(
                task,
                kwargs=arguments,
                queue=destination,
                retry=False,
                ignore_result=True,
                expires=EXPIRES,
                connection=connection,
                # The message goes directly to the queue's key, so no queue is declared. Workers declare
                # their own queues, and a retriever needs no permission to write bindings of others.
                declare=[],
            )
    except Exception as error:  # An error of the broker, its connection, or the wait for one of ours.
        _silent_until = monotonic() + PAUSE
        logger.info(
            "no wakeup sent to %s; the dispatcher will find the work by polling: %s", destination, type(error).__name__
        )
        return False
    return True


def count_pending(queue: str) -> int:
    """Return the number of wakeups waiting in a queue; 0 if the broker does not answer."""
    if monotonic() < _silent_until:
        return 0
    try:
        with _connections(os.getpid()).acquire(block=True, timeout=PATIENCE) as connection:
            return int(connection.default_channel.queue_declare(queue).message_count)
    except Exception as error:  # See above; the next wakeup discovers that the broker is unavailable.
        logger.info("cannot count the wakeups in %s: %s", queue, type(error).__name__)
        return 0


@functools.cache
def _connections(process: int) -> ConnectionPool:
    """Return a pool of connections with short timeouts, one per process because connections do not survive a fork."""
    patience = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
    return app.connection_for_write(transport_options=patience).Pool(limit=4)
