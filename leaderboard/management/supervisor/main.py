"""From the lock on the folder of state to the exit status."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from leaderboard.management.supervisor.logs import say
from leaderboard.management.supervisor.process_group import ProcessGroup, Timeouts
from leaderboard.management.supervisor.processes import StopRequested, SupervisorError

#: How long a start waits, in seconds, for the watchdog of a killed site to end what that site left behind.
TIDYING_SECONDS = 10.0


class RunLock:
    """An exclusive `flock` on a file that names its holder.

    The watchdog inherits the lock, so after a SIGKILL of the supervisor it is held until the last orphan is
    gone: a start in that moment waits instead of meeting a site that is half ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, holder: str) -> None:
        """Take the lock and write `holder`, a few words such as an address, beside our process id.

        Raises SupervisorError, naming the holding process, when a live site has it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + TIDYING_SECONDS
        while not self._try():
            pid, where = self._read()
            if _alive(pid) or time.monotonic() > deadline:
                os.close(self._descriptor)
                self._descriptor = -1
                raise SupervisorError(
                    f"A site is already running on {self.path.parent} (process {pid}, {where}). Stop it "
                    "first, or give this one its own folder and port: "
                    "RUNBOARD_VAR=/some/folder PORT=8001 make run"
                )
            time.sleep(0.1)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} {holder}\n".encode(), 0)

    def fileno(self) -> int:
        """The descriptor that holds the lock, for a child that is to hold it as well."""
        return self._descriptor

    def release(self) -> None:
        """Give the lock up. The file stays: removing it would let two sites lock two different files."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _read(self) -> tuple[int, str]:
        """Process id and words of the holder; (0, "starting") before it has written them."""
        pid, _, where = os.pread(self._descriptor, 1000, 0).decode(errors="replace").strip().partition(" ")
        return (int(pid), where) if pid.isdigit() else (0, "starting")


def _alive(pid: int) -> bool:
    if pid == 0:
        return True  # it has the lock and is about to write its name
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and waits for its parent to notice (elsewhere than on Linux: no)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def run(
    folder: Path,
    holder: str,
    working_folder: Path,
    live: Callable[[ProcessGroup], None],
    timeouts: Timeouts | None = None,
) -> int:
    """Hold `folder` and let `live` start children and look after them, until asked to stop.

    `holder` is said, beside our process id, to another that wants the folder. Logs go to `logs` in the folder.
    Returns the exit status: 0 when asked to stop (or `live` has returned); 1, its reason printed, on a failure.
    Children have ended when this returns.
    """
    lock = RunLock(folder / "run.lock")
    try:
        lock.acquire(holder)
        with ProcessGroup(folder / "logs", working_folder, lock.fileno(), timeouts) as group:
            live(group)
    except StopRequested:
        say("Runboard has stopped.")
    except SupervisorError as error:
        say(f"Runboard cannot run. {error}")
        return 1
    finally:
        lock.release()
    return 0
