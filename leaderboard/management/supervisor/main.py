"""From the lock on the folder of state to the exit status."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from leaderboard.management.supervisor.logs import echo
from leaderboard.management.supervisor.process_group import ProcessGroup, Timeouts
from leaderboard.management.supervisor.processes import StopRequested, SupervisorError

#: How long a start waits, in seconds, for the watchdog of a killed site to end what that site left behind.
TIDYING_SECONDS = 10.0


@contextmanager
def hold_lock(path: Path, holder: str) -> Iterator[int]:
    """Hold an exclusive `flock` on a file that names us and `holder`, a few words such as an address; its descriptor.

    The watchdog inherits the lock, so after a SIGKILL of the supervisor it is held until the last orphan is
    gone: a start in that moment waits instead of meeting a site that is half ended. The file stays: removing it would
    let two sites lock two different files. Raises SupervisorError, naming the holding process, when a live site has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(descriptor, path.parent)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {holder}\n".encode(), 0)
        try:
            yield descriptor
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + TIDYING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            text = os.pread(descriptor, 1000, 0).decode(errors="replace")
        pid, _, where = text.strip().partition(" ")
        if not pid.isdigit():  # it has the lock and is about to write its name
            pid, where = "0", "starting"
        if _is_running(int(pid)) or time.monotonic() > deadline:
            raise SupervisorError(
                f"A site is already running on {folder} (process {pid}, {where}). Stop it "
                "first, or give this one its own folder and port: "
                "RUNBOARD_VAR=/some/folder PORT=8001 make run"
            )
        time.sleep(0.1)


def _is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended (that is not asked elsewhere than on Linux)."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):
        return True


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
    try:
        with (
            hold_lock(folder / "run.lock", holder) as lock,
            ProcessGroup(folder / "logs", working_folder, lock, timeouts) as group,
        ):
            live(group)
    except StopRequested:
        echo("Runboard has stopped.")
    except SupervisorError as error:
        echo(f"Runboard cannot run. {error}")
        return 1
    return 0
