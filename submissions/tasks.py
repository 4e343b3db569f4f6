"""Celery tasks, each of which calls one function of the domain."""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import shared_task
from celery.signals import worker_process_init, worker_ready
from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from leaderboard.core import wakeup
from leaderboard.core.wakeup import DISPATCH
from leaderboard.datasets.qrels import copy_open_judgements
from leaderboard.importing.topics.renewal import request_due_renewals
from leaderboard.results.efficiency import apply_due_prices
from leaderboard.results.profiles.store import request_missing_statistics
from leaderboard.results.publishing.publication import publish_due
from leaderboard.results.significance.computing import request_missing_certainty
from leaderboard.systems.anonymity import end_due_anonymity
from submissions.accounts.access import delete_expired_sessions
from submissions.accounts.outbox import NOTIFY
from submissions.jobs.checkpoints.encodings import settle_waiting_jobs
from submissions.jobs.cleanup import remove_unreferenced
from submissions.jobs.kinds.datasets import fail_lost_rescores, retry_failed_certainty
from submissions.jobs.kinds.renewal import create_jobs_on_new_batches
from submissions.jobs.worker import TURNS, dispatcher_is_late, drain_if_idle
from submissions.models import Worker
from submissions.notifications.sending import send_notifications, wake_notifier
from submissions.notifications.webhooks import delete_old_deliveries
from submissions.queue.queue import WORK, create_requested_jobs, reap, wake_waiting_queues
from submissions.queue.workers import AT_WORK, delete_silent_workers, own_queues, refusal, worker_name
from submissions.quotas.ledger import settle_requested
from submissions.sandbox.processes import kill_leftovers

logger = logging.getLogger(__name__)


@shared_task(name=WORK)
def work(queue: str) -> None:
    """Work on the jobs of a queue.

    Queues that this worker does not serve are ignored: a client with access to one queue of the broker can send any
    name.
    """
    if queue in own_queues():
        drain_if_idle(queue)
    else:
        logger.warning("Ignored a message for a queue that this worker does not serve: %.40r", queue)


@shared_task(name=DISPATCH)
def dispatch(*, urgent_only: bool = False) -> None:
    """Create requested jobs, requeue the jobs of silent workers, and wake workers for waiting jobs.

    `urgent_only` skips the steps that can wait a minute.
    """
    if refusal():
        return
    Worker.objects.filter(name=worker_name()).update(dispatched_at=Now())
    deferrable_steps = (
        request_missing_certainty,
        apply_due_prices,
        request_missing_statistics,
        retry_failed_certainty,
        partial(end_due_anonymity, timezone.now()),
        publish_due,
        partial(request_due_renewals, timezone.now()),
        fail_lost_rescores,
        delete_silent_workers,
    )
    urgent_steps = (
        copy_open_judgements,
        create_jobs_on_new_batches,
        create_requested_jobs,
        settle_requested,
        reap,
        settle_waiting_jobs,
        wake_waiting_queues,
        wake_notifier,
    )
    for step in urgent_steps if urgent_only else (*deferrable_steps, *urgent_steps):
        _take_step(step)


def _take_step(step: Callable[[], object]) -> None:
    """Run one step, logging exceptions under an id so that later steps still run."""
    try:
        step()
    except Exception:
        logger.exception("Fault %s in step %s", secrets.token_hex(4), getattr(step, "func", step).__name__)


@shared_task(name=NOTIFY)
def notify() -> None:
    """Create notices and send emails and webhooks for a limited time."""
    if refusal() or not AT_WORK.acquire(blocking=False):
        return
    try:
        send_notifications()
    finally:
        AT_WORK.release()


@shared_task(name="runboard.sweep")
def sweep_files() -> None:
    """Remove unreferenced files, old deliveries, and expired sessions."""
    if refusal():
        return
    for step in (remove_unreferenced, delete_old_deliveries, delete_expired_sessions):
        _take_step(step)


# Actions of an idle worker of these queues: it also dispatches if the dispatcher is late.
TURNS.update({"dispatch": lambda: dispatcher_is_late() and dispatch(), "notices": notify})


@worker_ready.connect
def begin(**_: Any) -> None:
    """Dispatch as soon as a worker is ready, without waiting for the schedule."""
    wakeup.send_wakeup(DISPATCH, "dispatch")


@worker_process_init.connect
def warm_up(**_: Any) -> None:
    """Load compiled kernels before the first run arrives."""
    if not settings.PRIVATE_STORAGE:
        return  # retrievers have no access to judgments and score no runs
    from evaluation.engines.warm_up import warm_up as warm_up_kernels

    warm_up_kernels()


@worker_process_init.connect
def tidy_up(**_: Any) -> None:
    """Kill sandbox processes that a crashed predecessor of this process has left behind."""
    kill_leftovers()
