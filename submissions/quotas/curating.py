"""What curators do about quotas: give a unit back, and give a team another quota. Within `audit.acting`."""

from __future__ import annotations

from datetime import datetime

from leaderboard.core.audit import actor, record
from leaderboard.models import Dataset, Team
from submissions.models import QuotaException, QuotaUse
from submissions.quotas.ledger import refund_use


def give_back(use: QuotaUse) -> None:
    """Give a unit back for the reason of the act, which its people read. Raises ValueError where none is charged."""
    if not refund_use(use, actor().reason):
        what = "was given back before" if use.refunded_at else "is a refused file, and cost nothing"
        raise ValueError(f"{use} ({use.pk}) {what}.")
    record("quota refunded", use, dataset=use.dataset_id, after={"submission": use.submission_id})


def except_team(
    team: Team, dataset: Dataset | None, *, daily: int | None, monthly: int | None, until: datetime | None
) -> QuotaException:
    """Give the team another quota on a dataset (None: on all) until a moment (None: for good); None is no limit."""
    reason = actor().reason
    values = {"daily": daily, "monthly": monthly, "until": until, "reason": reason[:300]}
    row, _ = QuotaException.objects.update_or_create(team=team, dataset=dataset, defaults=values)
    told = {**values, "until": until.isoformat() if until else None}
    record("quota exception", row, dataset=dataset, after=told)
    return row


def end_exception(team: Team, dataset: Dataset | None) -> None:
    """Put the team under the dataset's own quota again. Raises ValueError where it had no other."""
    row = QuotaException.objects.filter(team=team, dataset=dataset).first()
    if row is None:
        raise ValueError(f"{team} has no quota of its own on {dataset or 'all datasets'}.")
    record("quota exception ended", row, dataset=dataset)
    row.delete()
