"""What people see of quotas: beside the datasets to choose from, on a dataset's page, and of what they sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leaderboard.models import Dataset, Team, User
from submissions.models import QuotaUse, Submission
from submissions.quotas.counting import Quota, quotas_of


@dataclass(frozen=True, slots=True)
class Charged:
    """What a submission cost on one dataset: a unit, or nothing any more, and why; `quota` as it is now."""

    dataset: Dataset
    refund_reason: str
    refunded: bool
    quota: Quota | None = None

    @property
    def is_counted(self) -> bool:
        """Whether it was not given back."""
        return not self.refunded


def quotas_for(person: User, teams: Sequence[Team], datasets: Iterable[Dataset]) -> dict[int, list[Quota]]:
    """By dataset, where judgements are hidden and something is limited, a quota for each of the person's teams."""
    hidden = [dataset for dataset in datasets if dataset.hidden]
    found: dict[int, list[Quota]] = {}
    for quota in quotas_of(person, list(teams) or [None], hidden) if hidden else ():
        if quota.limited:
            found.setdefault(quota.dataset.pk, []).append(quota)
    return found


def charged(submission: Submission, *, now: bool = True) -> list[Charged]:
    """What the submission cost, by dataset; with `now`, beside what is used of the quota."""
    uses = [each for each in submission.quota_uses.all() if each.kind == QuotaUse.Kind.SUBMISSION]
    uses.sort(key=lambda use: use.dataset.name)
    datasets = [use.dataset for use in uses]
    present = quotas_of(submission.submitter, [submission.team], datasets) if now and uses else []
    by_dataset = {quota.dataset.pk: quota for quota in present if quota.limited}
    return [
        Charged(use.dataset, use.refund_reason, use.refunded_at is not None, by_dataset.get(use.dataset_id))
        for use in uses
    ]
