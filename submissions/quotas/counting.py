"""What has been used of quotas, and what is left: counted in the ledger, by day and calendar month, UTC."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.models import Dataset, Team, User
from submissions.models import QuotaException, QuotaUse, Submission


def needs_approval(team: Team | None) -> bool:
    """Whether a curator is to approve the team before it submits to hidden judgements; None is one yet to be made."""
    return settings.TEAM_APPROVAL and (team is None or not team.approved_at)


@dataclass(frozen=True, slots=True)
class Window:
    """A day or a month: submissions of the person, for whatever team, and of the team; `limit` None: no limit."""

    by_person: int
    by_team: int
    limit: int | None
    resets_at: datetime

    @property
    def used(self) -> int:
        """The count that the limit stops: the larger of the two."""
        return max(self.by_person, self.by_team)

    @property
    def left(self) -> int | None:
        """How many more there may be; None where there is no limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def resets_in(self) -> str:
        """How long until counting begins anew, in words."""
        return format_remaining(self.resets_at)


@dataclass(frozen=True, slots=True)
class DailyCount:
    """A count of today, from midnight to midnight, UTC, and its limit."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        """How many more there may be today."""
        return max(0, self.limit - self.used)

    @property
    def resets_at(self) -> datetime:
        """The moment at which counting begins anew."""
        return start_of_day(timezone.now()) + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a person may still submit to a hidden dataset for a team (None: for a team that is yet to be made)."""

    dataset: Dataset
    team: Team | None
    day: Window
    month: Window

    @property
    def limited(self) -> bool:
        """Whether anything is counted at all: where judgements are open, nothing is."""
        return self.day.limit is not None or self.month.limit is not None

    @property
    def left(self) -> int | None:
        """How many more there may be now; None where there is no limit."""
        return min(
            (window.left for window in (self.day, self.month) if window.left is not None), default=None
        )

    @property
    def awaits_approval(self) -> bool:
        """Whether a curator is to approve the team before it submits here."""
        return self.dataset.hidden and needs_approval(self.team)

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0

    @property
    def resets_at(self) -> datetime:
        """When there is more again: the next day, or where the month is used up the next month. UTC."""
        return self.month.resets_at if self.month.left == 0 else self.day.resets_at

    @property
    def resets_in(self) -> str:
        """The same in words: in 5 h."""
        return format_remaining(self.resets_at)


def format_remaining(moment: datetime) -> str:
    """How long it is to a moment, rounded up: in 12 min, in 5 h, in 9 days."""
    seconds = max(0.0, (moment - timezone.now()).total_seconds())
    for size, unit, below in ((60, "min", 3600), (3600, "h", 48 * 3600)):
        if seconds <= below:
            return f"in {max(1, -int(-seconds // size))} {unit}"
    return f"in {-int(-seconds // 86400)} days"


def start_of_day(now: datetime) -> datetime:
    """Midnight, UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def start_of_month(now: datetime) -> datetime:
    """Midnight on the first, UTC."""
    return start_of_day(now).replace(day=1)


def quotas_of(person: User, teams: Sequence[Team | None], datasets: Iterable[Dataset]) -> list[Quota]:
    """Return a quota for each dataset and each of the teams, in their order, from three queries."""
    now, datasets = timezone.now(), list(datasets)
    known = [team for team in teams if team is not None]
    uses = QuotaUse.objects.filter(
        kind=QuotaUse.Kind.SUBMISSION, refunded_at=None, at__gte=start_of_month(now), dataset__in=datasets
    ).order_by()
    own = _counted(uses.filter(person=person), now, "dataset")
    shared = _counted(uses.filter(team__in=known), now, "dataset", "team")
    rows = QuotaException.objects.filter(
        Q(until=None) | Q(until__gt=now), Q(dataset=None) | Q(dataset__in=datasets), team__in=known
    )
    exceptions: dict[tuple[int, int], QuotaException] = {}
    for row in sorted(rows, key=lambda each: each.dataset_id is not None):
        named = [dataset.pk for dataset in datasets] if row.dataset_id is None else [row.dataset_id]
        exceptions.update({(dataset, row.team_id): row for dataset in named})
    tomorrow = start_of_day(now) + timedelta(days=1)
    next_month = (start_of_month(now) + timedelta(days=32)).replace(day=1)
    found = []
    for dataset in datasets:
        for team in teams:
            today, month = own.get((dataset.pk,), (0, 0))
            team_today, team_month = shared.get((dataset.pk, team.pk), (0, 0)) if team else (0, 0)
            daily, monthly = (dataset.daily_quota, dataset.monthly_quota) if dataset.hidden else (None, None)
            if dataset.hidden and team and (exception := exceptions.get((dataset.pk, team.pk))):
                daily, monthly = exception.daily, exception.monthly
            windows = (
                Window(today, team_today, daily, tomorrow),
                Window(month, team_month, monthly, next_month),
            )
            found.append(Quota(dataset, team, *windows))
    return found


def _counted(
    uses: QuerySet[QuotaUse], now: datetime, *columns: str
) -> Mapping[tuple[int, ...], tuple[int, int]]:
    """By these columns how many were used today and this month."""
    rows = uses.values_list(*columns).annotate(
        today=Count("pk", filter=Q(at__gte=start_of_day(now))), month=Count("pk")
    )
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}


@dataclass(frozen=True, slots=True)
class DatasetCharge:
    """The cost of a submission on one dataset: a unit, or nothing any more, and why; `quota` as it is now."""

    dataset: Dataset
    refund_reason: str
    is_counted: bool
    quota: Quota | None = None


def quotas_for(person: User, teams: Sequence[Team], datasets: Iterable[Dataset]) -> dict[int, list[Quota]]:
    """By dataset, where judgements are hidden and something is limited, a quota for each of the person's teams."""
    hidden = [dataset for dataset in datasets if dataset.hidden]
    found: dict[int, list[Quota]] = {}
    for quota in quotas_of(person, list(teams) or [None], hidden) if hidden else ():
        if quota.limited:
            found.setdefault(quota.dataset.pk, []).append(quota)
    return found


def charges_of(submission: Submission, *, now: bool = True) -> list[DatasetCharge]:
    """Return the cost of a submission by dataset, with `now` beside the present use of the quota."""
    uses = [each for each in submission.quota_uses.all() if each.kind == QuotaUse.Kind.SUBMISSION]
    uses.sort(key=lambda use: use.dataset.name)
    datasets = [use.dataset for use in uses]
    present = quotas_of(submission.submitter, [submission.team], datasets) if now and uses else []
    by_dataset = {quota.dataset.pk: quota for quota in present if quota.limited}
    return [
        DatasetCharge(use.dataset, use.refund_reason, use.refunded_at is None, by_dataset.get(use.dataset_id))
        for use in uses
    ]
