"""Limit of concurrent checkpoint validations in all web processes of this machine.

Each validation takes up to a minute of CPU time and hundreds of megabytes. Slots are files locked with flock, which
the system releases when a process dies.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from evaluation.core.problems import ProblemCode
from submissions.core.errors import Refused
from submissions.sandbox.machine_lock import try_flock

BUSY = ProblemCode("busy", "The maximum number of checkpoints is being validated.", "Your checkpoint was not "
    "rejected. Send it again after the time in the message or in Retry-After.", is_free=True)  # fmt: skip

MAX_CHECKS = 2
#: Maximum number of requests that wait for a slot; other threads must remain free for readers.
MAX_WAITING = 2
PATIENCE_SECONDS = 5.0
RETRY_SECONDS = 15
_PAUSE = 0.1


class TooManyChecks(Refused):
    """Refusal because of too many concurrent validations. The request can be repeated after `seconds`."""

    def __init__(self) -> None:
        message = "Too many checkpoints are being validated at present."
        hint = f"Your checkpoint was neither rejected nor stored. Send it again in {RETRY_SECONDS} seconds."
        self.seconds = RETRY_SECONDS
        super().__init__(BUSY, message, [BUSY.problem(message, hint)])


@contextmanager
def checking_slot() -> Iterator[None]:
    """Reserve a slot for the validation of a checkpoint, waiting if necessary. Raises TooManyChecks."""
    slot = _try_lock_slot("checking", MAX_CHECKS)
    if slot is None:
        slot = _wait_for_slot()
    try:
        yield
    finally:
        os.close(slot)


def _wait_for_slot() -> int:
    """Return a slot as soon as one is free. Raises TooManyChecks after a timeout or if too many requests wait."""
    queue_slot = _try_lock_slot("waiting", MAX_WAITING)
    if queue_slot is None:
        raise TooManyChecks
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            time.sleep(_PAUSE)
            slot = _try_lock_slot("checking", MAX_CHECKS)
            if slot is not None:
                return slot
    finally:
        os.close(queue_slot)
    raise TooManyChecks


def _try_lock_slot(name: str, count: int) -> int | None:
    """Return a free slot as a file descriptor that is locked until it is closed, or None."""
    folder = Path(settings.VAR) / "run"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(count):
        path = folder / f"checkpoint-{name}-{number}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if try_flock(descriptor, fcntl.LOCK_EX):
            return descriptor
        os.close(descriptor)
    return None
