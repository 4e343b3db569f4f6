"""What the site has under some words: boards, systems, teams, people; only what everyone may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any, NamedTuple

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When, Window
from django.urls import reverse

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.system.team import authors_in
from leaderboard.core import anonymity
from leaderboard.models import Benchmark, Dataset, Entry, Source, System, Team
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.board_rows.entry_rows import short_citation

#: What is read of a question, what is answered of each kind and of one asked for alone, and how many texts of authors
#: are looked through for it.
LONGEST_QUERY, MOST_WORDS, MOST_FOUND, MOST_OF_ONE, MOST_READ = 100, 6, 8, 500, 200
KINDS = ("benchmark", "dataset", "system", "team", "author")


class Found(NamedTuple):
    """One answer: `about` is a few words beside the name, `of` how many of its kind there are."""

    kind: str
    name: str
    url: str
    about: str
    of: int


def read_query(text: str) -> str:
    """What is looked for: without what is too long, and with single spaces."""
    return " ".join(text[:LONGEST_QUERY].split()[:MOST_WORDS])


def search(query: str, kind: str = "") -> list[Found]:
    """At most so many of each kind, or more of this one; names that begin so first. Seven queries at most.

    Nothing is found without a word. An anonymous system is found by its own name and architecture alone, and its team
    by others of its systems only.
    """
    words = query.casefold().split()
    if not words:
        return []
    public = EntryQuerySet(Entry).public().values("system_id")
    systems = System.objects.filter(pk__in=public)
    named = systems.exclude(anonymity.anonymous_now())
    most = MOST_OF_ONE if kind else MOST_FOUND
    finders: dict[str, Callable[[], list[Found]]] = {
        "benchmark": lambda: _benchmarks(query, words, most),
        "dataset": lambda: _datasets(query, words, most),
        "system": lambda: _systems(query, words, systems, most),
        "team": lambda: _teams(query, words, named, most),
        "author": lambda: _authors(words, named, most),
    }
    return [one for name, find in finders.items() if kind in ("", name) for one in find()]


def _has(words: Sequence[str], *columns: str) -> Q:
    """Each word in one of the columns at least."""
    each = (
        reduce(lambda left, right: left | right, (Q(**{f"{column}__icontains": word}) for column in columns))
        for word in words
    )
    return reduce(and_, each)


def _first(rows: QuerySet[Any], query: str, most: int) -> QuerySet[Any]:
    """The first rows, each with `of`, how many there are."""
    place = Case(When(name__istartswith=query, then=Value(0)), default=Value(1), output_field=IntegerField())
    return rows.annotate(of=Window(Count("*"))).order_by(place, "name")[:most]


def _benchmarks(query: str, words: Sequence[str], most: int) -> list[Found]:
    rows = _first(Benchmark.objects.filter(_has(words, "name", "slug")), query, most)
    return [
        Found("benchmark", name, reverse("benchmark", args=[slug]), "", of)
        for name, slug, of in rows.values_list("name", "slug", "of")
    ]


def _datasets(query: str, words: Sequence[str], most: int) -> list[Found]:
    listed = Dataset.objects.listed().filter(_has(words, "name", "slug", "task", "domain"))
    rows = _first(listed, query, most).values_list("name", "slug", "task", "domain", "of")
    return [
        Found("dataset", name, reverse("dataset", args=[slug]), ", ".join(filter(None, (task, domain))), of)
        for name, slug, task, domain, of in rows
    ]


def _systems(query: str, words: Sequence[str], systems: QuerySet[System], most: int) -> list[Found]:
    """By name, architecture and the participant or team that pages name; with that, or the publication."""
    whole = systems.annotate(
        shown=Case(When(anonymity.anonymous_now(), then=Value("")), default=anonymity.team_name())
    )
    rows = _first(whole.filter(_has(words, "name", "architecture", "shown")), query, most).values_list(
        "name", "slug", "architecture", anonymity.team_name(), "source__authors", "source__year", "of"
    )
    return [
        Found("system", name, reverse("system", args=[slug]), ", ".join(filter(None, about)), of)
        for name, slug, architecture, team, authors, year, of in rows
        for about in [(team or short_citation(authors, year), ARCHITECTURES.get(architecture, architecture))]
    ]


def _teams(query: str, words: Sequence[str], named: QuerySet[System], most: int) -> list[Found]:
    teams = Team.objects.filter(_has(words, "name"), pk__in=named.values("team_id"))
    return [
        Found("team", name, reverse("team", args=[slug]), "", of)
        for name, slug, of in _first(teams, query, most).values_list("name", "slug", "of")
    ]


def _authors(words: Sequence[str], named: QuerySet[System], most: int) -> list[Found]:
    """Of systems, and of publications with reported results."""
    sources = Source.objects.filter(pk__in=EntryQuerySet(Entry).public().values("source_id"))
    texts = chain.from_iterable(
        rows.filter(_has(words, "authors")).order_by("pk").values_list(F("authors"), flat=True)[:MOST_READ]
        for rows in (named, sources)
    )
    people = {person for text in texts for person in authors_in(text) if person.slug}
    found = {
        person.slug: Found("author", person.name, reverse("author", args=[person.slug]), "", 0)
        for person in sorted(people)
        if all(word in person.name.casefold() for word in words)
    }
    return [one._replace(of=len(found)) for one in list(found.values())[:most]]
