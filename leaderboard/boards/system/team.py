"""A team: its systems and its results. Its members are people's own affair, and never listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db.models import Count, Max, Q, TextField
from django.db.models.functions import Cast

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.core import anonymity
from leaderboard.core.text import deltas, numbers
from leaderboard.core.text.baselines import several_baselines
from leaderboard.datasets.lists import NONE, Baseline, baselines_of
from leaderboard.models import Entry, System, Team
from leaderboard.models.results import EntryQuerySet

#: Results shown, the newest.
MOST_RESULTS = 200


class TeamResult(NamedTuple):
    """A result of one of the team's systems, in the dataset's primary measure; numbers as the page writes them."""

    system: str
    slug: str
    configuration: str
    dataset: str
    dataset_slug: str
    measure: str
    value: str
    delta: str
    relative: str
    direction: str
    provenance: str
    is_baseline: bool
    baseline: str
    published: str


def team_facts(slug: str) -> dict[str, Any] | None:
    """A team with its public systems and results, None where there is no such team. Four queries."""
    team = Team.objects.filter(slug=slug).values("pk", "slug", "name", "created_at").first()
    if team is None:
        return None
    public = Q(entries__in=EntryQuerySet(Entry).public())
    systems = (
        System.objects.filter(team_id=team["pk"])
        .exclude(anonymity.kept_back())
        .annotate(
            datasets=Count("entries__dataset", filter=public, distinct=True),
            newest=Max(Cast("entries__published_at", TextField()), filter=public),
        )
        .filter(datasets__gt=0)
        .order_by("name")
        .values("name", "slug", "architecture", "datasets", "newest")
    )
    shown = [
        {
            **system,
            "architecture": ARCHITECTURES.get(system["architecture"], system["architecture"]),
            "newest": system["newest"][:10],
        }
        for system in systems
    ]
    results = _results(team["pk"])
    return {
        **team,
        "systems": shown,
        "results": results,
        "baseline": several_baselines(result.baseline for result in results),
        "datasets": len({result.dataset_slug for result in results}),
        "newest": max((system["newest"] for system in shown), default=""),
    }


def _results(team_id: int) -> list[TeamResult]:
    """The newest public results. Two queries."""
    rows = list(
        EntryQuerySet(Entry)
        .public()
        .filter(system__team_id=team_id)
        .exclude(anonymity.kept_back("system__"))
        .order_by("-published_at", "-pk")
        .values(
            "system__name",
            "system__slug",
            "configuration",
            "dataset_id",
            "dataset__name",
            "dataset__slug",
            "dataset__hidden",
            "dataset__primary_measure",
            "scores",
            "comparison_group",
            "provenance",
            "is_baseline",
            published=Cast("published_at", TextField()),
        )[:MOST_RESULTS]
    )
    baselines = baselines_of((row["dataset_id"], row["comparison_group"]) for row in rows)
    return [_result(row, baselines.get((row["dataset_id"], row["comparison_group"]), NONE)) for row in rows]


def _result(row: Mapping[str, Any], baseline: Baseline) -> TeamResult:
    measure = row["dataset__primary_measure"]
    value, decimals = row["scores"].get(measure), 3 if row["dataset__hidden"] else 4
    against = None if row["is_baseline"] else baseline.scores.get(measure)
    delta = deltas.absolute(value, against)
    return TeamResult(
        system=row["system__name"],
        slug=row["system__slug"],
        configuration=row["configuration"],
        dataset=row["dataset__name"],
        dataset_slug=row["dataset__slug"],
        measure=measure,
        value=numbers.written(value, decimals),
        delta=numbers.signed(delta, decimals),
        relative=numbers.signed(deltas.relative(value, against), 1, percent=True),
        direction=numbers.direction(delta, measure),
        provenance=row["provenance"],
        is_baseline=row["is_baseline"],
        baseline=baseline.name,
        published=row["published"][:10],
    )
