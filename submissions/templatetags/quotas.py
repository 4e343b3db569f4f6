"""Template tags and filters for quotas of datasets and submissions."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.template import Context

from leaderboard.models import Dataset, User
from submissions.accounts.permissions import get_teams
from submissions.models import Submission
from submissions.quotas.counting import Quota, get_charges, limited_quotas

register = template.Library()


@register.filter
def of_dataset(quotas: Mapping[int, Sequence[Quota]], dataset: Dataset) -> Sequence[Quota]:
    return quotas.get(dataset.pk, ()) if quotas else ()


@register.filter
def exhausted(quotas: Sequence[Quota]) -> bool:
    """Return whether there is a limit and no team has submissions left."""
    return bool(quotas) and all(quota.spent for quota in quotas)


@register.inclusion_tag("submissions/_quota.html", takes_context=True)
def own_quota(context: Context, slug: str) -> dict[str, Any]:
    """Return the template context with the signed-in user's quotas on the dataset with this slug.

    They are empty for anonymous visitors and datasets without a limit.
    """
    person = context["request"].user
    if not isinstance(person, User):
        return {"quotas": ()}
    datasets = list(Dataset.objects.open_for_runs().filter(slug=slug, hidden=True))
    by_dataset = limited_quotas(person, list(get_teams(person)), datasets)
    return {"quotas": [quota for quotas in by_dataset.values() for quota in quotas], "label": "Your quota"}


@register.inclusion_tag("submissions/_charged.html")
def quota_charged(submission: Submission) -> dict[str, Any]:
    return {"charges": get_charges(submission)}
