"""Child processes in groups of their own, which do not outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leaderboard.management.supervisor.logs import ProcessLog, Shown

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# Loaded here, not between fork and exec, where little may be done.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class SupervisorError(Exception):
    """The site ends with exit status 1. The message is printed as it is, so it says what to do."""


class StopRequested(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived: everything is ended, with exit status 0."""


def die_with_parent(parent: int, ending: signal.Signals = signal.SIGTERM) -> None:
    """Ask Linux to send `ending` to this process when the thread that started it ends; elsewhere do nothing.

    `parent` is that process's id: if it has gone already, between fork and this call, the process ends at
    once. Elsewhere the watchdog alone ends orphans; on Linux it does so too, for whole groups, and this is
    the second rope.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(ending), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def die_with_this_process() -> Callable[[], None]:
    """A `preexec_fn` for `subprocess` that ties the child to the process calling this."""
    parent = os.getpid()
    return lambda: die_with_parent(parent)


@dataclass(frozen=True)
class Command:
    """What to run, and how to treat it."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Whether it is to run as long as the site; otherwise it is a step that ends by itself.
    lasting: bool = True
    #: Whether it is ended after the others, which may still need it while they end.
    ends_last: bool = False
    shown: Shown = "warnings"


class Child:
    """One command and its current process, if it has one."""

    def __init__(self, command: Command, log_folder: Path, working_folder: Path) -> None:
        self.command = command
        self.log = ProcessLog(command.name, log_folder, command.shown)
        self.started_at = 0.0
        #: Ends in a row that came soon after a start.
        self.quick_ends = 0
        #: When to start it again, on the monotonic clock; None while it runs or is not to run.
        self.restart_at: float | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._working_folder = working_folder

    def start(self) -> None:
        """Start the process. Only from the main thread: Linux ties a child to the *thread* it came from."""
        self.restart_at = None
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            list(self.command.arguments),
            env={**os.environ, **self.command.environment},
            cwd=self._working_folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=die_with_this_process(),  # safe: the supervisor has one thread
        )
        os.set_blocking(self.output, False)
        self.log.note(f"started as process {self.pid}: {' '.join(self.command.arguments)}")

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        assert self.process is not None
        return self.process.pid

    @property
    def output(self) -> int:
        """The descriptor to read what the process prints from."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def running(self) -> bool:
        """Whether it has a process that was not yet seen to end."""
        return self.process is not None and self.process.returncode is None

    def exit_status(self) -> int | None:
        """None while it runs; else its exit status, negative for a signal."""
        return self.process.poll() if self.process is not None else None

    def ending(self) -> str:
        """How it ended, in words."""
        status = self.exit_status()
        if status is None or status >= 0:
            return f"exit status {status}"
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"

    def read(self) -> bool:
        """Read what it has printed into its log; False when there will be no more."""
        try:
            data = os.read(self.output, 65536)
        except BlockingIOError:
            return True
        if data:
            self.log.feed(data)
        else:
            self.log.flush()
        return bool(data)

    def kill_group(self) -> None:
        """End every process of its group at once, workers of the child included."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process alone to end, which tells its own workers in its own manner."""
        assert self.process is not None
        self.process.terminate()

    def reap(self) -> None:
        """After its end: end what is left of its group, and read the last of its output."""
        self.kill_group()
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.wait()
        with contextlib.suppress(OSError):  # BlockingIOError: nothing left, though somebody has the pipe
            while data := os.read(self.output, 65536):
                self.log.feed(data)
        self.process.stdout.close()
        self.log.flush()
