"""A person's inbox."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import QuerySet
from django.utils import timezone

from leaderboard.models import User
from submissions.models import Notice

#: Beyond so many unread ones nobody counts on.
MANY = 99


def inbox_of(person: User) -> QuerySet[Notice]:
    """What the person was told, the newest first."""
    return Notice.objects.filter(person=person, in_inbox=True)


def unread_count(person: User) -> int:
    """How many notices the person has not read; `MANY` + 1 stands for more."""
    return inbox_of(person).filter(read_at=None)[: MANY + 1].count()


def mark_read(person: User, notices: Collection[int] | None = None) -> int:
    """Note these of the person's notices as read, or all of them. Returns how many were not."""
    unread = inbox_of(person).filter(read_at=None)
    if notices is not None:
        unread = unread.filter(pk__in=notices)
    return unread.update(read_at=timezone.now())
