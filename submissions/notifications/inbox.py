"""Notices of each user: the rows are both the inbox and the outbox of mail."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from leaderboard.models import Team, User
from submissions.models import Notice, NoticeKind, NoticePreference

#: Maximum number of unread notices that are counted.
MAX_UNREAD = 99


@dataclass(frozen=True, slots=True)
class Message:
    """Message to users.

    `key` identifies the event, so that each user gets it once. `path` is the page with details.
    """

    kind: NoticeKind
    key: str
    subject: str
    text: str
    path: str = ""


def notify(people: Iterable[User], message: Message) -> int:
    """Store the message as a notice for each user who wants its kind; return the number of these users.

    Users who have the notice already do not get another one. Call it in the transaction that marks the event as
    processed.
    """
    people = list(people)
    preferences = {row.person_id: row for row in NoticePreference.objects.filter(kind=message.kind, person__in=people)}
    notices = []
    for person in people:
        preference = preferences.get(person.pk) or NoticePreference()
        if preference.by_mail or preference.in_inbox:
            notices.append(
                Notice(
                    person=person,
                    kind=message.kind,
                    key=message.key,
                    # Collapse line breaks of names: the subject becomes a mail header.
                    subject=" ".join(message.subject.split())[:200],
                    text=message.text.strip(),
                    path=message.path,
                    in_inbox=preference.in_inbox,
                    mail_state="waiting" if preference.by_mail and person.email else "none",
                )
            )
    Notice.objects.bulk_create(notices, ignore_conflicts=True)
    return len(notices)


def team_members(teams: Iterable[Team | int]) -> list[User]:
    """Return the active members of these teams."""
    return list(User.objects.filter(is_active=True, memberships__team__in=list(teams)).distinct().order_by("pk"))


def team_owners(team: Team) -> list[User]:
    """Return the active owners of the team."""
    people = User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True)
    return list(people.distinct().order_by("pk"))


def get_inbox(person: User) -> QuerySet[Notice]:
    """Return the user's notices, newest first."""
    return Notice.objects.filter(person=person, in_inbox=True)


def unread_count(person: User) -> int:
    """Count the user's unread notices. `MAX_UNREAD` + 1 means more than `MAX_UNREAD`."""
    return get_inbox(person).filter(read_at=None)[: MAX_UNREAD + 1].count()


def unread_notices(request: HttpRequest) -> dict[str, Any]:
    """Return the number of unread notices for the header of every page, counted when a template reads it."""

    def count() -> int:
        return unread_count(request.user) if isinstance(request.user, User) else 0

    return {"unread_notices": SimpleLazyObject(count)}


def mark_read(person: User, notices: Collection[int] | None = None) -> int:
    """Mark the given notices of the user as read, or all of them; return how many were unread."""
    unread_rows = get_inbox(person).filter(read_at=None)
    if notices is not None:
        unread_rows = unread_rows.filter(pk__in=notices)
    return unread_rows.update(read_at=timezone.now())


def get_preferences(person: User) -> list[NoticePreference]:
    """Return the user's preference for each kind of notice, with defaults for missing ones."""
    rows = {row.kind: row for row in NoticePreference.objects.filter(person=person)}
    return [rows.get(kind) or NoticePreference(person=person, kind=kind) for kind in NoticeKind.values]


@transaction.atomic
def set_preferences(person: User, checked_boxes: Collection[str]) -> None:
    """Store the user's preferences. `checked_boxes` contains `KIND-mail`, `KIND-inbox`, and `KIND-everywhere`."""
    for row in get_preferences(person):
        NoticePreference.objects.update_or_create(
            person=person,
            kind=row.kind,
            defaults={
                "by_mail": f"{row.kind}-mail" in checked_boxes,
                "in_inbox": f"{row.kind}-inbox" in checked_boxes,
                "everywhere": row.concerns_rounds and f"{row.kind}-everywhere" in checked_boxes,
            },
        )
