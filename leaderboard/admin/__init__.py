"""Curation in Django's own admin: what curators may change by hand, and what they may only look at."""

from django.conf import settings
from django.contrib import admin

from leaderboard.admin import (
    audit,
    benchmarks,
    challenges,
    datasets,
    efficiency,
    entrance,
    judgement_imports,
    pools,
    qrels,
    rescores,
    results,
    rounds,
    systems,
    waiting,
)

__all__ = [
    "audit",
    "benchmarks",
    "challenges",
    "datasets",
    "efficiency",
    "entrance",
    "judgement_imports",
    "pools",
    "qrels",
    "rescores",
    "results",
    "rounds",
    "systems",
    "waiting",
]

admin.site.site_header = f"{settings.SITE_NAME} curation"
admin.site.site_title = settings.SITE_NAME
admin.site.index_title = "Curation"
# One sign-in page, with its limits on attempts and its second factor.
admin.site.login = entrance.login  # type: ignore[method-assign]
admin.site.has_permission = lambda request: getattr(request.user, "curates", False)  # type: ignore[method-assign]
