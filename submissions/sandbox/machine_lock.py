"""One lock for each device of a machine: whoever measures time has it alone, whoever merely works shares it.

A GPU's is its own, so that workers with a GPU each do not wait for each other. Whoever computes on the processor has
that of the machine.

It is a pair of files locked with flock, which the system releases when a process dies. Those who want the machine
alone hold the gate first: a stream of others cannot keep them waiting, as long as those at work end soon. Where they do
not, the gate opens again after `KEEPS_OUT` seconds, since nobody should stand idle beside hours of work; from then on
whoever wants the machine alone takes it in a moment when nobody has it. So a newcomer is kept out for that long at most
by each that waits, and by each that measures.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from django.conf import settings

from evaluation.efficiency.hardware import own_gpu

Mode = Literal["shared", "exclusive"]
#: Seconds between two attempts.
PAUSE = 0.2
#: Seconds for which one that wants the machine alone keeps newcomers out, in all.
KEEPS_OUT = 300.0
#: The stage of a job that waits for the machine: such time is not counted as the job's.
WAITING = "waiting"
_OPERATIONS = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX}


class MachineLock:
    """The lock as this job holds it: not at all, shared or exclusive. Not for several threads at once.

    `device` is what the job computes on, "cpu" or "cuda": then it is this process's GPU that is locked.
    """

    def __init__(self, path: Path | None = None, device: str = "cpu") -> None:
        path = path or Path(settings.TIMING_LOCK)
        if device == "cuda":
            path = path.with_name(f"{path.name}.gpu-{own_gpu().address}")
        self._lock = _open(path)
        self._gate = _open(path.with_name(path.name + ".gate"))
        self._shut_at: float | None = None
        self.held: Mode | None = None

    def try_acquire(self, mode: Mode) -> bool:
        """Take the lock in this mode if that is possible now; what was held in another mode is given up first.

        An attempt at the exclusive lock that fails keeps new sharers out until `release` or success, or until
        `KEEPS_OUT` seconds after the first such attempt.
        """
        if self.held == mode:
            return True
        if self.held is not None:
            self.release()
        if not try_flock(self._gate, _OPERATIONS[mode]):
            return False
        if not try_flock(self._lock, _OPERATIONS[mode]):
            now = time.monotonic()
            if mode == "exclusive" and self._shut_at is None:
                self._shut_at = now
            if mode == "shared" or self._shut_at is None or now - self._shut_at >= KEEPS_OUT:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
            return False
        self.held, self._shut_at = mode, None
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def acquire(self, mode: Mode, waiting: Callable[[], None]) -> None:
        """Take the lock, however long that takes; `waiting` is called between attempts and may raise to give up."""
        while not self.try_acquire(mode):
            waiting()
            time.sleep(PAUSE)

    def share(self) -> None:
        """From having the lock alone to sharing it. Nobody who waits comes in between."""
        if self.held == "exclusive":
            self.held = "shared" if try_flock(self._lock, _OPERATIONS["shared"]) else None

    def release(self) -> None:
        """Give up whatever is held."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self.held = self._shut_at = None

    def close(self) -> None:
        """Give up the lock for good."""
        os.close(self._lock)
        os.close(self._gate)
        self.held = None


def _open(path: Path) -> int:
    """The file, made for us alone; others may have put something in its place, since its folder is everybody's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{path} is not ours; TIMING_LOCK names another place for the lock of timings")
    return descriptor


def try_flock(descriptor: int, operation: int) -> bool:
    """Lock a file without waiting. Return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
