"""Ends what a killed supervisor left behind. Run as a script of its own; imports only the standard library.

Its standard input is a pipe whose other end only the supervisor holds, so end of file means that the
supervisor has gone, however it went. The lines on it say what there is to end: `+PID` a process group that was
started, `-PID` one that has ended, `remove PATH` a file or folder made for this run. Works wherever POSIX does.
"""

import os
import shutil
import signal
import sys
import time

#: How long groups get to end by themselves, in seconds, before they are killed.
GRACE = 2.0


def follow() -> tuple[set[int], list[str]]:
    """Read until the supervisor's end; return the groups that still ran then, and the paths to remove."""
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
    """Signal a group; False when it has no process any more."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # the latter on macOS, for groups that hold only zombies
        return False
    return True


def end(groups: set[int]) -> None:
    """Ask every group to end, wait, and kill those that have not."""
    groups = {group for group in groups if send(group, signal.SIGTERM)}
    deadline = time.monotonic() + GRACE
    while groups and time.monotonic() < deadline:
        time.sleep(0.05)
        groups = {group for group in groups if send(group, 0)}
    for group in groups:
        send(group, signal.SIGKILL)


def main() -> None:
    """Follow the supervisor, then tidy up. A terminal's or an operator's signals are its business."""
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
