"""Ties our worker to Celery's: announced before it looks for the broker, heard of while it lives, polite at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.signals import worker_init, worker_process_init, worker_shutting_down

from leaderboard.celery import app
from leaderboard.core.version import VERSION
from submissions.jobs.worker.polling import start_looking
from submissions.jobs.worker.shutdown import GRACE, give_back, hear_leave
from submissions.jobs.worker.watchdog import HungProcesses
from submissions.queue.heartbeat import Heartbeat
from submissions.queue.lease import ENDS_ITS_PROCESS
from submissions.queue.process import become, own_queues, worker_name


class Presence(bootsteps.StartStopStep):
    """Between the pool and the consumer: the pool's processes are there, and no broker is needed yet."""

    requires = ("celery.worker.components:Pool",)  # type: ignore[assignment]  # Celery says nothing of the type

    def __init__(self, worker: Any, **_: Any) -> None:
        self._processes: Callable[[], list[int]] = lambda: _processes_of(worker)
        self._heartbeat: Heartbeat | None = None
        self._giving_back: threading.Thread | None = None
        worker_shutting_down.connect(self._stop_working, weak=False)

    def start(self, worker: Any) -> None:
        """Announce the worker."""
        hung = HungProcesses(worker_name())
        self._heartbeat = Heartbeat(
            worker_name(), own_queues(), VERSION, each_time=lambda: hung.end(self._processes())
        )
        self._heartbeat.start()

    def stop(self, worker: Any) -> None:
        """Take it off the list, once its work is given back."""
        if self._giving_back is None:
            self._stop_working()
        if self._giving_back is not None:
            self._giving_back.join(2 * GRACE)
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    terminate = stop

    def _stop_working(self, **_: Any) -> None:
        """Called in a handler of signals, by the main thread."""
        if self._giving_back is None:
            self._giving_back = give_back(self._processes())


app.steps["worker"].add(Presence)


def _processes_of(worker: Any) -> list[int]:
    """The ids of the pool's processes; of a pool without any, none."""
    pool = getattr(worker.pool, "_pool", None)
    return [process.pid for process in list(getattr(pool, "_pool", ()))]


@worker_init.connect
def know_oneself(sender: Any, **_: Any) -> None:
    """Before the pool's processes are forked, which inherit it."""
    become(tuple(sender.app.amqp.queues.consume_from))


@worker_process_init.connect
def look_for_work(**_: Any) -> None:
    """In each process that works."""
    if threading.current_thread() is threading.main_thread():
        hear_leave()
    ENDS_ITS_PROCESS.set()
    start_looking()
