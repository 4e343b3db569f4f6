"""Starts, watches, restarts and ends a set of child processes, in one thread."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from leaderboard.management.supervisor.errors import StopRequested, SupervisorError
from leaderboard.management.supervisor.logs import say
from leaderboard.management.supervisor.processes import Child, Command
from leaderboard.management.supervisor.watchdog_pipe import Tether


@dataclass(frozen=True)
class Patience:
    """Times, in seconds, and counts that decide how a family treats its children."""

    #: A child that lived shorter than this has died quickly.
    quick: float = 10.0
    #: Quick deaths in a row that end everything.
    deaths: int = 4
    #: Before the first restart; doubled with each quick death after it.
    backoff: float = 0.5
    #: What children get to end by themselves after SIGTERM, and those that end last after them.
    #: A worker without a broker takes 6.6 s on a busy machine.
    ending: float = 8.0
    ending_last: float = 2.0


class Family:
    """Use it as a context: leaving it ends every child. Only the main thread may use it."""

    def __init__(
        self,
        log_folder: Path,
        working_folder: Path,
        lock: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._log_folder = log_folder
        self._working_folder = working_folder
        self._lock = lock
        self._patience = patience or Patience()
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._stop_requested = False
        self._impatient = False
        self._requested_at = 0.0
        self._former: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.tether = Tether(self._lock)
        # A signal writes a byte here, which ends the wait in `_turn` at once.
        self._wake, wakener = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wakener, False)
        signal.set_wakeup_fd(wakener, warn_on_full_buffer=False)
        self._wakener = wakener
        self._selector.register(self._wake, selectors.EVENT_READ)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._request_stop)
        self._former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            self.tether.release()
            signal.set_wakeup_fd(-1)
            for number, handler in self._former.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
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
        """Run steps side by side until all have ended well; SupervisorError with one's last words if not."""
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
        if self._stop_requested:
            raise StopRequested
        due = [child.restart_at for child in self._children if child.restart_at is not None]
        wait = min([timeout, *(max(0.0, moment - time.monotonic()) for moment in due)])
        self._read(wait)
        if self._stop_requested:
            raise StopRequested
        self.tether.mend()
        ended = [child for child in self._children if child.running and child.exit_status() is not None]
        for child in ended:
            self._bury(child)
            self._judge(child)
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                self._start(child)
        return bool(ended)

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as error:
            raise SupervisorError(f"{child.command.name} cannot be started: {error}") from error
        self.tether.started(child.pid)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, Child):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)

    def _bury(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it may have closed its output before it ended
            self._selector.unregister(child.output)
        child.bury()
        self.tether.ended(child.pid)
        child.log.note(f"process {child.pid} ended with {_ending(child)}")

    def _judge(self, child: Child) -> None:
        """Decide what follows from a death that nobody asked for."""
        name, how = child.command.name, _ending(child)
        if not child.command.lasting:
            if child.exit_status() != 0:
                raise SupervisorError(_last_words(child, f"The step '{name}' has failed with {how}."))
            return
        quick = time.monotonic() - child.started_at < self._patience.quick
        child.quick_deaths = child.quick_deaths + 1 if quick else 1
        if child.quick_deaths >= self._patience.deaths:
            times = f"{child.quick_deaths} times in a row, the last time with {how}"
            raise SupervisorError(_last_words(child, f"'{name}' has ended {times}."))
        delay = self._patience.backoff * 2 ** (child.quick_deaths - 1)
        child.restart_at = time.monotonic() + delay
        say(f"ended with {how}; starting it again in {delay:g} s (log: {child.log.path})", name)

    def _end(self) -> None:
        """End all children: politely, then not; somebody who asks again skips the politeness."""
        first = [child for child in self._children if child.running and not child.command.ends_last]
        self._end_these(first, self._patience.ending)
        self._end_these([child for child in self._children if child.running], self._patience.ending_last)

    def _end_these(self, children: Iterable[Child], patience: float) -> None:
        remaining = list(children)
        for child in remaining:
            child.signal_leader(signal.SIGTERM)
        deadline = time.monotonic() + patience
        while remaining:
            if self._impatient or time.monotonic() > deadline:
                for child in remaining:
                    child.signal_group(signal.SIGKILL)
            self._read(0.05)
            for child in [child for child in remaining if child.exit_status() is not None]:
                self._bury(child)
                remaining.remove(child)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        # One wish to end can arrive twice at once: from the terminal and through `make`.
        now = time.monotonic()
        if self._stop_requested and now - self._requested_at > 1:
            self._impatient = True
        elif not self._stop_requested:
            self._stop_requested, self._requested_at = True, now


def _ending(child: Child) -> str:
    status = child.exit_status()
    if status is not None and status < 0:
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"


def _last_words(child: Child, message: str) -> str:
    lines = [message, f"Its last lines (all of them: {child.log.path}):", *child.log.last_lines()]
    return "\n    ".join(lines)
