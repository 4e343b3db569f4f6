"""Wakeups: messages without content that say "look into the database, there is work".

A lost wakeup loses nothing: the dispatcher polls every few seconds, and so do idle workers. So nobody waits for a
broker that does not answer, least of all the page that sent the wakeup.
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

#: The message that the dispatcher listens to. A name on the wire, not an import.
DISPATCH = "runboard.dispatch"
#: How long the broker may take to answer, and how long it is then left alone, in seconds.
PATIENCE, PAUSE = 1.0, 5.0
#: After so many seconds a wakeup expires: workers have polled long before. By the clock of the receiver, which may be
#: some minutes ahead.
EXPIRES = 3600.0

_silent_until = 0.0


def wake_dispatcher() -> None:
    """Wake the dispatcher once the current transaction has committed (at once where there is none)."""
    transaction.on_commit(lambda: send_wakeup(DISPATCH, "dispatch"))


def send_wakeup(task: str, to: str, **arguments: Any) -> bool:
    """Send a wakeup for a task on the queue `to` now. Never fails: returns whether the broker took it."""
    global _silent_until
    if monotonic() < _silent_until:
        return False
    try:
        with _connections(os.getpid()).acquire(block=True, timeout=PATIENCE) as connection:
            app.send_task(
                task,
                kwargs=arguments,
                queue=to,
                retry=False,
                ignore_result=True,
                expires=EXPIRES,
                connection=connection,
                # The message goes straight to the queue's key, so no queue is declared: workers do that for their own,
                # and a retriever needs no right to write bindings of others.
                declare=[],
            )
    except Exception as error:  # of the broker, the connection to it, or the wait for one of ours
        _silent_until = monotonic() + PAUSE
        logger.info("no wakeup sent to %s, the dispatcher will find the work: %s", to, type(error).__name__)
        return False
    return True


def count_pending(queue: str) -> int:
    """How many wakeups no worker has taken from the queue yet; 0 where the broker does not say."""
    if monotonic() < _silent_until:
        return 0
    try:
        with _connections(os.getpid()).acquire(block=True, timeout=PATIENCE) as connection:
            return int(connection.default_channel.queue_declare(queue).message_count)
    except Exception as error:  # as above; the next wakeup finds out by itself that the broker is away
        logger.info("the number of wakeups in %s is not known: %s", queue, type(error).__name__)
        return 0


@functools.cache
def _connections(process: int) -> ConnectionPool:
    """Connections that are given up soon; a forked process has its own. A worker's own wait longer for messages."""
    patience = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
    return app.connection_for_write(transport_options=patience).Pool(limit=4)
