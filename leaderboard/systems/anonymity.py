"""Keep back whose a system is, until a day; it ends by itself. Written through here alone: `System.anonymous_until`.

What is kept back is decided in `leaderboard.core.anonymity`. What boards record meanwhile is recorded without it, so
that their permalinks never tell; a system that everyone has seen under its team's name can therefore not be made
anonymous.
"""

import calendar
import datetime
import logging
import secrets
from typing import Any

from django.db import transaction
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.models import Dataset, Entry, EntryVersion, System
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.descriptions import system_changed

logger = logging.getLogger(__name__)

#: How long a system may be anonymous, in months of the calendar, from when it was first made so.
LONGEST_MONTHS = 9
#: Said wherever somebody decides on it.
ADVICE = (
    "Until then team, authors, links, BibTeX, file names and the runs themselves are kept back from everyone but your "
    "team and the curators. Name, address (made of the name), description, labels and parameters are shown as you "
    "write them: name nobody there."
)


class EmbargoRefused(ValueError):
    """The system cannot be anonymous, or not until then; the message says why and what would be right."""


def latest_end(system: System | None, now: datetime.datetime) -> datetime.date:
    """The last day until which the system, or a new one, may be anonymous."""
    history: Any = System.history  # a manager, which its declaration does not say
    since = now
    if system is not None:
        # When it became anonymous first, be it so now or not.
        rows = history.filter(id=system.pk, anonymous_until__isnull=False).order_by("history_date")
        since = rows.values_list("history_date", flat=True).first() or now
    # The same day of a later month, or its last day where it is shorter.
    year, month = divmod(since.year * 12 + since.month - 1 + LONGEST_MONTHS, 12)
    return datetime.date(year, month + 1, min(since.day, calendar.monthrange(year, month + 1)[1]))


def may_be_anonymous(system: System) -> bool:
    """Whether nobody has seen the system under its team's name: what everyone knows cannot be kept back."""
    if system.team_id is None:
        return False
    return (
        system.anonymous_until is not None or not EntryVersion.objects.filter(entry__system=system).exists()
    )


@transaction.atomic
def make_anonymous(system: System, until: datetime.date) -> None:
    """Keep back whose the system is until that day begins, UTC; again, to change the day. Raises EmbargoRefused."""
    lock_boards(Entry.objects.filter(system=system).values_list("dataset_id", flat=True))
    # With its key: results of it that are being published on further boards wait here, or are there already, and none
    # is recorded in between. Nothing else is locked after it.
    row = System.objects.select_for_update().get(pk=system.pk)
    now = timezone.now()
    if not may_be_anonymous(row):
        raise EmbargoRefused("Everyone has seen the system under its team's name already; it stays there.")
    latest = latest_end(row, now)
    if not now.date() < until <= latest:
        raise EmbargoRefused(
            f"A day from {now.date() + datetime.timedelta(days=1)} to {latest}: anonymity ends by itself, "
            f"{LONGEST_MONTHS} months after it began at the latest."
        )
    end = datetime.datetime.combine(until, datetime.time(), datetime.UTC)
    _set_anonymous_until(row, end, "anonymous")
    system.anonymous_until = end


@transaction.atomic
def end_anonymity(system: System) -> None:
    """Show whose the system is from now on. Again it changes nothing."""
    # All of them: a first result on a further board, which is being published, would stay anonymous for good.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    row = System.objects.select_for_update(no_key=True).get(pk=system.pk)
    if row.anonymous_until is not None:
        _set_anonymous_until(row, None, "anonymity lifted")
        system_changed(row)
    system.anonymous_until = None


def end_due_anonymity(now: datetime.datetime) -> int:
    """Lift what has reached its day; how many. The dispatcher calls it. A fault with one keeps no other waiting."""
    lifted = 0
    for system in System.objects.filter(anonymous_until__lte=now).order_by("pk"):
        try:
            end_anonymity(system)
        except Exception:
            logger.exception("fault %s: system %s is still anonymous", secrets.token_hex(4), system.pk)
        else:
            lifted += 1
    return lifted


def _set_anonymous_until(system: System, until: datetime.datetime | None, action: str) -> None:
    before = system.anonymous_until
    system.anonymous_until = until
    system.save(update_fields=["anonymous_until"])
    audit.record(action, system, before={"until": _day(before)}, after={"until": _day(until)})


def _day(at: datetime.datetime | None) -> str | None:
    return at.date().isoformat() if at is not None else None
