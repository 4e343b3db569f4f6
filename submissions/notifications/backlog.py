"""What waits to be sent, for operators: mail of accounts, mail of notices, messages to webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Model, Q, QuerySet
from django.utils import timezone

from submissions.models import AccountMail, Delivery, Notice


@dataclass(frozen=True, slots=True)
class Unsent:
    """How much may be sent now, since when the oldest of it waits, and how much is tried again later."""

    now: int
    oldest: datetime | None
    later: int


def unsent() -> Unsent:
    """All of it together."""
    rows: Sequence[QuerySet[Model]] = (
        AccountMail.objects.order_by(),
        Notice.objects.filter(mail_state="waiting").order_by(),
        Delivery.objects.filter(state="waiting").order_by(),
    )
    due = Q(not_before=None) | Q(not_before__lte=timezone.now())
    found = [
        each.aggregate(n=Count("pk", filter=due), all=Count("pk"), oldest=Min("created_at")) for each in rows
    ]
    return Unsent(
        now=sum(each["n"] for each in found),
        oldest=min((each["oldest"] for each in found if each["oldest"]), default=None),
        later=sum(each["all"] - each["n"] for each in found),
    )
