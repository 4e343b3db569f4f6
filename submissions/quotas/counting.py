"""Used and remaining quota, counted from the ledger by day and calendar month in UTC."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.models import Dataset, Team, User
from submissions.models import QuotaException, QuotaUse, Submission


def needs_approval(team: Team | None) -> bool:
    """Return whether a curator must approve the team before it submits to hidden datasets.

    `team` is None for a team that is created with the submission.
    """
    return settings.TEAM_APPROVAL and (team is None or not team.approved_at)


@dataclass(frozen=True, slots=True)
class Window:
    """Submissions within a day or month by the user (for any team) and by the team.

    `limit` is None if there is no limit.
    """

    by_person: int
    by_team: int
    limit: int | None
    resets_at: datetime

    @property
    def used(self) -> int:
        """Count that the limit applies to: the larger of the two."""
        return max(self.by_person, self.by_team)

    @property
    def left(self) -> int | None:
        """Number of remaining submissions, or None if there is no limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def resets_in(self) -> str:
        """Time until the window resets, in words."""
        return format_remaining(self.resets_at)


@dataclass(frozen=True, slots=True)
class DailyCount:
    """Today's count (UTC) and its limit."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        """Remaining number for today."""
        return max(0, self.limit - self.used)

    @property
    def resets_at(self) -> datetime:
        """Next midnight, UTC."""
        return start_of_day(timezone.now()) + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a user and a team on one dataset; `team` is None for a team that does not exist yet."""

    dataset: Dataset
    team: Team | None
    day: Window
    month: Window

    @property
    def limited(self) -> bool:
        """Whether any limit applies; open datasets have none."""
        return self.day.limit is not None or self.month.limit is not None

    @property
    def left(self) -> int | None:
        """Number of submissions that are possible now, or None if there is no limit."""
        return min((window.left for window in (self.day, self.month) if window.left is not None), default=None)

    @property
    def awaits_approval(self) -> bool:
        """Whether a curator must approve the team before it submits to this dataset."""
        return self.dataset.hidden and needs_approval(self.team)

    @property
    def spent(self) -> bool:
        return self.left == 0

    @property
    def resets_at(self) -> datetime:
        """Start (UTC) of the next day, or of the next month if the month is used up."""
        return self.month.resets_at if self.month.left == 0 else self.day.resets_at

    @property
    def resets_in(self) -> str:
        """Time until `resets_at` in words, for example "in 5 h"."""
        return format_remaining(self.resets_at)


def format_remaining(moment: datetime) -> str:
    """Return the time until a moment in words, rounded up: "in 12 min", "in 5 h", "in 9 days"."""
    seconds = max(0.0, (moment - timezone.now()).total_seconds())
    for size, unit, limit in ((60, "min", 3600), (3600, "h", 48 * 3600)):
        if seconds <= limit:
            return f"in {max(1, -int(-seconds // size))} {unit}"
    return f"in {-int(-seconds // 86400)} days"


def start_of_day(now: datetime) -> datetime:
    """Return midnight (UTC) of the day."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def start_of_month(now: datetime) -> datetime:
    """Return midnight (UTC) of the first day of the month."""
    return start_of_day(now).replace(day=1)


def get_quotas(person: User, teams: Sequence[Team | None], datasets: Iterable[Dataset]) -> list[Quota]:
    """Return the quota for each pair of dataset and team, datasets first, in the given order.

    Open datasets have no limits. On a hidden dataset, a team's exception replaces the dataset's limits. None stands for
    a team that does not exist yet. Makes three queries, regardless of the number of datasets and teams.
    """
    now, datasets = timezone.now(), list(datasets)
    existing_teams = [team for team in teams if team is not None]
    uses = QuotaUse.objects.filter(
        kind=QuotaUse.Kind.SUBMISSION, refunded_at=None, at__gte=start_of_month(now), dataset__in=datasets
    ).order_by()
    by_person = _count_uses(uses.filter(person=person), now, "dataset")
    by_team = _count_uses(uses.filter(team__in=existing_teams), now, "dataset", "team")
    rows = QuotaException.objects.filter(
        Q(until=None) | Q(until__gt=now), Q(dataset=None) | Q(dataset__in=datasets), team__in=existing_teams
    )
    exceptions: dict[tuple[int, int], QuotaException] = {}
    for row in sorted(rows, key=lambda row: row.dataset_id is not None):
        dataset_ids = [dataset.pk for dataset in datasets] if row.dataset_id is None else [row.dataset_id]
        exceptions.update({(dataset, row.team_id): row for dataset in dataset_ids})
    tomorrow = start_of_day(now) + timedelta(days=1)
    next_month = (start_of_month(now) + timedelta(days=32)).replace(day=1)
    quotas = []
    for dataset in datasets:
        for team in teams:
            used_today, used_this_month = by_person.get((dataset.pk,), (0, 0))
            team_today, team_month = by_team.get((dataset.pk, team.pk), (0, 0)) if team else (0, 0)
            daily, monthly = (dataset.daily_quota, dataset.monthly_quota) if dataset.hidden else (None, None)
            if dataset.hidden and team and (exception := exceptions.get((dataset.pk, team.pk))):
                daily, monthly = exception.daily, exception.monthly
            windows = (
                Window(used_today, team_today, daily, tomorrow),
                Window(used_this_month, team_month, monthly, next_month),
            )
            quotas.append(Quota(dataset, team, *windows))
    return quotas


def _count_uses(uses: QuerySet[QuotaUse], now: datetime, *columns: str) -> Mapping[tuple[int, ...], tuple[int, int]]:
    """Return the numbers of today's and this month's uses, keyed by the values of `columns`.

    `uses` begin this month.
    """
    rows = uses.values_list(*columns).annotate(
        today=Count("pk", filter=Q(at__gte=start_of_day(now))), month=Count("pk")
    )
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}


@dataclass(frozen=True, slots=True)
class DatasetCharge:
    """Quota charged to a submission for one dataset.

    `is_counted` is False once the unit was refunded for `refund_reason`. `quota` is the present state of the quota.
    """

    dataset: Dataset
    refund_reason: str
    is_counted: bool
    quota: Quota | None = None


def limited_quotas(person: User, teams: Sequence[Team], datasets: Iterable[Dataset]) -> dict[int, list[Quota]]:
    """Return the quotas of the user's teams on the limited hidden datasets, by dataset id.

    Users without a team get the quota of a new team.
    """
    hidden_datasets = [dataset for dataset in datasets if dataset.hidden]
    quotas: dict[int, list[Quota]] = {}
    for quota in get_quotas(person, list(teams) or [None], hidden_datasets) if hidden_datasets else ():
        if quota.limited:
            quotas.setdefault(quota.dataset.pk, []).append(quota)
    return quotas


def get_charges(submission: Submission, *, now: bool = True) -> list[DatasetCharge]:
    """Return the quota charged to a submission, sorted by dataset name.

    If `now`, include the present quota of each dataset.
    """
    uses = [use for use in submission.quota_uses.all() if use.kind == QuotaUse.Kind.SUBMISSION]
    uses.sort(key=lambda use: use.dataset.name)
    datasets = [use.dataset for use in uses]
    quotas = get_quotas(submission.submitter, [submission.team], datasets) if now and uses else []
    by_dataset = {quota.dataset.pk: quota for quota in quotas if quota.limited}
    return [
        DatasetCharge(use.dataset, use.refund_reason, use.refunded_at is None, by_dataset.get(use.dataset_id))
        for use in uses
    ]
