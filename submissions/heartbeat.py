"""Workers announce themselves, so that pages can tell "no worker is alive" from "12 before you"."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta

from django.db import Error as DatabaseError
from django.db import connection
from django.utils import timezone

from submissions.models import Worker

logger = logging.getLogger(__name__)

INTERVAL = 10.0
#: A worker not heard of for so long counts as dead.
SILENCE = timedelta(seconds=30)


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
                Worker.objects.update_or_create(
                    name=self.name,
                    defaults={"queues": self.queues, "version": self.version, "seen_at": timezone.now()},
                    create_defaults={
                        "queues": self.queues,
                        "version": self.version,
                        "started_at": started,
                        "seen_at": timezone.now(),
                    },
                )
            except DatabaseError:
                logger.warning("no heartbeat written, the database does not answer")
                connection.close()
            if self._ended.wait(INTERVAL):
                break
        try:
            Worker.objects.filter(name=self.name).delete()
        except DatabaseError:
            logger.warning("the worker's row could not be removed; it ages out")
        finally:
            connection.close()


def workers_alive(queue: str) -> int:
    """How many workers of this queue were heard of lately."""
    recent = Worker.objects.filter(seen_at__gt=timezone.now() - SILENCE).values_list("queues", flat=True)
    return sum(queue in queues for queues in recent)


def forget_silent_workers() -> None:
    """Remove the rows of workers not heard of for an hour."""
    Worker.objects.filter(seen_at__lt=timezone.now() - timedelta(hours=1)).delete()
