"""Workers announce themselves and their sandbox, so that pages can tell "no worker is alive" from "12 before you"."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.utils import timezone

from submissions.capability import SILENCE, own_capability, runs_models
from submissions.models import Worker

logger = logging.getLogger(__name__)

#: Seconds between two signs of life.
INTERVAL: float = settings.HEARTBEAT_SECONDS
#: What a worker could do is remembered for so long after it was last heard of: jobs for its like are taken, and wait.
MEMORY = timedelta(days=1)


class Heartbeat:
    """A thread that keeps one worker's row fresh."""

    def __init__(self, name: str, queues: Sequence[str], version: str) -> None:
        self.name, self.queues, self.version = name, sorted(queues), version
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
        started = timezone.now()
        while True:
            try:
                told = self._told()
                Worker.objects.update_or_create(
                    name=self.name, defaults=told, create_defaults={**told, "started_at": started}
                )
            except DatabaseError:
                logger.warning("no heartbeat written, the database does not answer")
                connection.close()
            if self._ended.wait(INTERVAL):
                break
        try:
            # Not removed: where nobody is alive, what the last ones could do still says what the next will.
            Worker.objects.filter(name=self.name).update(seen_at=timezone.now() - SILENCE)
        except DatabaseError:
            logger.warning("the worker's row could not be changed; it ages out")
        finally:
            connection.close()

    def _told(self) -> dict[str, Any]:
        """The row; that of a worker for models waits until its sandbox has been tried."""
        able = own_capability().as_dict() if runs_models(self.queues) else {}
        return {"queues": self.queues, "version": self.version, "sandbox": able, "seen_at": timezone.now()}


def workers_alive(queue: str) -> int:
    """How many workers of this queue were heard of lately."""
    recent = Worker.objects.filter(seen_at__gt=timezone.now() - SILENCE).values_list("queues", flat=True)
    return sum(queue in queues for queues in recent)


def forget_silent_workers() -> None:
    """Remove the rows of workers not heard of for a day."""
    Worker.objects.filter(seen_at__lt=timezone.now() - MEMORY).delete()
