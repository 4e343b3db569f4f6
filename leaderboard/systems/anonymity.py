"""Anonymity of systems until a date; the only writer of `System.anonymous_until`.

`leaderboard.core.anonymity` decides what is withheld. Boards record anonymous systems without the withheld fields, so
that permalinks never reveal them. A system that was public under its team's name therefore cannot become anonymous.
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

#: Maximum duration of anonymity in calendar months since the system first became anonymous.
LONGEST_MONTHS = 9
#: Explanation for all forms that set anonymity.
ADVICE = (
    "Until then, only your team and the curators can see team, authors, links, BibTeX, file names, and runs. Name, "
    "address (derived from the name), description, labels, and parameters are public: do not mention names there."
)


class EmbargoRefused(ValueError):
    """The system cannot be anonymous, or not until this date; the message says why and what is possible."""


def latest_end(system: System | None, now: datetime.datetime) -> datetime.date:
    """Return the latest date on which a system's anonymity may end; `system` is None for a new system.

    This is `LONGEST_MONTHS` after it first became anonymous, even if that period has ended.
    """
    history: Any = System.history  # A manager, but declared as HistoricalRecords.
    start = now
    if system is not None:
        # Count from the first time it became anonymous, even if that has ended.
        rows = history.filter(id=system.pk, anonymous_until__isnull=False).order_by("history_date")
        start = rows.values_list("history_date", flat=True).first() or now
    # Use the same day of the later month, or its last day if the month is shorter.
    year, month = divmod(start.year * 12 + start.month - 1 + LONGEST_MONTHS, 12)
    return datetime.date(year, month + 1, min(start.day, calendar.monthrange(year, month + 1)[1]))


def may_be_anonymous(system: System) -> bool:
    """Return whether the system belongs to a team and was never public under its name."""
    if system.team_id is None:
        return False
    return system.anonymous_until is not None or not EntryVersion.objects.filter(entry__system=system).exists()


@transaction.atomic
def make_anonymous(system: System, end_date: datetime.date) -> None:
    """Make the system anonymous until that day begins (UTC), or change the day.

    Raises EmbargoRefused if it was public under its team's name, or if the day is not in the future or after
    `latest_end`.
    """
    lock_boards(Entry.objects.filter(system=system).values_list("dataset_id", flat=True))
    # Lock the key, too: a concurrent publication of its results then either waits or is already recorded. This is
    # the last lock of the transaction.
    locked_system = System.objects.select_for_update().get(pk=system.pk)
    now = timezone.now()
    if not may_be_anonymous(locked_system):
        raise EmbargoRefused("The system has already been public under its team's name, so it cannot become anonymous.")
    limit = latest_end(locked_system, now)
    if not now.date() < end_date <= limit:
        raise EmbargoRefused(
            f"Choose a date from {now.date() + datetime.timedelta(days=1)} to {limit}. Anonymity ends automatically, "
            f"at the latest {LONGEST_MONTHS} months after it began."
        )
    end = datetime.datetime.combine(end_date, datetime.time(), datetime.UTC)
    _set_anonymous_until(locked_system, end, "anonymous")
    system.anonymous_until = end


@transaction.atomic
def end_anonymity(system: System) -> None:
    """End the system's anonymity and update its boards; if it is not anonymous, nothing changes."""
    # Lock all boards: a first result that is being published on another board would remain anonymous forever.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    locked_system = System.objects.select_for_update(no_key=True).get(pk=system.pk)
    if locked_system.anonymous_until is not None:
        _set_anonymous_until(locked_system, None, "anonymity lifted")
        system_changed(locked_system)
    system.anonymous_until = None


def end_due_anonymity(now: datetime.datetime) -> int:
    """End the anonymity of systems that have reached their date, and return their number.

    The dispatcher calls this. An error with one system does not affect the others.
    """
    ended_count = 0
    for system in System.objects.filter(anonymous_until__lte=now).order_by("pk"):
        try:
            end_anonymity(system)
        except Exception:
            logger.exception("fault %s: system %s is still anonymous", secrets.token_hex(4), system.pk)
        else:
            ended_count += 1
    return ended_count


def _set_anonymous_until(system: System, end: datetime.datetime | None, action: str) -> None:
    previous_end = system.anonymous_until
    system.anonymous_until = end
    system.save(update_fields=["anonymous_until"])
    audit.record(action, system, before={"until": _day(previous_end)}, after={"until": _day(end)})


def _day(time: datetime.datetime | None) -> str | None:
    return time.date().isoformat() if time is not None else None
