"""What curators do about quotas and flags: give a unit back, except a team, settle a flag. Within `audit.acting`."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from leaderboard.core.audit import actor, record
from leaderboard.models import Dataset, Team
from submissions.models import Flag, QuotaException, QuotaUse
from submissions.quotas.ledger import refund_use


def refund_unit(use: QuotaUse) -> None:
    """Give a unit back for the reason of the act, which its people read. Raises ValueError where none is charged."""
    if not refund_use(use, actor().reason):
        what = "was given back before" if use.refunded_at else "is a refused file, and cost nothing"
        raise ValueError(f"{use} ({use.pk}) {what}.")
    record("quota refunded", use, dataset=use.dataset_id, after={"submission": use.submission_id})


def grant_exception(
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


def settle_flag(flag: Flag, state: Flag.State) -> None:
    """Clear the flag, confirm it, or open it again. Nothing else follows: that is the curator's to say."""
    before, who = flag.state, actor()
    flag.state, flag.note = state, who.reason[:300]
    opened = state == Flag.State.OPEN
    flag.settled_by, flag.settled_at = (None, None) if opened else (who.person, timezone.now())
    flag.save(update_fields=["state", "note", "settled_by", "settled_at"])
    record(
        f"flag {Flag.State(state).label}", flag, dataset=flag.dataset_id,
        before={"state": before}, after={"state": state},
    )  # fmt: skip


def flag_details(flag: Flag) -> str:
    """What gave rise to it, in words: never a score, a query or a document."""
    details = flag.details
    if flag.kind == Flag.Kind.FEW_QUERIES:
        return f"{details['answered']} of {details['topics']} queries answered"
    if flag.kind == Flag.Kind.FEW_DOCUMENTS:
        return f"{details['usual_documents']:g} documents for most queries"
    if flag.kind == Flag.Kind.SAME_SCORES:
        return f"as submission {details['submission']}"
    text = (
        f"{details['same_documents']} of {details['compared']} queries have the same first ten documents as "
        f"submission {details['submission']}, {details['same_order']} in the same order"
    )
    linked = len(details.get("chain", ()))
    return f"{text}; a chain of {linked + 1} submissions" if linked > 1 else text
