"""Watchdog that cleans up after a killed supervisor. It runs as a script and imports only the standard library.

Its standard input is a pipe whose other end only the supervisor holds, so end of file means that the supervisor has
ended, for whatever reason. The lines name what to clean up: `+PID` a started process group, `-PID` one that has ended,
and `remove PATH` a file or folder of this run. It works on every POSIX system.
"""

import os
import shutil
import signal
import sys
import time

#: Seconds that groups get to end by themselves before they are killed.
GRACE = 2.0


def follow() -> tuple[set[int], list[str]]:
    """Read until the supervisor ends; return the groups that were still running and the paths to remove."""
    groups: set[int] = set()
    paths: list[str] = []
    for line in sys.stdin:
        word = line.rstrip("\n")
        if word.startswith("+"):
            groups.add(int(word[1:]))
        elif word.startswith("-"):
            groups.discard(int(word[1:]))
        elif word.startswith("remove "):
            paths.append(word.removeprefix("remove "))
    return groups, paths


def send(group: int, number: int) -> bool:
    """Send a signal to a group; return False if all its processes have ended."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # The latter is raised on macOS for groups of zombies only.
        return False
    return True


def end(groups: set[int]) -> None:
    """Terminate every group, wait, and kill those that have not ended."""
    groups = {group for group in groups if send(group, signal.SIGTERM)}
    deadline = time.monotonic() + GRACE
    while groups and time.monotonic() < deadline:
        time.sleep(0.05)
        groups = {group for group in groups if send(group, 0)}
    for group in groups:
        send(group, signal.SIGKILL)


def main() -> None:
    """Follow the supervisor, then clean up. Signals from terminals and operators are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups, paths = follow()
    end(groups)
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112  pathlib costs a third of this process's start
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.exists(path):  # noqa: PTH110
            os.unlink(path)  # noqa: PTH108


if __name__ == "__main__":
    main()
