"""One process of a site, with what it started: killed, frozen and started again by tests of faults."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from leaderboard.management.supervisor.processes import Command
from tests.faults.orders import children_of
from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]


class Service:
    """One process of the site, in a group of its own, as the site's supervisor runs it."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.starts = 0

    def start(self) -> None:
        """Start it, or start it again."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """Of the main process, and of its group."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Whether the main process runs."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether a worker that was started takes work now."""
        raise NotImplementedError

    def wait(self) -> None:
        """Return when the main process has ended."""
        raise NotImplementedError

    def stop(self, patience: float = 10.0) -> None:
        """SIGTERM, and SIGKILL to the group after a while."""
        raise NotImplementedError

    def children(self) -> list[int]:
        """The process ids of what the main process started."""
        return children_of(self.pid)

    def kill(self) -> None:
        """SIGKILL to the main process, then to what is left of its group, as the supervisor does."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.bury()

    def bury(self) -> None:
        """End what an ended main process left of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Let the whole group stand still, as a machine that swaps, or a suspended one, does."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Program(Service):
    """A service that is a command."""

    def __init__(self, command: Command, log: Path) -> None:
        super().__init__(command.name, log)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        self._process = processes.start(self._command.arguments, self.log, self._command.environment, cwd=ROOT)
        self.starts += 1

    @property
    def pid(self) -> int:
        """Of the main process, and of its group."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the main process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether Celery has said so as often as it was started."""
        return self.said().count(" ready.") >= self.starts

    def wait(self) -> None:
        """Return when the main process has ended."""
        if self._process is not None:
            self._process.wait()

    def stop(self, patience: float = 10.0) -> None:
        """SIGTERM, and SIGKILL to the group after a while."""
        if self.alive:
            assert self._process is not None
            processes.stop(self._process, patience=patience)
        self.bury()
