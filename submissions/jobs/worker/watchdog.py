"""Pool processes that no longer answer: stopped, or in foreign code that lets nothing else in the process run.

A process that works tells so every LEASE_LOOK_SECONDS. Its worker ends one that has not for half a lease in two looks:
between one look and the next a database that was away is back, and so is whoever only waited for it. One whose job
somebody else has ended hears of it at its next look, and ends itself where its work goes on; its worker ends one that
does neither.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from submissions.models import Job
from submissions.queue.process import process_number
from submissions.queue.queue import let_go

logger = logging.getLogger(__name__)


#: A process and the claim under which it has a job: the job's key and fence.
Claim = tuple[int, int, int]


class HungProcesses:
    """What one worker knows of its pool processes from one look to the next."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._silent: set[Claim] = set()
        #: Since when (on the monotonic clock) the job of a claim is known to have ended under its process.
        self._ended: dict[Claim, float] | None = None
        #: What a worker of the same name left, whose process ids may be others' now: containers use both again.
        self._of_old: frozenset[Claim] = frozenset()

    def end(self, pool: Collection[int]) -> list[int]:
        """End those of the pool that were silent before and still are; which. The pool starts others in their place."""
        silent = self._silent_now()
        found = {claim: job for claim, job in silent.items() if claim in self._silent} | self._deaf()
        self._silent = set(silent)
        ended = []
        for (process, key, _), job in found.items():
            if process in pool and process != os.getpid():
                logger.error("process %s no longer answers (job %s): ended", process, key)
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                ended.append(process)
                let_go(job)
        return ended

    def _silent_now(self) -> dict[Claim, Job]:
        """Claims that were not extended for half a lease."""
        limit = Now() + timedelta(seconds=settings.LEASE_SECONDS / 2)
        return _by_claim(Job.objects.held_by(self._worker).filter(lease_expires_at__lt=limit))

    def _deaf(self) -> dict[Claim, Job]:
        """Claims whose job has ended for longer than a process goes on that hears of it."""
        found, now = _by_claim(Job.objects.ended_under(self._worker)), time.monotonic()
        if self._ended is None:
            self._of_old = frozenset(found)
        known = self._ended or {}
        self._ended = {claim: known.get(claim, now) for claim in found.keys() - self._of_old}
        patience = settings.UNHEARD_SECONDS + settings.LEASE_SECONDS / 2
        return {claim: found[claim] for claim, since in self._ended.items() if now - since > patience}


def _by_claim(jobs: Iterable[Job]) -> dict[Claim, Job]:
    return {(process_number(job.worker), job.pk, job.fence): job for job in jobs}
