"""Notices: stored for each person as the person prefers. The rows are the inbox and the outbox of mail."""

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

#: Unread notices beyond this number are not counted.
MANY = 99


@dataclass(frozen=True, slots=True)
class Message:
    """A message to people. `key` names the event, so that nobody is told of it twice; `path` leads to more."""

    kind: NoticeKind
    key: str
    subject: str
    text: str
    path: str = ""


def notify(people: Iterable[User], message: Message) -> int:
    """Store the message for everyone who wants it and does not have it. Return how many want it.

    Call it in the transaction that marks the event as told.
    """
    people = list(people)
    rows = NoticePreference.objects.filter(kind=message.kind, person__in=people)
    preferences = {row.person_id: row for row in rows}
    notices = []
    for person in people:
        preference = preferences.get(person.pk) or NoticePreference()
        if preference.by_mail or preference.in_inbox:
            by_mail = preference.by_mail and person.email
            notices.append(
                Notice(
                    person=person,
                    kind=message.kind,
                    key=message.key,
                    # One line, whatever names are in it: it becomes a header.
                    subject=" ".join(message.subject.split())[:200],
                    text=message.text.strip(),
                    path=message.path,
                    in_inbox=preference.in_inbox,
                    mail_state="waiting" if by_mail else "none",
                )
            )
    Notice.objects.bulk_create(notices, ignore_conflicts=True)
    return len(notices)


def team_members(teams: Iterable[Team | int]) -> list[User]:
    """Return the people of these teams who can sign in."""
    return list(
        User.objects.filter(is_active=True, memberships__team__in=list(teams)).distinct().order_by("pk")
    )


def team_owners(team: Team) -> list[User]:
    """Return the people who decide for the team."""
    people = User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True)
    return list(people.distinct().order_by("pk"))


def inbox_of(person: User) -> QuerySet[Notice]:
    """Return the person's notices, the newest first."""
    return Notice.objects.filter(person=person, in_inbox=True)


def unread_count(person: User) -> int:
    """Count the notices that the person has not read; `MANY` + 1 stands for more."""
    return inbox_of(person).filter(read_at=None)[: MANY + 1].count()


def unread_notices(request: HttpRequest) -> dict[str, Any]:
    """Return the number of unread notices for the head of every page, counted when a template first reads it."""

    def count() -> int:
        return unread_count(request.user) if isinstance(request.user, User) else 0

    return {"unread_notices": SimpleLazyObject(count)}


def mark_read(person: User, notices: Collection[int] | None = None) -> int:
    """Mark these of the person's notices as read, or all of them. Return how many were not."""
    unread = inbox_of(person).filter(read_at=None)
    if notices is not None:
        unread = unread.filter(pk__in=notices)
    return unread.update(read_at=timezone.now())


def preferences_of(person: User) -> list[NoticePreference]:
    """Return a preference for every kind; the default if the person has set none."""
    rows = {row.kind: row for row in NoticePreference.objects.filter(person=person)}
    return [rows.get(kind) or NoticePreference(person=person, kind=kind) for kind in NoticeKind.values]


@transaction.atomic
def set_preferences(person: User, ticked: Collection[str]) -> None:
    """Store the preferences for future notices. `ticked` has `KIND-mail`, `KIND-inbox` and `KIND-everywhere`."""
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
