"""Writes a notice down for each person, as they wish to be told. The rows are the inbox and the outbox of mail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaderboard.models import Team, User
from submissions.models import Notice, NoticeKind, NoticePreference


@dataclass(frozen=True, slots=True)
class Message:
    """What is told. `key` names the event, so that nobody is told of it twice; `path` is where to read more."""

    kind: NoticeKind
    key: str
    subject: str
    text: str
    path: str = ""


def notify(people: Iterable[User], message: Message) -> int:
    """Write the message down for everyone who wants it and does not have it. Returns how many want it.

    Call it in the transaction that notes the event as told.
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
    """The people of these teams who can sign in."""
    return list(
        User.objects.filter(is_active=True, memberships__team__in=list(teams)).distinct().order_by("pk")
    )


def team_owners(team: Team) -> list[User]:
    """The people who decide for the team."""
    people = User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True)
    return list(people.distinct().order_by("pk"))
