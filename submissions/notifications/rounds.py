"""Rounds that open, or close within a day: announced once to those whom they concern."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from leaderboard.models import Membership, Round, User
from leaderboard.rounds.lifecycle import datasets_of, listed_rounds
from submissions.models import NoticeKind, Submission
from submissions.notifications.messages import round_message
from submissions.notifications.outbox import tell

logger = logging.getLogger(__name__)

#: How long before its end a round is said to close. One that lasts no longer is announced when it opens, and no more.
BEFORE_CLOSING = timedelta(hours=24)


def announce_rounds() -> int:
    """Tell of every round that opened or closes soon and was not announced as such. Returns how many were."""
    now = timezone.now()
    count = 0
    for round_ in _under_way(now):
        for kind in _due(round_, now):
            try:
                count += _announce(round_, kind)
            except Exception:
                logger.exception("round %s could not be announced", round_.pk)
    return count


def has_announcements() -> bool:
    """Whether `announce_rounds` would tell anybody of anything."""
    now = timezone.now()
    return any(_due(round_, now) for round_ in _under_way(now))


def people_of_round(round_: Round, kind: NoticeKind) -> list[User]:
    """Whom a round concerns: people of teams that submitted to its datasets, and who wants to know of every round."""
    submitted = Submission.objects.filter(jobs__dataset__in=datasets_of(round_))
    teams = Membership.objects.filter(team__in=submitted.values("team"))
    wanted = Q(notice_preferences__kind=kind, notice_preferences__everywhere=True)
    concerned = Q(pk__in=teams.values("user")) | wanted
    return list(User.objects.filter(concerned, is_active=True).distinct().order_by("pk"))


def _under_way(now: datetime) -> QuerySet[Round]:
    """Those that take runs now; not those of a dataset that has no page yet."""
    return listed_rounds().filter(opens_at__lte=now, closes_at__gt=now)


def _due(round_: Round, now: datetime) -> list[NoticeKind]:
    kinds = [NoticeKind.ROUND_OPENING]
    if round_.closes_at - BEFORE_CLOSING <= now and round_.closes_at - round_.opens_at > BEFORE_CLOSING:
        kinds.append(NoticeKind.ROUND_CLOSING)
    return [kind for kind in kinds if kind.value not in round_.announced]


@transaction.atomic
def _announce(round_: Round, kind: NoticeKind) -> bool:
    row = Round.objects.select_for_update(no_key=True).get(pk=round_.pk)
    if kind.value in row.announced:
        return False
    announced = {**row.announced, kind.value: timezone.now().isoformat()}
    Round.objects.filter(pk=row.pk).update(announced=announced)
    tell(people_of_round(round_, kind), round_message(kind, round_))
    return True
