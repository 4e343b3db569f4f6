"""Pool processes that no longer answer: stopped, or in foreign code that lets nothing else in the process run.

A process that works tells so every LEASE_LOOK_SECONDS. Its worker ends one that has not for half a lease in two looks:
between one look and the next a database that was away is back, and so is whoever only waited for it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from submissions.models import Job
from submissions.workers.own import process_number

logger = logging.getLogger(__name__)


class HungProcesses:
    """What one worker knows of its pool processes from one look to the next."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._silent: set[tuple[int, int]] = set()

    def end(self, pool: Collection[int]) -> list[int]:
        """End those of the pool that were silent before and still are; which. The pool starts others in their place."""
        limit = Now() + timedelta(seconds=settings.LEASE_SECONDS / 2)
        silent = {
            (process_number(job.worker), job.fence): job
            for job in Job.objects.held_by(self._worker).filter(lease_expires_at__lt=limit)
        }
        ended = []
        for process, fence in self._silent & silent.keys():
            if process in pool and process != os.getpid():
                logger.error(
                    "process %s no longer answers (job %s): ended", process, silent[process, fence].pk
                )
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                ended.append(process)
        self._silent = set(silent)
        return ended
