"""What a bell starts. Each task is a door: one domain call."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import shared_task
from celery.signals import worker_process_init, worker_ready, worker_shutdown
from django.conf import settings
from django.utils import timezone

from leaderboard import bell
from leaderboard.anonymity import lift_due
from leaderboard.bell import DISPATCH
from leaderboard.certainty import request_missing_certainty
from leaderboard.collection_figures import request_missing_statistics
from leaderboard.efficiency import prices_come_into_force
from submissions.analysis import ask_again
from submissions.heartbeat import Heartbeat, forget_silent_workers
from submissions.model_work.encodings import settle
from submissions.notices.deliveries import forget_old
from submissions.notices.sending import NOTIFY, ring_for_notices, take_turn
from submissions.queue import WORK, reap, ring_for_waiting, take_requests
from submissions.rescoring import give_up_lost
from submissions.sandbox.leftovers import end_leftovers
from submissions.sweeping import sweep
from submissions.working import work_through

logger = logging.getLogger(__name__)
_heartbeats: list[Heartbeat] = []


@shared_task(name=WORK)
def work(queue: str) -> None:
    """Do what waits in a queue."""
    work_through(queue, f"{socket.gethostname()}:{os.getpid()}")


@shared_task(name=DISPATCH)
def dispatch() -> None:
    """Take up requests, reap silent workers' jobs, and ring for whatever waits."""
    for step in (
        request_missing_certainty,
        prices_come_into_force,
        request_missing_statistics,
        ask_again,
        partial(lift_due, timezone.now()),
        take_requests,
        reap,
        settle,
        give_up_lost,
        forget_silent_workers,
        ring_for_waiting,
        ring_for_notices,
    ):
        _take_step(step)


def _take_step(step: Callable[[], object]) -> None:
    """Do one thing of the dispatcher's. A fault of it keeps no other from being done: it is logged under an id."""
    try:
        step()
    except Exception:
        name = getattr(step, "func", step).__name__
        logger.exception("fault %s in the dispatcher's %s", secrets.token_hex(4), name)


@shared_task(name=NOTIFY)
def notify() -> None:
    """Tell people what happened: write it down, and send mail and webhooks for a while."""
    take_turn()


@shared_task(name="runboard.sweep")
def sweep_files() -> None:
    """Remove what crashes left behind, and what was sent long ago."""
    sweep()
    forget_old()


@worker_ready.connect
def announce(sender: Any, **_: Any) -> None:
    """Put this worker on the list of those alive."""
    queues = [queue.name for queue in sender.task_consumer.queues]
    heartbeat = Heartbeat(f"{socket.gethostname()}:{os.getpid()}", queues, "")
    heartbeat.start()
    _heartbeats.append(heartbeat)
    bell.send(DISPATCH, "dispatch")


@worker_shutdown.connect
def leave(**_: Any) -> None:
    """Take this worker off the list."""
    for heartbeat in _heartbeats:
        heartbeat.stop()


@worker_process_init.connect
def warm_up(**_: Any) -> None:
    """Load the compiled kernels before the first run comes, so that nobody waits for them."""
    if not settings.PRIVATE_STORAGE:
        return  # none comes to who can read no judgements
    from evaluation.warming import warm_up as warm_up_kernels

    warm_up_kernels()


@worker_process_init.connect
def tidy_up(**_: Any) -> None:
    """End what a worker left of a sandbox that it was starting when it was killed: perhaps we come in its place."""
    end_leftovers()
