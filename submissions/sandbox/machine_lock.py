"""Lock of a device of the machine: exclusive for timing, shared for other work.

Each GPU has its own lock, so that workers with different GPUs do not wait for each other. Work on the CPU uses the
lock of the machine.

A lock consists of two files locked with flock, which the system releases when a process dies. A process that wants
the exclusive lock locks the gate first, so that new processes wait until the current ones have ended. If these run
longer than `GATE_SECONDS` seconds, the gate reopens, so that the machine is not idle for hours. Afterwards, the
process acquires the lock as soon as it is free. New processes therefore wait at most `GATE_SECONDS` seconds for each
waiting process, in addition to the time of measurements.
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
#: Seconds between attempts.
PAUSE = 0.2
#: Maximum total time in seconds for which a process that waits for the exclusive lock blocks new processes.
GATE_SECONDS = 300.0
#: Stage of a job that waits for the machine. This time is not counted.
WAITING_STAGE = "waiting"
_OPERATIONS = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX}


class MachineLock:
    """This job's mode of a device lock: none, shared, or exclusive. Not thread-safe.

    `device` is "cpu" or "cuda"; the latter locks this process's GPU.
    """

    def __init__(self, path: Path | None = None, device: str = "cpu") -> None:
        path = path or Path(settings.TIMING_LOCK)
        if device == "cuda":
            path = path.with_name(f"{path.name}.gpu-{own_gpu().address}")
        self._lock = _open(path)
        self._gate = _open(path.with_name(path.name + ".gate"))
        self._shut_at: float | None = None
        self.held_mode: Mode | None = None

    def try_acquire(self, mode: Mode) -> bool:
        """Try to acquire the lock in this mode without waiting. A lock held in another mode is released first.

        A failed attempt at the exclusive lock blocks new shared holders until `release`, success, or `GATE_SECONDS`
        seconds after the first attempt.
        """
        if self.held_mode == mode:
            return True
        if self.held_mode is not None:
            self.release()
        if not try_flock(self._gate, _OPERATIONS[mode]):
            return False
        if not try_flock(self._lock, _OPERATIONS[mode]):
            now = time.monotonic()
            if mode == "exclusive" and self._shut_at is None:
                self._shut_at = now
            if mode == "shared" or self._shut_at is None or now - self._shut_at >= GATE_SECONDS:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
            return False
        self.held_mode, self._shut_at = mode, None
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def acquire(self, mode: Mode, on_wait: Callable[[], None]) -> None:
        """Acquire the lock. Between attempts, call `on_wait`, which may raise to give up."""
        while not self.try_acquire(mode):
            on_wait()
            time.sleep(PAUSE)

    def acquire_shared(self, on_progress: Callable[[str, float, str], None]) -> None:
        """Acquire the shared lock. Between attempts, report the wait by `on_progress`, which may raise to give up."""
        self.acquire("shared", lambda: on_progress(WAITING_STAGE, 0.0, "while another system is timed on this machine"))

    def share(self) -> None:
        """Convert the exclusive lock to a shared one without releasing it to other processes."""
        if self.held_mode == "exclusive":
            self.held_mode = "shared" if try_flock(self._lock, _OPERATIONS["shared"]) else None

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self.held_mode = self._shut_at = None

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._gate)
        self.held_mode = None


def _open(path: Path) -> int:
    """Open or create a lock file and return its descriptor.

    Raises PermissionError if another user placed a file in the shared folder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{path} belongs to another user; set TIMING_LOCK to another path for the timing lock")
    return descriptor


def try_flock(descriptor: int, operation: int) -> bool:
    """Lock a file without waiting. Return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
