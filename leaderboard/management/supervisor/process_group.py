"""Starts, watches, restarts and ends a set of child processes, in one thread.

No process manager stands in its place. Killed with SIGKILL while a child that ignores SIGTERM had forked another
process, honcho 2.0 left 4 of 4 processes running twelve seconds later (with `setpriv --pdeathsig KILL` before the
command 3 of 3), supervisord 4.3 and circus 0.19 left 2 of 2; here none is left, since the watchdog ends whole groups.
Each would also need the lock, the steps of a start, readiness and the filter of the console beside it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from leaderboard.management.supervisor.logs import echo
from leaderboard.management.supervisor.processes import Child, Command, StopRequested, SupervisorError

_WATCHDOG = Path(__file__).with_name("watchdog.py")


class WatchdogPipe:
    """The supervisor's end of the pipe to its watchdog, which is told what it would have to end and remove."""

    def __init__(self, lock: int) -> None:
        """`lock` is a descriptor that the watchdog keeps open until it has tidied up (see `main.hold_lock`)."""
        self._lock = lock
        self._lines: list[str] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        # -I -S: no site-packages, so that it starts in milliseconds and weighs little.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self._lock,),
            text=True,
        )

    def add_group(self, group: int) -> None:
        """Name a process group to end."""
        self._lines.append(f"+{group}")
        self._write(f"+{group}")

    def discard_group(self, group: int) -> None:
        """Say that the group has ended."""
        self._lines.remove(f"+{group}")
        self._write(f"-{group}")

    def add_path(self, path: Path) -> None:
        """Name a file or folder to remove in the end."""
        self._lines.append(f"remove {path}")
        self._write(f"remove {path}")

    def restart_if_ended(self) -> None:
        """Start another watchdog, and tell it everything, if this one was killed."""
        if self._process.poll() is not None:
            self._process = self._start()
            for line in self._lines:
                self._write(line)

    def close(self) -> None:
        """Let the watchdog end and remove what it still knows of, and wait until it has."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed: `restart_if_ended` notices
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


@dataclass(frozen=True)
class Timeouts:
    """Times, in seconds, and counts that decide how a group treats its children."""

    #: A child that ran shorter than this ended quickly.
    quick: float = 10.0
    #: Number of quick ends in a row that stops the site during a start.
    ends: int = 4
    #: The pause before the first restart, doubled with each further quick end up to `longest_backoff`.
    backoff: float = 0.5
    longest_backoff: float = 60.0
    #: What children get to end by themselves after SIGTERM, and those that end last after them.
    #: A worker without a broker takes 6.6 s on a busy machine.
    ending: float = 8.0
    ending_last: float = 2.0


class ProcessGroup:
    """Use it as a context: leaving it ends every child. Only the main thread may use it."""

    def __init__(
        self, log_folder: Path, working_folder: Path, lock: int, timeouts: Timeouts | None = None
    ) -> None:
        self.watchdog = WatchdogPipe(lock)
        self._log_folder = log_folder
        self._working_folder = working_folder
        self._timeouts = timeouts or Timeouts()
        self._children: list[Child] = []
        #: Whether children that keep failing are restarted for as long as the site runs. During a start such a child
        #: stops the site, since it usually means a wrong setting; later it must not stop the others.
        self.keeps_trying = False
        self._selector = selectors.DefaultSelector()
        self._stop_requested = False
        self._impatient = False
        self._requested_at = 0.0
        # A signal writes a byte here, which ends the wait in `_turn` at once.
        self._wake, self._wakener = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wakener, False)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._wakener, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._former = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        self._former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_all()
        finally:
            self.watchdog.close()
            signal.set_wakeup_fd(-1)
            for number, handler in self._former.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._wake)
            os.close(self._wakener)
            for child in self._children:
                child.log.close()

    def start(self, *commands: Command) -> list[Child]:
        """Start each; a lasting one is kept running from now on."""
        children = [Child(command, self._log_folder, self._working_folder) for command in commands]
        for child in children:
            self._children.append(child)
            self._start(child)
        return children

    def finish(self, *commands: Command) -> None:
        """Run steps side by side until all have ended well; SupervisorError with the last lines of one if not."""
        steps = self.start(*commands)
        self.run_until(lambda: not any(step.running for step in steps))

    def run_until(self, condition: Callable[[], bool], every: float = 0.25) -> None:
        """Look after the children until the condition, asked once in `every` seconds, holds.

        Raises StopRequested on a signal, SupervisorError when a child cannot be kept alive or a step failed.
        """
        while not condition():
            turn_ends = time.monotonic() + every
            while (remaining := turn_ends - time.monotonic()) > 0:
                if self._turn(remaining):
                    break

    def _turn(self, timeout: float) -> bool:
        """Wait for output, a signal or a time to restart; True when a child has ended."""
        due = [child.restart_at for child in self._children if child.restart_at is not None]
        if not self._stop_requested:
            self._read(min([timeout, *(max(0.0, moment - time.monotonic()) for moment in due)]))
        if self._stop_requested:
            raise StopRequested
        self.watchdog.restart_if_ended()
        ended = [child for child in self._children if child.running and child.exit_status() is not None]
        for child in ended:
            self._reap(child)
            self._decide_restart(child)
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                self._start(child)
        return bool(ended)

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as error:
            raise SupervisorError(f"{child.command.name} cannot be started: {error}") from error
        self.watchdog.add_group(child.pid)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, Child):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)

    def _reap(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it may have closed its output before it ended
            self._selector.unregister(child.output)
        child.reap()
        self.watchdog.discard_group(child.pid)
        child.log.note(f"process {child.pid} ended with {child.ending()}")

    def _decide_restart(self, child: Child) -> None:
        """Schedule the restart of a child that ended unexpectedly. Raises SupervisorError if it keeps failing."""
        name, how = child.command.name, child.ending()
        if not child.command.lasting:
            if child.exit_status() != 0:
                raise _failure(child, f"The step '{name}' has failed with {how}.")
            return
        quick = time.monotonic() - child.started_at < self._timeouts.quick
        child.quick_ends = child.quick_ends + 1 if quick else 1
        if child.quick_ends >= self._timeouts.ends and not self.keeps_trying:
            times = f"{child.quick_ends} times in a row, the last time with {how}"
            raise _failure(child, f"'{name}' has ended {times}.")
        doublings = min(child.quick_ends - 1, 32)  # a larger power of two is no float
        delay = min(self._timeouts.backoff * 2**doublings, self._timeouts.longest_backoff)
        child.restart_at = time.monotonic() + delay
        echo(f"ended with {how}; starting it again in {delay:g} s (log: {child.log.path})", name)

    def _end_all(self) -> None:
        """End all children: politely, then not; somebody who asks again skips the politeness."""
        self._end([child for child in self._children if not child.command.ends_last], self._timeouts.ending)
        self._end(self._children, self._timeouts.ending_last)

    def _end(self, children: list[Child], seconds: float) -> None:
        remaining = [child for child in children if child.running]
        for child in remaining:
            child.terminate()
        deadline = time.monotonic() + seconds
        while remaining:
            if self._impatient or time.monotonic() > deadline:
                for child in remaining:
                    child.kill_group()
            self._read(0.05)
            for child in [child for child in remaining if child.exit_status() is not None]:
                self._reap(child)
                remaining.remove(child)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # One wish to end can arrive twice at once: from the terminal and through `make`.
        now = time.monotonic()
        if self._stop_requested:
            self._impatient = self._impatient or now - self._requested_at > 1
        else:
            self._stop_requested, self._requested_at = True, now


def _failure(child: Child, message: str) -> SupervisorError:
    lines = [message, f"Its last lines (all of them: {child.log.path}):", *child.log.last_lines()]
    return SupervisorError("\n    ".join(lines))
