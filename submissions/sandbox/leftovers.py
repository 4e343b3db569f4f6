"""What a worker that was killed while it started a sandbox can leave behind: found by a mark, and ended.

bwrap binds its end to its parent's, but only some way into its start, and its first process inside waits for bwrap
without end. Every process of a start carries in its environment whose it is. What runs inside is given an empty one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from submissions.sandbox.processes import all_processes

_PROC = Path("/proc")
#: The variable that marks them.
_NAME = "RUNBOARD_SANDBOX_OF"
#: Where in /proc/PID/stat, after the name, the moment of the start is (field 22 of proc(5)).
_STARTED = 19


def process_mark() -> dict[str, str]:
    """The variable for a process that starts a sandbox for us."""
    return {_NAME: f"{_namespace()}/{os.getpid()}/{_start_time(os.getpid())}"}


def kill_leftovers() -> int:
    """End what processes that are no more have left, of what we may end. Returns how many there were.

    A mark names the system's start, the numbering of processes, the process and when it began: those of another
    container, or of whoever has the number now, are not meant.
    """
    return sum(map(_kill_if_orphaned, all_processes()))


def _kill_if_orphaned(process: int) -> bool:
    try:
        handle = os.pidfd_open(process)  # first: the process that is read is then the one that is ended
    except OSError:
        return False
    try:
        if not _is_orphaned(process):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _is_orphaned(process: int) -> bool:
    """Whether it carries the mark of a process of ours that is no more."""
    prefix = f"{_NAME}={_namespace()}/".encode()
    variables = (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    marks = [variable.removeprefix(prefix) for variable in variables if variable.startswith(prefix)]
    if len(marks) != 1:
        return False
    owner, _, started = marks[0].decode(errors="replace").partition("/")
    return owner.isdecimal() and _start_time(int(owner)) != started


def _namespace() -> str:
    """The start of the system, and the numbering of processes that we are in."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"


def _start_time(process: int) -> str:
    """When the process began, in ticks since the system's start; empty when there is none, or only its remains."""
    try:
        text = (_PROC / str(process) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[_STARTED]
