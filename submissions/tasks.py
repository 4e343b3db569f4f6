"""Celery's tasks. Each is a door: one domain call."""

from __future__ import annotations

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
from leaderboard.datasets.qrels import lay_out_open_judgements
from leaderboard.results.efficiency import prices_come_into_force
from leaderboard.results.profiles.store import request_missing_statistics
from leaderboard.results.publishing import tell_due
from leaderboard.results.significance import request_missing_certainty
from leaderboard.systems.anonymity import lift_due
from submissions.accounts.sessions import forget_expired
from submissions.jobs.cleanup.unreferenced_files import sweep
from submissions.jobs.kinds.rescore import give_up_lost
from submissions.jobs.kinds.significance import ask_again
from submissions.jobs.models.encodings import settle
from submissions.jobs.worker import registration
from submissions.jobs.worker.polling import TURNS, dispatcher_is_late, work_if_free
from submissions.models import Worker
from submissions.notifications.sending import NOTIFY, ring_for_notices, take_turn
from submissions.notifications.webhooks import forget_old
from submissions.queue.heartbeat import forget_silent_workers
from submissions.queue.process import AT_WORK, own_queues, refusal, worker_name
from submissions.queue.queue import WORK, reap, ring_for_waiting, take_requests
from submissions.quotas.ledger import settle_requested
from submissions.sandbox.leftovers import end_leftovers

__all__ = ["registration"]

logger = logging.getLogger(__name__)


@shared_task(name=WORK)
def work(queue: str) -> None:
    """Do what waits in a queue, if it is one of ours: whoever reaches one queue of the broker may name any."""
    if queue in own_queues():
        work_if_free(queue)
    else:
        logger.warning("a message names a queue that this worker does not serve: %.40r", queue)


@shared_task(name=DISPATCH)
def dispatch() -> None:
    """Take up requests, reap silent workers' jobs, and wake workers for whatever waits."""
    if refusal():
        return
    Worker.objects.filter(name=worker_name()).update(dispatched_at=Now())
    for step in (
        request_missing_certainty,
        prices_come_into_force,
        request_missing_statistics,
        ask_again,
        partial(lift_due, timezone.now()),
        tell_due,
        lay_out_open_judgements,
        take_requests,
        settle_requested,
        reap,
        settle,
        give_up_lost,
        forget_silent_workers,
        ring_for_waiting,
        ring_for_notices,
    ):
        _take_step(step)


def _take_step(step: Callable[[], object]) -> None:
    """Do one thing of several. A fault of it keeps no other from being done: it is logged under an id."""
    try:
        step()
    except Exception:
        name = getattr(step, "func", step).__name__
        logger.exception("fault %s in the dispatcher's %s", secrets.token_hex(4), name)


@shared_task(name=NOTIFY)
def notify() -> None:
    """Tell people what happened: write it down, and send mail and webhooks for a while."""
    if refusal() or not AT_WORK.acquire(blocking=False):
        return
    try:
        take_turn()
    finally:
        AT_WORK.release()


@shared_task(name="runboard.sweep")
def sweep_files() -> None:
    """Remove what crashes left behind, what was sent long ago, and sessions that have expired."""
    if refusal():
        return
    for step in (sweep, forget_old, forget_expired):
        _take_step(step)


def dispatch_if_late() -> None:
    """Take the dispatcher's turn where nobody has for a while."""
    if dispatcher_is_late():
        dispatch()


# What an idle worker of these queues does when it looks by itself.
TURNS.update({"dispatch": dispatch_if_late, "notices": notify})


@worker_ready.connect
def begin(**_: Any) -> None:
    """What waited while no worker was there need not wait for the clock."""
    wakeup.send(DISPATCH, "dispatch")


@worker_process_init.connect
def warm_up(**_: Any) -> None:
    """Load the compiled kernels before the first run comes, so that nobody waits for them."""
    if not settings.PRIVATE_STORAGE:
        return  # none comes to who can read no judgements
    from evaluation.engines.warm_up import warm_up as warm_up_kernels

    warm_up_kernels()


@worker_process_init.connect
def tidy_up(**_: Any) -> None:
    """End what a worker left of a sandbox that it was starting when it was killed: perhaps we come in its place."""
    end_leftovers()
