"""Who this process is, and whether it may take work now."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from dataclasses import dataclass

from django.conf import settings

from leaderboard.core.schema_version import mismatch

logger = logging.getLogger(__name__)

#: Set when this process is to stop: it takes no more work, and gives back what it has.
STOPPING = threading.Event()
#: Held by whoever works in this process: the task that a wakeup started, or the thread that polls.
AT_WORK = threading.Lock()


@dataclass
class _ProcessIdentity:
    """The worker that this process is, or is a pool process of."""

    worker: str = ""
    queues: tuple[str, ...] = ()
    #: Why it may take nothing, and when that was asked (on the monotonic clock).
    refusal: str = ""
    asked_at: float = -math.inf


_own = _ProcessIdentity()


def set_identity(queues: tuple[str, ...]) -> None:
    """Say that this process is a worker of these queues; its pool processes, forked later, inherit that."""
    _own.worker, _own.queues = f"{socket.gethostname()}:{os.getpid()}", queues


def worker_name() -> str:
    """The name that the worker announces itself under."""
    return _own.worker or f"{socket.gethostname()}:{os.getpid()}"


def process_name() -> str:
    """The name that claims of this process are made under: the worker's, and behind the last colon its process id."""
    return f"{worker_name()}:{os.getpid()}"


def process_number(name: str) -> int:
    """The process id in the name of a claim; 0 where there is none."""
    number = name.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def own_queues() -> tuple[str, ...]:
    """The queues that the worker serves."""
    return _own.queues


def refusal(*, heartbeats: int = 1) -> str:
    """Why this process may take no work now, as a sentence; empty where it may.

    The database is asked once in so many times HEARTBEAT_SECONDS, while it refuses in each. Raises django.db.Error when
    it does not answer.
    """
    if STOPPING.is_set():
        return "The worker is stopping."
    age = time.monotonic() - _own.asked_at
    if age >= settings.QUEUE_TIMES.heartbeat * (1 if _own.refusal else heartbeats):
        reason = mismatch()
        if reason and reason != _own.refusal:
            logger.error("This worker takes no work. %s", reason)
        elif reason != _own.refusal:
            logger.warning("Code and database match again: this worker takes work.")
        _own.refusal, _own.asked_at = reason, time.monotonic()
    return _own.refusal
