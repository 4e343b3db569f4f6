"""The work of telling, apart from the dispatcher's own look, which must not wait for anybody's server."""

from __future__ import annotations

import logging
import time

from django.core.cache import cache

from leaderboard.celery import app
from leaderboard.models import WorkRequest
from submissions.notices.deliveries import deliveries_are_due, send_deliveries
from submissions.notices.ended import ended_submissions, tell_of_ended
from submissions.notices.events import take_events
from submissions.notices.mail import mail_is_due, send_mail
from submissions.notices.rounds import announce_rounds, has_announcements

logger = logging.getLogger(__name__)

#: The task. A name on the wire.
NOTIFY = "runboard.notify"
#: How long one turn sends, in seconds, half of it mail. What is left over has its turn after the next look.
TURN = 20.0
#: One turn at a time, so that slow servers keep no more than one process busy; rows are claimed all the same.
_LOCK, _LOCK_SECONDS = "notices-turn", 60


def ring_for_notices() -> bool:
    """Have a worker tell people where there is anything to tell. Returns whether there is."""
    if not anything_to_tell():
        return False
    try:
        app.send_task(NOTIFY, queue="dispatch", retry=False, ignore_result=True, expires=30.0)
    except Exception as error:  # the broker may be away: the next look rings again
        logger.info("no bell rung for notices: %s", type(error).__name__)
    return True


def anything_to_tell() -> bool:
    """Whether a turn would write or send anything now."""
    asked = WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None)
    return (
        asked.exists()
        or ended_submissions().exists()
        or mail_is_due()
        or deliveries_are_due()
        or has_announcements()
    )


def take_turn() -> None:
    """Write down what happened, then send what waits, for `TURN` seconds at most, unless somebody is at it."""
    if not cache.add(_LOCK, 1, timeout=_LOCK_SECONDS):
        return
    try:
        tell_of_ended()
        take_events()
        announce_rounds()
        now = time.monotonic()
        send_mail(until=now + TURN / 2)
        send_deliveries(until=now + TURN)
    finally:
        cache.delete(_LOCK)
