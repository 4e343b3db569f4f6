"""How a person wants to be told of each kind of thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from leaderboard.models import User
from submissions.models import NoticeKind, NoticePreference

#: Kinds that concern a person's teams, and on wish every round of the site.
OF_ROUNDS = (NoticeKind.ROUND_OPENING, NoticeKind.ROUND_CLOSING, NoticeKind.ROUND_REVEALED)


@dataclass(frozen=True, slots=True)
class Wish:
    """How one kind is to be told."""

    kind: NoticeKind
    by_mail: bool = True
    in_inbox: bool = True
    everywhere: bool = False

    @property
    def of_rounds(self) -> bool:
        """Whether it can be told of everywhere."""
        return self.kind in OF_ROUNDS


def wishes_of(person: User) -> list[Wish]:
    """A wish for every kind; without one that was said both ways."""
    said = {row.kind: row for row in NoticePreference.objects.filter(person=person)}
    return [
        Wish(kind, said[kind].by_mail, said[kind].in_inbox, said[kind].everywhere)
        if kind in said
        else Wish(kind)
        for kind in NoticeKind
    ]


@transaction.atomic
def set_wishes(person: User, wishes: Sequence[Wish]) -> None:
    """Tell the person so from now on; what is in the outbox goes out as it is."""
    for wish in wishes:
        NoticePreference.objects.update_or_create(
            person=person,
            kind=wish.kind,
            defaults={
                "by_mail": wish.by_mail,
                "in_inbox": wish.in_inbox,
                "everywhere": wish.everywhere and wish.of_rounds,
            },
        )
