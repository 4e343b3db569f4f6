"""A team and its results, and the authors of systems and publications. A team's members are never listed."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import Count, Max, Q, TextField
from django.db.models.functions import Cast
from django.utils.text import slugify

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.core import anonymity
from leaderboard.core.text.baselines import baselines_label
from leaderboard.core.text.bibtex import parse_authors, to_latin
from leaderboard.datasets.lists import recent_results
from leaderboard.models import Entry, EntryQuerySet, Source, System, Team

#: Results shown, the newest.
MOST_RESULTS = 200


def team_facts(slug: str) -> dict[str, Any] | None:
    """A team with its public systems and results, None where there is no such team. Four queries."""
    team = Team.objects.filter(slug=slug).values("pk", "slug", "name", "created_at").first()
    if team is None:
        return None
    public = Q(entries__in=EntryQuerySet(Entry).public())
    systems = (
        System.objects.filter(team_id=team["pk"])
        .exclude(anonymity.anonymous_now())
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
    public_results = EntryQuerySet(Entry).public().filter(system__team_id=team["pk"])
    results = recent_results(public_results.exclude(anonymity.anonymous_now("system__")), MOST_RESULTS)
    return {
        **team,
        "systems": shown,
        "results": results,
        "baseline": baselines_label(result["baseline"] for result in results),
        "datasets": len({result["dataset_slug"] for result in results}),
        "newest": max((system["newest"] for system in shown), default=""),
    }


class Author(NamedTuple):
    """A person by name. `slug` is empty for a name that no address can be made of."""

    name: str
    slug: str


def authors_in(text: str | None) -> list[Author]:
    """The people of `Nandan Thakur and Reimers, Nils and others`, names in the order in which one says them."""
    return [Author(name.said, author_slug(name.said)) for name in parse_authors(text)]


def author_slug(name: str) -> str:
    """How a person's page is addressed; a name without Latin letters keeps its own."""
    return slugify(to_latin(name)) or slugify(name, allow_unicode=True)


def author_facts(slug: str) -> dict[str, Any] | None:
    """A person's systems and publications with public results, None where there are none. Two queries."""
    public = EntryQuerySet(Entry).public()
    systems = [
        {**row, "architecture": ARCHITECTURES.get(row["architecture"], row["architecture"])}
        for row in System.objects.filter(pk__in=public.values("system_id"))
        .exclude(anonymity.anonymous_now())
        .exclude(authors="")
        .annotate(datasets=Count("entries__dataset", filter=Q(entries__in=public), distinct=True))
        .order_by("name")
        .values("slug", "name", "architecture", "authors", "year", "team__name", "team__slug", "datasets")
        if _is_by(row["authors"], slug)
    ]
    sources = [
        row
        for row in Source.objects.filter(pk__in=public.exclude(source=None).values("source_id"))
        .annotate(number=Count("systems", distinct=True))
        .order_by("-year", "title")
        .values("title", "authors", "year", "venue", "url", "number")
        if _is_by(row["authors"], slug)
    ]
    name = _name(slug, (str(row["authors"]) for row in (*systems, *sources)))
    return {"name": name, "slug": slug, "systems": systems, "sources": sources} if name else None


def _is_by(authors: str, slug: str) -> bool:
    return any(author.slug == slug for author in authors_in(authors))


def _name(slug: str, texts: Iterable[str]) -> str:
    return next(
        (author.name for text in texts for author in authors_in(text) if author.slug == slug and slug), ""
    )
