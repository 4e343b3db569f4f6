"""Workers announce themselves and their sandbox, so that pages can tell "no worker is alive" from "12 before you"."""

from __future__ import annotations

import functools
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models.functions import Now

from evaluation.efficiency import describe
from evaluation.efficiency.hardware import own_gpu
from submissions.models import Job, Worker
from submissions.queue.capability import SILENCE, own_capability, runs_models
from submissions.queue.process import refusal

logger = logging.getLogger(__name__)

#: Seconds between two signs of life.
INTERVAL: float = settings.QUEUE_TIMES.heartbeat
#: What a worker could do is remembered for so long after it was last heard of: jobs for its like are taken, and wait.
MEMORY = timedelta(days=1)


class Heartbeat:
    """A thread that keeps one worker's row fresh."""

    def __init__(
        self, name: str, queues: Sequence[str], version: str, each_time: Callable[[], object] | None = None
    ) -> None:
        """`each_time` is called after every sign of life."""
        self.name, self.queues, self.version = name, sorted(queues), version
        self._each_time = each_time
        self._announced = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def start(self) -> None:
        """Announce the worker and keep announcing it."""
        self._thread.start()

    def stop(self) -> None:
        """Take the worker off the list."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            try:
                # First: while the database is away this process lives, and waits for it.
                if settings.HEARTBEAT_FILE:
                    Path(settings.HEARTBEAT_FILE).touch()
                self._write_row()
                if self._each_time is not None:
                    self._each_time()
            except DatabaseError as error:
                logger.warning("no heartbeat written: %s", type(error).__name__)
                connection.close()
            except Exception:
                logger.exception("fault %s in the heartbeat", secrets.token_hex(4))
            if self._ended.wait(INTERVAL):
                break
        try:
            # Not removed: where nobody is alive, what the last ones could do still says what the next will.
            Worker.objects.filter(name=self.name).update(seen_at=Now() - SILENCE)
        except DatabaseError:
            logger.warning("the worker's row could not be changed; it ages out")
        finally:
            connection.close()

    def _write_row(self) -> None:
        """Write the row; that of a worker for models waits until its sandbox has been tried."""
        able = own_capability(self.queues) if runs_models(self.queues) else None
        row = {
            "queues": self.queues,
            "version": self.version,
            "hardware_class": own_hardware_class(self.queues),
            "sandbox": {**able.as_dict(), "device": own_device(self.queues)} if able else {},
            # Whoever takes work in this worker asks for itself, and more often.
            "refusal": (refusal(heartbeats=6) or (able.refusal if able else ""))[:300],
            "seen_at": Now(),
        }
        if self._announced and Worker.objects.filter(name=self.name).update(**row):
            return
        # A container that is started again has the name and the number of the one before.
        Worker.objects.update_or_create(name=self.name, defaults={**row, "started_at": Now()})
        self._announced = True


@functools.cache
def _hardware_class(threads: int, device: str) -> str:
    return describe(threads, device).slug


def own_hardware_class(queues: Sequence[str]) -> str:
    """What timings made here are filed under; empty for a worker that makes none."""
    if not runs_models(queues):
        return ""
    return _hardware_class(settings.MODEL_THREADS, "cuda" if Job.Queue.GPU in queues else "cpu")


def own_device(queues: Sequence[str]) -> str:
    """What a worker of these queues computes on, for operators: "cuda:3", by the number it has there, or "cpu"."""
    return f"cuda:{own_gpu().number}" if Job.Queue.GPU in queues else "cpu"


def delete_silent_workers() -> None:
    """Remove the rows of workers not heard of for a day."""
    Worker.objects.filter(seen_at__lt=Now() - MEMORY).delete()
