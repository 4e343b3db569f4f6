"""The product's Celery application in worker processes of tests: `celery --app tests.faults.faulty worker ...`.

Functions of the product are wrapped, so that a process dies exactly where `orders` say, goes on without a protection,
or has a wrong clock. Where nothing is ordered it is the product as it is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import django

from leaderboard.celery import app as app
from tests.faults.orders import Orders

_orders: Orders
_name = ""
#: The job that this process does.
_job = threading.local()


def _come_to(point: str) -> None:
    job = getattr(_job, "job", None)
    _orders.come_to(point, job.pk if job else 0, job.attempts if job else 1)


def _replace(real: Any, wrapped: Any) -> None:
    """Put `wrapped` wherever the product knows the function by a name."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("submissions", "leaderboard")):
            for attribute, value in list(vars(module).items()):
                if value is real:
                    setattr(module, attribute, wrapped)


def _wrap(module: Any, name: str, *, before: str = "", after: str = "", everywhere: bool = True) -> None:
    """Have the function come to a point before or after its work, wherever it is known or in this module alone."""
    real = getattr(module, name)

    @wraps(real)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            _come_to(before)
        result = real(*arguments, **options)
        if after:
            _come_to(after)
        return result

    if everywhere:
        _replace(real, wrapped)
    else:
        setattr(module, name, wrapped)


def _follow_jobs(runner: Any) -> None:
    """Know which job this process does; a poisonous one kills it."""
    real = runner.run_job

    def do(job: Any) -> None:
        _job.job = job
        try:
            if job.submission and _orders.is_poison(job.submission.system.name):
                os.kill(os.getpid(), signal.SIGKILL)
            _come_to("claimed")
            real(job)
        finally:
            _job.job = None

    _replace(real, do)


def _follow_scoring(score: Any) -> None:
    real = score._score

    def scored(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        unchecked = _job.job.kind == "score" and not _job.job.validated
        _come_to("validating" if unchecked else "scoring")
        return result

    _replace(real, scored)
    _wrap(score, "publish_on_current_qrels", before="stored")
    _wrap(score, "_publish_entries", after="publishing")  # before the commit, when all else is written
    _wrap(score, "delete_upload", before="published")


def _follow_models(supervision: Any) -> None:
    """A stage begins for the worker with the first that it hears of it."""
    real = supervision.read_progress

    def read_progress(line: bytes, before: Any) -> Any:
        if progress := real(line, before):
            _come_to(progress.stage)
        return progress

    supervision.read_progress = read_progress  # there alone: elsewhere it is read again


def _follow_warm_children(watch: Any) -> None:
    """One that has encoded a shard is asked for the next."""
    real = watch.encode_shard

    def encode_shard(self: Any, number: int, on_progress: Any) -> Any:
        if self.peak_memory:
            _come_to("next shard")
        return real(self, number, on_progress)

    watch.encode_shard = encode_shard


def _follow_downloads(downloads: Any) -> None:
    """An image is on its way, in a process of its own."""
    real = downloads.fetch_image

    def fetch_image(image: Any, archive: Any, while_waiting: Any) -> None:
        def wait() -> None:
            _come_to("downloading")
            while_waiting()

        real(image, archive, wait)

    downloads.fetch_image = fetch_image


def _follow_images(archive: Any, bubblewrap: Any, containers: Any, handover: Any) -> None:
    """An image that is unpacked, but not in its place; that has been started; that has worked; that has ended."""
    _wrap(archive, "write_file_system", after="unpacking", everywhere=False)
    _wrap(bubblewrap.Bubblewrap, "start", after="starting", everywhere=False)
    _wrap(handover, "store_checked_run", before="reading", everywhere=False)
    real = containers.ImageSupervision._report

    def report(self: Any) -> None:
        if hasattr(_job, "job") and self.seconds > 1:  # a server is watched by a thread of its own
            _come_to("running")
        real(self)

    containers.ImageSupervision._report = report


def _leave_out(queue: Any) -> None:
    """Let protections be taken out while the worker runs."""
    advance, reap, attempts = queue.advance, queue.reap, queue.ATTEMPTS

    def unfenced(job_id: int, to: Any, *, fence: int | None = None, **changes: Any) -> bool:
        if not _orders.lacks("fence"):
            return bool(advance(job_id, to, fence=fence, **changes))
        if _orders.lacks("states"):
            for option in ("unless_cancelled", "charged", "line"):
                changes.pop(option, None)
            from submissions.models import TERMINAL, Job
            from submissions.models.work import WAITING

            if to in TERMINAL | WAITING:
                changes.setdefault("lease_expires_at", None)
            return Job.objects.filter(pk=job_id).update(state=to, **changes) == 1
        return bool(advance(job_id, to, **changes))

    def reap_or_not() -> int:
        return 0 if _orders.lacks("reaper") else int(reap())

    _replace(advance, unfenced)
    _replace(reap, reap_or_not)

    class Attempts(int):
        """The limit, or none."""

        def __le__(self, other: int) -> bool:
            return not _orders.lacks("attempts") and super().__le__(other)

        def __gt__(self, other: int) -> bool:
            return _orders.lacks("attempts") or super().__gt__(other)

    queue.ATTEMPTS = Attempts(attempts)


def _leave_out_polling(queue: Any, polling: Any) -> None:
    """Let nobody send wakeups again, nor poll without one."""
    wake, poll = queue.wake_waiting_queues, polling.poll_queues
    _replace(wake, lambda: None if _orders.lacks("looking") else wake())
    _replace(poll, lambda: None if _orders.lacks("looking") else poll())


def _allow_duplicates() -> None:
    """Let runs and evaluations be made without a look at what is there, where `unique` is out."""
    from django.db.models import QuerySet

    from leaderboard.models import Evaluation, Run

    real = QuerySet.get_or_create

    def get_or_create(self: Any, defaults: Any = None, **fields: Any) -> Any:
        if self.model in (Run, Evaluation) and _orders.lacks("unique"):
            return self.create(**fields, **(defaults or {})), True
        return real(self, defaults, **fields)

    QuerySet.get_or_create = get_or_create


def _let_transactions_stand_still() -> None:
    """Ask the server not to end them, where its limit is out."""
    from django.db.backends.signals import connection_created

    def lift_limit(connection: Any, **_: Any) -> None:
        if _orders.lacks("standstill"):
            with connection.cursor() as cursor:
                cursor.execute("SET idle_in_transaction_session_timeout = 0")

    connection_created.connect(lift_limit, weak=False)


def _set_clock() -> None:
    from django.utils import timezone

    real: Callable[[], Any] = timezone.now
    timezone.now = lambda: real() + timedelta(seconds=_orders.clock(_name))


def _let_clocks_decide() -> None:
    """Judge leases by this process's own clock, where the database's is out."""
    from django.db.models import DateTimeField, Value
    from django.db.models.functions import Now
    from django.utils import timezone

    def now() -> Any:
        return Value(timezone.now(), DateTimeField()) if _orders.lacks("clock") else Now()

    _replace(Now, now)


def follow_all(orders: Orders, name: str) -> None:
    """Have this process, which is the service of that name, obey the orders from now on."""
    global _orders, _name
    _orders, _name = orders, name
    orders.note_worker()
    from evaluation.images import archive
    from submissions.jobs import runner, worker
    from submissions.jobs.checkpoints import downloads, encodings
    from submissions.jobs.kinds import datasets, handover, score
    from submissions.queue import queue
    from submissions.sandbox import bubblewrap, containers, supervision

    _set_clock()
    _let_clocks_decide()
    _let_transactions_stand_still()
    _leave_out(queue)
    _leave_out_polling(queue, worker)
    _allow_duplicates()
    _follow_scoring(score)
    _follow_models(supervision)
    _follow_downloads(downloads)
    _follow_images(archive, bubblewrap, containers, handover)
    _follow_jobs(runner)
    _wrap(runner, "prepare_query_pages", before="settled")
    _wrap(handover, "_hand_over", before="handing over", after="handed over", everywhere=False)
    _wrap(encodings, "make_shard_jobs", after="shards made")  # before the commit
    _wrap(encodings, "finish_shard", before="encoded")  # copied from the child, which stays
    _wrap(encodings, "_store_shard", after="shard")
    _follow_warm_children(supervision.Supervision)
    _wrap(datasets, "store_certainty", after="certainty")
    _wrap(queue, "_has_job", before="dispatching")  # between taking a request and making its job
    _wrap(queue, "requeue", after="reaping", everywhere=False)


def _use_toy_engine() -> None:
    """The engine of tests beside the real ones, here and in children."""
    from submissions.sandbox import running
    from tests.submissions import toy_engine

    toy_engine.register()
    running._BOOTSTRAP = toy_engine.BOOTSTRAP


if "FAULT_ORDERS" in os.environ:
    django.setup()
    import submissions.tasks  # noqa: F401  with it everything is loaded that works

    follow_all(Orders(Path(os.environ["FAULT_ORDERS"])), os.environ.get("FAULT_NAME", ""))
    _use_toy_engine()
