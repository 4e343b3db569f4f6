"""Tells people what happened, in a process of its own: nobody else waits for a stranger's server or connects to it."""

from __future__ import annotations

import time
import uuid

from django.core.cache import cache

from leaderboard.core import wakeup
from leaderboard.models import WorkRequest
from submissions.accounts.outbox import NOTIFY, QUEUE
from submissions.notifications import events
from submissions.notifications.mail import account_mailer, notice_mailer
from submissions.notifications.webhooks import deliveries_are_due, send_deliveries

__all__ = ["NOTIFY", "QUEUE", "has_notifications", "send_notifications", "wake_notifier"]

#: How long one turn sends, in seconds, half of it mail. What is left over has its turn after the next look.
TURN = 20.0
#: One turn at a time where there are several workers. The lock ends by itself; rows are claimed all the same.
_LOCK, _LOCK_SECONDS = "notices-turn", 60


def wake_notifier() -> bool:
    """Have a worker tell people where there is anything to tell. Returns whether there is."""
    if not has_notifications():
        return False
    if not wakeup.count_pending(QUEUE):  # without a notifier they would pile up in the broker
        wakeup.send_wakeup(NOTIFY, QUEUE)
    return True


def has_notifications() -> bool:
    """Whether a turn would write or send anything now."""
    requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None)
    return (
        requests.exists()
        or events.finished_submissions().exists()
        or bool(events.finished_bulks())
        or account_mailer.is_due()
        or notice_mailer.is_due()
        or deliveries_are_due()
        or events.has_announcements()
    )


def send_notifications() -> None:
    """Write down what happened, then send what waits, for `TURN` seconds at most, unless somebody is at it."""
    token = uuid.uuid4().hex
    if not cache.add(_LOCK, token, timeout=_LOCK_SECONDS):
        return
    try:
        # First: somebody sits before a page that says it is on its way.
        account_mailer.send(until=time.monotonic() + TURN / 2)
        events.notify_finished()
        events.process_events()
        events.announce_rounds()
        now = time.monotonic()
        notice_mailer.send(until=now + TURN / 2)
        send_deliveries(until=now + TURN)
    finally:
        if cache.get(_LOCK) == token:  # else it ended before the turn did, and may be another's by now
            cache.delete(_LOCK)
