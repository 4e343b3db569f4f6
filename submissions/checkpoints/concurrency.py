"""How many checkpoints are looked at while their senders wait: few, over all web processes of this machine.

Each takes up to a minute of a processor, and hundreds of megabytes. Places are files locked with flock, which the
system releases when a process dies.
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

BUSY = ProblemCode("busy", "As many checkpoints are being checked as the site checks at once.", "Nothing is wrong "
    "with yours. Send it again after the seconds that the message, or Retry-After, says.", is_free=True)  # fmt: skip

AT_ONCE = 2
#: So many more may wait for a place; the site needs its other threads for those who read.
WAITING = 2
PATIENCE_SECONDS = 5.0
RETRY_SECONDS = 15
_PAUSE = 0.1


class TooManyChecks(Refused):
    """Nothing is wrong with what was sent: it may be sent again in `seconds`."""

    def __init__(self) -> None:
        message = "Other checkpoints are being checked right now, as many as this site checks at once."
        hint = (
            f"Nothing is wrong with yours, and nothing was stored. Send it again in {RETRY_SECONDS} seconds."
        )
        self.seconds = RETRY_SECONDS
        super().__init__(BUSY, message, [BUSY.problem(message, hint)])


@contextmanager
def checking_slot() -> Iterator[None]:
    """Hold a place while a checkpoint is looked at; wait for one a little. Raises TooManyChecks where there is none."""
    place = _try_lock_slot("checking", AT_ONCE)
    if place is None:
        place = _wait_for_slot()
    try:
        yield
    finally:
        os.close(place)


def _wait_for_slot() -> int:
    """A place, as soon as somebody leaves one. Raises TooManyChecks where nobody does, or too many wait already."""
    seat = _try_lock_slot("waiting", WAITING)
    if seat is None:
        raise TooManyChecks
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            time.sleep(_PAUSE)
            place = _try_lock_slot("checking", AT_ONCE)
            if place is not None:
                return place
    finally:
        os.close(seat)
    raise TooManyChecks


def _try_lock_slot(name: str, most: int) -> int | None:
    """One of the places of this name, as a file that is locked until it is closed; None where all are taken."""
    folder = Path(settings.VAR) / "run"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(most):
        path = folder / f"checkpoint-{name}-{number}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if try_flock(descriptor, fcntl.LOCK_EX):
            return descriptor
        os.close(descriptor)
    return None
