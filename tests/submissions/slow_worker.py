"""The site's Celery application with work that takes as long as its job says. Named by `celery --app`.

A job's payload has `ask` seconds in which it asks whether it may go on, and `hang` seconds in which it does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
django.setup()

from leaderboard.celery import app  # noqa: E402
from submissions.jobs import runner  # noqa: E402
from submissions.models import Job, State  # noqa: E402
from submissions.queue.lease import Lease  # noqa: E402
from submissions.queue.queue import advance  # noqa: E402

__all__ = ["app"]


def slow_job(job: Job, lease: Lease) -> None:
    """Last as long as the payload says, in the first attempt with a child process beside it; then be done."""
    advance(job.pk, State.SCORING, fence=job.fence)
    if folder := job.payload.get("folder"):
        (Path(folder) / f"{job.pk}-{job.fence}").touch()
    first = job.fence == 1
    until = time.monotonic() + (job.payload.get("ask", 0) if first else 0)
    while time.monotonic() < until:
        lease.report(0.5)
        time.sleep(0.05)
    time.sleep(job.payload.get("hang", 0) if first else 0)
    advance(job.pk, State.DONE, fence=job.fence)


runner.WORK[Job.Kind.POOL] = slow_job
runner.prepare_query_pages = lambda job: None
