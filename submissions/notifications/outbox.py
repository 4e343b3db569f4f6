"""Writing a notice down, for each person as they wish to be told. The rows are the inbox and the outbox of mail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q

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


def tell(people: Iterable[User], message: Message) -> int:
    """Write the message down for everyone of them who wants it and does not have it. Returns for how many who want it.

    Call it in the transaction that notes the event as told.
    """
    wishes = NoticePreference.objects.filter(kind=message.kind, person__in=(people := list(people)))
    by_person = {wish.person_id: wish for wish in wishes}
    notices = []
    for person in people:
        wish = by_person.get(person.pk)
        by_mail, in_inbox = (wish.by_mail, wish.in_inbox) if wish else (True, True)
        if by_mail or in_inbox:
            notices.append(
                _notice(person, message, by_mail=by_mail and bool(person.email), in_inbox=in_inbox)
            )
    Notice.objects.bulk_create(notices, ignore_conflicts=True)
    return len(notices)


def _notice(person: User, message: Message, *, by_mail: bool, in_inbox: bool) -> Notice:
    return Notice(
        person=person,
        kind=message.kind,
        key=message.key,
        # One line, whatever names are in it: it becomes a header.
        subject=" ".join(message.subject.split())[:200],
        text=message.text.strip(),
        path=message.path,
        in_inbox=in_inbox,
        mail_state="waiting" if by_mail else "none",
    )


def members(teams: Iterable[Team | int]) -> list[User]:
    """The people of these teams who can sign in."""
    return list(
        User.objects.filter(is_active=True, memberships__team__in=list(teams)).distinct().order_by("pk")
    )


def owners(team: Team) -> list[User]:
    """The people who decide for the team."""
    mine = Q(memberships__team=team, memberships__owner=True)
    return list(User.objects.filter(mine, is_active=True).distinct().order_by("pk"))
