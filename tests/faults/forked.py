"""Workers forked from the test's own process: what starts in milliseconds, for the short cut in `make test`.

A main process in a group of its own keeps one child, as Celery's pool does, and the child looks for work by itself.
Everything else is the product, and dies as `tests.faults.faulty` has it. `make test-faults` uses Celery's workers.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, connections

from leaderboard.management.supervisor.processes import die_with_parent
from tests.faults import faulty
from tests.faults.orders import Orders
from tests.faults.service import Service
from tests.faults.site import Site

#: Times of the queue in parts of production's: a lease of a second and a bit.
SCALE = 0.02


#: Seconds between two looks for work: who looks all the time takes the processor from who works.
_PAUSE = 0.1


class ForkedService(Service):
    """A worker of the test's own flesh."""

    def __init__(self, name: str, queues: Sequence[str], orders: Orders, log: Path, scale: float = SCALE) -> None:
        super().__init__(name, log)
        self._queues, self._orders, self._scale = queues, orders, scale
        self._pid = 0

    def start(self) -> None:
        """Fork it. Our connections are closed before, since two processes cannot share them."""
        connections.close_all()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._live(parent)
        self.starts += 1

    @property
    def pid(self) -> int:
        """Process id of the main process, and id of its group."""
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether the main process runs."""
        if not self._pid:
            return False
        try:
            ended, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return False
        return ended == 0

    @property
    def ready(self) -> bool:
        """At once."""
        return True

    def wait(self) -> None:
        """Return when the main process has ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def stop(self, patience: float = 10.0) -> None:
        """It has nothing to tidy up."""
        self.kill()

    def _live(self, parent: int) -> None:
        """The main process: never returns into the test."""
        try:
            gc.freeze()  # otherwise a collection here would delete the temporary files of the test's process
            os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            sys.stdout = sys.stderr = self.log.open("a", buffering=1)  # for this process's life
            logging.getLogger("submissions").addHandler(logging.StreamHandler(sys.stderr))
            die_with_parent(parent, signal.SIGKILL)
            from submissions import tasks  # noqa: F401  with it everything is loaded that works

            _set_times(self._scale)
            faulty.follow_all(self._orders, self.name)
            while True:
                main = os.getpid()
                child = os.fork()
                if child == 0:
                    die_with_parent(main, signal.SIGKILL)
                    _work(self.name, self._queues, self._orders)
                os.waitpid(child, 0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)


def _work(name: str, queues: Sequence[str], orders: Orders) -> None:
    from submissions import tasks
    from submissions.jobs import runner

    worker = f"{socket.gethostname()}:{os.getpid()}"
    tasks.tidy_up()
    while True:
        try:
            for queue in queues:
                if orders.lacks("looking"):
                    continue  # there are no wakeups here
                if queue == "dispatch":
                    tasks.dispatch()
                else:
                    runner.drain_queue(queue, worker)
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            connections.close_all()
        time.sleep(max(settings.QUEUE_TIMES.dispatch, 0.3) if "dispatch" in queues else _PAUSE)


def _set_times(scale: float) -> None:
    """Scale the times of the settings, and of modules that read the settings at import."""
    from leaderboard.core import wakeup
    from leaderboard.settings.services import QueueTimes
    from submissions.queue import lease, queue
    from tests.settings import scaled

    times = settings.QUEUE_TIMES = scaled(QueueTimes(), scale)
    standing = round(60_000 * scale)
    connection.settings_dict["OPTIONS"]["options"] = f"-c idle_in_transaction_session_timeout={standing}"
    lease.CHECK_INTERVAL = times.claim_interval
    queue.BACKOFF = tuple(timedelta(seconds=seconds) for seconds in times.retries)

    def silent(*arguments: Any, **options: Any) -> bool:
        """No wakeups are sent here."""
        return False

    wakeup.send_wakeup = wakeup.count_pending = silent


def forked_site(folder: Path, scorers: int, scale: float) -> Site:
    """So many workers that score and a dispatcher, forked from the test."""
    site = Site(folder, scale=scale)
    names = {**{f"scorer-{number + 1}": "score" for number in range(scorers)}, "dispatcher": "dispatch"}
    for name, queue in names.items():
        site.add(ForkedService(name, [queue], site.orders, site.folder / f"{name}.log", scale))
    return site
