"""Young teams: those whose results over hidden judgements are told sparingly, since nobody knows them yet.

Settings: YOUNG_TEAM_DAYS (0: no team is young) and YOUNG_TEAM_READINGS. See docs/decisions/0039.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Team


def grown_up_at(team: Team) -> datetime:
    """When the team is young no longer."""
    return (team.approved_at or team.created_at) + timedelta(days=settings.YOUNG_TEAM_DAYS)


def is_young(team: Team) -> bool:
    """Whether the team is young now; with YOUNG_TEAM_DAYS 0 none is, whatever the clock says."""
    return settings.YOUNG_TEAM_DAYS > 0 and grown_up_at(team) > timezone.now()


def grown_up() -> QuerySet[Team]:
    """The teams that are young no longer."""
    since = timezone.now() - timedelta(days=settings.YOUNG_TEAM_DAYS)
    teams = Team.objects.alias(since=Coalesce("approved_at", "created_at"))
    return teams.filter(since__lte=since) if settings.YOUNG_TEAM_DAYS else teams


def unknown_teams() -> Q:
    """Entries of teams that are young and that nobody approved: for all that is known they are one."""
    if not settings.YOUNG_TEAM_DAYS:
        return Q(pk__in=())
    since = timezone.now() - timedelta(days=settings.YOUNG_TEAM_DAYS)
    return Q(system__team__approved_at=None, system__team__created_at__gt=since)


def readings_left(dataset: Dataset) -> int:
    """How many results of young teams may still be told of the dataset today, from midnight to midnight UTC."""
    if not settings.YOUNG_TEAM_DAYS:
        return int(settings.YOUNG_TEAM_READINGS)
    now = timezone.now()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    told = (
        Entry.objects.filter(dataset=dataset, system__team__isnull=False, published_at__gte=midnight)
        .exclude(visibility=Entry.Visibility.HELD)
        .exclude(provenance=Entry.Provenance.REPORTED)
        .exclude(system__team__in=grown_up())
    )
    return max(0, int(settings.YOUNG_TEAM_READINGS) - told.count())
