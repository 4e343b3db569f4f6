"""The real Celery worker and beat beside the tests, on the test database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from leaderboard.management.supervisor import services
from leaderboard.management.supervisor.processes import Command
from tests.servers import processes


class WorkerProcesses:
    """A worker with its pool, and beat; both as `make run` starts them."""

    def __init__(self, root: Path, folder: Path, database_name: str) -> None:
        self._environment = {"PYTHONUNBUFFERED": "1", "WEBHOOKS_LOOPBACK": "on"}
        if url := os.environ.get("DATABASE_URL", ""):
            self._environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{database_name}\1", url, count=1)
        self._root = root
        self._folder = folder
        self.log = folder / "worker.log"
        self.worker = self._start(services.worker("worker", "score,cpu,dispatch", 2, self._environment), self.log)
        self.beat = self._start(services.beat(folder, self._environment), folder / "beat.log")
        self._further: list[Any] = []

    @property
    def notifies(self) -> bool:
        """Whether anybody sends what there is to tell."""
        return bool(self._further)

    def start_notifier(self) -> None:
        """The process that sends mail and webhooks, for tests that wait for either."""
        command = services.queue_worker("notices", "notifier", self._environment)
        self._further.append(self._start(command, self._folder / "notifier.log"))

    def wait_until_ready(self, patience: float = 180.0) -> None:
        """Return when the worker takes messages; AssertionError with its last lines when it does not."""
        processes.wait_until(lambda: " ready." in self.log.read_text(errors="replace"), self.worker, self.log, patience)

    def stop(self) -> None:
        """End all."""
        for process in (self.beat, self.worker, *self._further):
            processes.stop(process)

    def _start(self, command: Command, log: Path) -> Any:
        return processes.start(command.arguments, log, command.environment, cwd=self._root)
