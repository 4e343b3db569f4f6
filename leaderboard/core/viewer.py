"""Who looks at a page: what boards show to a team's own people beside what everyone sees."""

from __future__ import annotations

from django.http import HttpRequest

from leaderboard.core.cache.pages import is_nobody
from leaderboard.models import Membership, User


def own_teams(request: HttpRequest) -> list[int]:
    """The ids of the visitor's teams; of somebody without a session, whose page is kept for all, none is asked for."""
    if is_nobody(request) or not isinstance(request.user, User):
        return []
    return list(Membership.objects.filter(user=request.user).values_list("team_id", flat=True))
