"""Who systems and publications are by: names as BibTeX joins them, each with a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.utils.text import slugify

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.core import anonymity
from leaderboard.core.text.bibtex_names import latin, names_in
from leaderboard.models import Entry, Source, System
from leaderboard.models.results import EntryQuerySet


class Author(NamedTuple):
    """A person by name. `slug` is empty for a name that no address can be made of."""

    name: str
    slug: str


def authors_in(text: str | None) -> list[Author]:
    """The people of `Nandan Thakur and Reimers, Nils and others`, names in the order in which one says them."""
    return [Author(name.said, author_slug(name.said)) for name in names_in(text)]


def author_slug(name: str) -> str:
    """How a person's page is addressed; a name without Latin letters keeps its own."""
    return slugify(latin(name)) or slugify(name, allow_unicode=True)


def author_facts(slug: str) -> dict[str, Any] | None:
    """A person's systems and publications with public results, None where there are none. Two queries."""
    public = EntryQuerySet(Entry).public()
    systems = [
        {**row, "architecture": ARCHITECTURES.get(row["architecture"], row["architecture"])}
        for row in System.objects.filter(pk__in=public.values("system_id"))
        .exclude(anonymity.kept_back())
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
