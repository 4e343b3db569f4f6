"""Hold a tree of processes still, and let it go on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from submissions.sandbox.watching import processes_under

#: States of threads that compute nothing: stopped, traced, ended.
_STILL = frozenset(b"TtZXx")
_ROUNDS = 50
_PAUSE = 0.01


def stop(root: int) -> bool:
    """Stop the process and all its descendants; whether they stand still within half a second.

    One that starts others meanwhile takes several rounds. The last two must find nobody moving: whoever was started
    between the first look and its parent's stop is seen by the second.
    """
    quiet = 0
    for _ in range(_ROUNDS):
        moving = [process for process in processes_under(root) if not _is_still(process)]
        quiet = 0 if moving else quiet + 1
        if quiet == 2:
            return True
        for process in moving:
            _send(process, signal.SIGSTOP)
        if moving:
            time.sleep(_PAUSE)
    return False


def is_stopped(root: int) -> bool:
    """Whether nobody in the tree runs. A stopped process can have itself woken by a timer that sends SIGCONT."""
    return all(_is_still(process) for process in processes_under(root))


def go_on(root: int) -> None:
    """Let the process and all its descendants go on."""
    for process in processes_under(root):
        _send(process, signal.SIGCONT)


def _is_still(process: int) -> bool:
    """Whether no thread of it runs; that of a process which is gone does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                text = (thread / "stat").read_bytes()
                if text[text.rindex(b")") + 2] not in _STILL:
                    return False
    return True


def _send(process: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, what)
