"""The bell: a message without content that says "look into the database, there is work".

A lost bell loses nothing, for the dispatcher looks by itself every few seconds.
"""

from __future__ import annotations

import logging

from django.db import transaction

from leaderboard.celery import app

logger = logging.getLogger(__name__)

#: The message that the dispatcher listens to. A name on the wire, not an import.
DISPATCH = "runboard.dispatch"


def ring() -> None:
    """Wake the dispatcher once the current transaction has committed (at once where there is none)."""
    transaction.on_commit(_ring_now)


def _ring_now() -> None:
    try:
        app.send_task(DISPATCH, queue="dispatch", retry=False, ignore_result=True)
    except Exception as error:  # the broker may be down or the site stopped: the dispatcher will look anyway
        logger.info("no bell rung, the dispatcher will find the work: %s", type(error).__name__)
