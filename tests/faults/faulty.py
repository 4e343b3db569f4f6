"""The product's Celery application in worker processes of tests: `celery --app tests.faults.faulty worker ...`.

Functions of the product are wrapped, so that a process dies exactly where `orders` say, goes on without a protection,
or has a wrong clock. Where nothing is ordered it is the product as it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import django

from leaderboard.celery import app as app
from tests.faults.orders import Orders

#: The points in the order in which a job comes to them, by what a job of ours, a model's or the site's comes to.
SCORE_POINTS = ("claimed", "validating", "scoring", "stored", "publishing", "published", "settled")
MODEL_POINTS = ("loading", "encoding", "indexing", "searching")
OTHER_POINTS = ("shard", "certainty", "dispatching", "reaping")

_orders = Orders(Path(os.environ["FAULT_ORDERS"]))
_name = os.environ.get("FAULT_NAME", "")
#: The job that this process does.
_job = threading.local()


def _come_to(point: str) -> None:
    job = getattr(_job, "job", None)
    _orders.come_to(point, job.pk if job else 0, job.attempts if job else 1)


def _wrap(module: Any, name: str, *, before: str = "", after: str = "") -> None:
    """Have the function, as its module knows it, come to a point before or after its work."""
    real = getattr(module, name)

    @wraps(real)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            _come_to(before)
        result = real(*arguments, **options)
        if after:
            _come_to(after)
        return result

    setattr(module, name, wrapped)


def _follow_jobs(working: Any) -> None:
    """Know which job this process does; a poisonous one kills it."""
    real = working.do

    def do(job: Any) -> None:
        _job.job = job
        try:
            if _orders.is_poison(job.pk):
                os.kill(os.getpid(), 9)
            _come_to("claimed")
            real(job)
        finally:
            _job.job = None

    working.do = do


def _follow_scoring(scoring: Any, retrieving: Any) -> None:
    real = scoring.evaluate

    def evaluate(path: Path, dataset: Any, qrels: Any, lease: Any) -> Any:
        scored = real(path, dataset, qrels, lease)
        unchecked = lease.job.kind == "score" and not lease.job.validated
        _come_to("validating" if unchecked else "scoring")
        return scored

    for module in (scoring, retrieving):
        module.evaluate = evaluate
        _wrap(module, "publish_on_present", before="stored")
    _wrap(scoring, "_log_publication", after="publishing")  # the last step before the commit
    _wrap(scoring, "forget_upload", before="published")


def _follow_models(lease: Any) -> None:
    real = lease.Lease.report_stage

    def report_stage(self: Any, stage: str, progress: float, note: str = "") -> None:
        real(self, stage, progress, note)
        _come_to(stage)

    lease.Lease.report_stage = report_stage


def _leave_out(queue: Any, lifecycle: Any, users: tuple[Any, ...]) -> None:
    """Let protections be taken out while the worker runs."""
    advance, reap, attempts = lifecycle.advance, queue.reap, queue.ATTEMPTS

    def unfenced(job_id: int, to: Any, *, fence: int | None = None, **changes: Any) -> bool:
        if not _orders.lacks("fence"):
            return bool(advance(job_id, to, fence=fence, **changes))
        if _orders.lacks("states"):
            changes.pop("unless_cancelled", None)
            changes.setdefault("lease_expires_at", None)
            from submissions.models import Job

            return Job.objects.filter(pk=job_id).update(state=to, **changes) == 1
        return bool(advance(job_id, to, **changes))

    for module in (lifecycle, queue, *users):
        module.advance = unfenced
    queue.reap = lambda: 0 if _orders.lacks("reaper") else reap()

    class Attempts(int):
        """The limit, or none."""

        def __le__(self, other: int) -> bool:
            return not _orders.lacks("attempts") and super().__le__(other)

        def __gt__(self, other: int) -> bool:
            return _orders.lacks("attempts") or super().__gt__(other)

    queue.ATTEMPTS = Attempts(attempts)


def _leave_out_looking(tasks: Any, looking: Any) -> None:
    """Let nobody ring again, nor look without a bell."""
    ring, look = tasks.ring_for_waiting, looking.look
    tasks.ring_for_waiting = lambda: None if _orders.lacks("looking") else ring()
    looking.look = lambda: None if _orders.lacks("looking") else look()


def _set_clock() -> None:
    from django.utils import timezone

    real: Callable[[], Any] = timezone.now
    timezone.now = lambda: real() + timedelta(seconds=_orders.clock(_name))


def _follow_all() -> None:
    from submissions import analysis, lease, lifecycle, queue, retrieved, scoring, tasks, working
    from submissions.model_work import encodings, retrieving, shards
    from submissions.workers import looking

    _set_clock()
    _leave_out_looking(tasks, looking)
    _leave_out(queue, lifecycle, (analysis, scoring, working, retrieving, encodings, shards))
    _follow_scoring(scoring, retrieved)
    _follow_models(lease)
    _follow_jobs(working)
    _wrap(working, "prepare_for_pages", before="settled")
    _wrap(encodings, "_keep", after="shard")
    _wrap(analysis, "keep_certainty", after="certainty")
    _wrap(queue, "_waits", before="dispatching")  # between taking a request and making its job
    _wrap(queue, "put_back", after="reaping")
    for name in ("reap", "take_requests"):
        setattr(tasks, name, getattr(queue, name))


def _use_toy_engine() -> None:
    """The engine of tests beside the real ones, here and in children."""
    from submissions.sandbox import running
    from tests.submissions import toy_engine

    toy_engine.register()
    running._BOOTSTRAP = toy_engine.BOOTSTRAP


if "FAULT_ORDERS" in os.environ:
    django.setup()
    _follow_all()
    _use_toy_engine()
