"""Curation in Django's own admin: what curators may change by hand, and what they may only look at."""

from leaderboard.admin import (
    audit,
    benchmarks,
    challenges,
    datasets,
    efficiency,
    judgement_imports,
    pools,
    qrels,
    rescores,
    results,
    rounds,
    site,
    systems,
)

__all__ = [
    "audit",
    "benchmarks",
    "challenges",
    "datasets",
    "efficiency",
    "judgement_imports",
    "pools",
    "qrels",
    "rescores",
    "results",
    "rounds",
    "site",
    "systems",
]
