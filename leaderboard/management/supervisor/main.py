"""From taking the lock to the exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leaderboard.management.supervisor.errors import StopRequested, SupervisorError
from leaderboard.management.supervisor.lock import RunLock
from leaderboard.management.supervisor.logs import say
from leaderboard.management.supervisor.process_group import Family, Patience


def run(
    folder: Path,
    holder: str,
    working_folder: Path,
    live: Callable[[Family], None],
    patience: Patience | None = None,
) -> int:
    """Hold `folder` and let `live` start children and look after them, until asked to stop.

    `holder` is said, beside our process id, to another that wants the folder. Logs go to `logs` in the folder.
    Returns the exit status: 0 when asked to stop (or `live` has returned); 1, its reason printed, on a failure.
    Children have ended when this returns.
    """
    lock = RunLock(folder / "run.lock")
    try:
        lock.acquire(holder)
        with Family(folder / "logs", working_folder, lock.fileno(), patience) as family:
            live(family)
    except StopRequested:
        say("Runboard has stopped.")
    except SupervisorError as error:
        say(f"Runboard cannot run. {error}")
        return 1
    finally:
        lock.release()
    return 0
