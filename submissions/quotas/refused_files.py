"""Refused files cost nothing, up to a limit by day: free tries are not endless ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from evaluation.core.problems import ProblemCode, is_free
from leaderboard.models import Dataset, User
from submissions.core.errors import Refused
from submissions.models import QuotaUse
from submissions.quotas.counting import day_began, quotas_of, until
from submissions.quotas.ledger import QuotaSpent

TOO_MANY_REFUSALS = ProblemCode("too_many_refusals", "Many of your files for hidden datasets were refused today; "
    "only so many cost nothing.", "Check files first, which is never counted.", is_free=True)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refusals:
    """How many files for hidden datasets were refused to a person today, of how many that cost nothing."""

    used: int
    limit: int
    resets_at: datetime

    @property
    def left(self) -> int:
        """How many more."""
        return max(0, self.limit - self.used)


def refusals_of(person: User) -> Refusals:
    """Today's count, from midnight to midnight, UTC: over all hidden datasets and teams."""
    midnight = day_began(timezone.now())
    uses = QuotaUse.objects.filter(kind=QuotaUse.Kind.REFUSAL, person=person, at__gte=midnight)
    return Refusals(uses.count(), settings.REFUSALS_PER_DAY, midnight + timedelta(days=1))


@contextmanager
def reading_for(person: User, datasets: Iterable[Dataset]) -> Iterator[None]:
    """Around reading what was sent, outside of any transaction: a refusal is written down, on hidden datasets.

    Raises Refused before anything is read where the person has nothing left, or had too many files refused today, and
    in place of a verdict where that many were meanwhile: of many that come at once no more than the limit are told.
    """
    hidden = list({dataset.pk: dataset for dataset in datasets if dataset.hidden}.values())
    if hidden:
        _refuse_early(person, hidden)
    try:
        yield
    except Refused as refusal:
        # Where files are wrong too, theirs is the first code.
        if not is_free(refusal.code):
            _write_down(person, hidden, refusal)
        raise


def _refuse_early(person: User, hidden: list[Dataset]) -> None:
    # The person's own count, without a team's exceptions: who has one is counted again under the lock.
    quotas = quotas_of(person, [None], hidden)
    excepted = person.teams.exclude(quota_exceptions=None).exists()
    if not excepted and (spent := [quota for quota in quotas if quota.spent]):
        raise QuotaSpent(spent, len(hidden))
    _refuse_beyond_limit(person)


def _refuse_beyond_limit(person: User) -> None:
    refusals = refusals_of(person)
    if refusals.left:
        return
    raise Refused.of(
        TOO_MANY_REFUSALS,
        f"Today {refusals.used} of your files for datasets with hidden judgements were refused, and only "
        f"{refusals.limit} a day cost nothing.",
        f"Submit to these again {until(refusals.resets_at)}, at {refusals.resets_at:%H:%M} UTC on "
        f"{refusals.resets_at:%-d %B}. Until then “Check only” says what is wrong with a file.",
    )


@transaction.atomic
def _write_down(person: User, hidden: list[Dataset], refusal: Refused) -> None:
    if not hidden:
        return
    # Held before they are counted: of two that end at once the second sees the first.
    User.objects.select_for_update(no_key=True).get(pk=person.pk)
    _refuse_beyond_limit(person)
    wrong = {file.dataset for file in refusal.files if not file.report.valid}
    refused = [dataset for dataset in hidden if not wrong or dataset.slug in wrong]
    now = timezone.now()
    QuotaUse.objects.bulk_create(
        QuotaUse(kind=QuotaUse.Kind.REFUSAL, dataset=dataset, person=person, at=now) for dataset in refused
    )
