"""A person's inbox, and how the person wishes to be told of each kind of thing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from leaderboard.models import User
from submissions.models import Notice, NoticeKind, NoticePreference

#: Beyond so many unread ones nobody counts on.
MANY = 99


def inbox_of(person: User) -> QuerySet[Notice]:
    """What the person was told, the newest first."""
    return Notice.objects.filter(person=person, in_inbox=True)


def unread_count(person: User) -> int:
    """How many notices the person has not read; `MANY` + 1 stands for more."""
    return inbox_of(person).filter(read_at=None)[: MANY + 1].count()


def unread_notices(request: HttpRequest) -> dict[str, Any]:
    """For the head of every page: how many notices wait, counted when a template first asks."""

    def count() -> int:
        return unread_count(request.user) if isinstance(request.user, User) else 0

    return {"unread_notices": SimpleLazyObject(count)}


def mark_read(person: User, notices: Collection[int] | None = None) -> int:
    """Note these of the person's notices as read, or all of them. Returns how many were not."""
    unread = inbox_of(person).filter(read_at=None)
    if notices is not None:
        unread = unread.filter(pk__in=notices)
    return unread.update(read_at=timezone.now())


def preferences_of(person: User) -> list[NoticePreference]:
    """A preference for every kind; the default where the person has said nothing."""
    rows = {row.kind: row for row in NoticePreference.objects.filter(person=person)}
    return [rows.get(kind) or NoticePreference(person=person, kind=kind) for kind in NoticeKind.values]


@transaction.atomic
def set_preferences(person: User, ticked: Collection[str]) -> None:
    """Tell the person so from now on; what is in the outbox goes out as it is. Ticked are `KIND-mail` and so on."""
    for row in preferences_of(person):
        NoticePreference.objects.update_or_create(
            person=person,
            kind=row.kind,
            defaults={
                "by_mail": f"{row.kind}-mail" in ticked,
                "in_inbox": f"{row.kind}-inbox" in ticked,
                "everywhere": row.concerns_rounds and f"{row.kind}-everywhere" in ticked,
            },
        )
