"""How much a team may have run in a day, counted in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from leaderboard.models import Team
from submissions.core.errors import Refused
from submissions.models import Job, State
from submissions.quotas.ledger import QUOTA


@dataclass(frozen=True, slots=True)
class Quota:
    """How many runs of models a team has had today, how many it may have, and when counting begins anew."""

    used: int
    limit: int
    resets_at: datetime

    @property
    def left(self) -> int:
        """How many more it may have today."""
        return max(0, self.limit - self.used)


def quota_of(team: Team | None) -> Quota:
    """Today's count (from midnight to midnight, UTC). What failed through us, or never began, is not counted."""
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    used = 0
    if team is not None:
        never_began = Q(state__in=[State.CANCELLED, State.WITHDRAWN], started_at=None)
        jobs = Job.objects.filter(
            kind=Job.Kind.MODEL, submission__team=team, created_at__gte=midnight
        ).exclude(Q(state=State.FAILED) | never_began)
        used = jobs.count()
    return Quota(used, settings.MODEL_JOBS_PER_DAY, midnight + timedelta(days=1))


def refuse_beyond_quota(team: Team, wanted: int) -> None:
    """Raises Refused where the team may not have so many more today."""
    quota = quota_of(team)
    if wanted > quota.left:
        again = f"counting begins anew at {quota.resets_at:%H:%M} UTC on {quota.resets_at:%-d %B}."
        raise Refused.of(
            QUOTA,
            f"Your team may have models run on {quota.limit} datasets a day; {quota.used} are used today, and this "
            f"asks for {wanted}.",
            f"Choose at most {quota.left} now; {again}" if quota.left else f"{again[0].upper()}{again[1:]}",
        )
