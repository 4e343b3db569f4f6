"""Quotas on pages: of a dataset, for whoever looks, and of a submission."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.template import Context

from leaderboard.models import Dataset, User
from submissions.accounts.permissions import teams_of
from submissions.models import Submission
from submissions.quotas.counting import Quota, get_charges, quotas_for

register = template.Library()


@register.filter
def of_dataset(quotas: Mapping[int, Sequence[Quota]], dataset: Dataset) -> Sequence[Quota]:
    return quotas.get(dataset.pk, ()) if quotas else ()


@register.inclusion_tag("submissions/_quota.html", takes_context=True)
def own_quota(context: Context, slug: str) -> dict[str, Any]:
    """What the signed-in person may still submit to the dataset; nothing where that is not limited."""
    person = context["request"].user
    if not isinstance(person, User):
        return {"quotas": ()}
    datasets = list(Dataset.objects.open_for_runs().filter(slug=slug, hidden=True))
    by_dataset = quotas_for(person, list(teams_of(person)), datasets)
    return {"quotas": [quota for quotas in by_dataset.values() for quota in quotas], "label": "Your quota"}


@register.inclusion_tag("submissions/_charged.html")
def quota_charged(submission: Submission) -> dict[str, Any]:
    return {"charges": get_charges(submission)}
