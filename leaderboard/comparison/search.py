"""What the site has under some words: boards, systems, teams, people by name; only what everyone may see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any, NamedTuple

from django.db.models import Case, F, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.system.team import authors_in
from leaderboard.core import anonymity
from leaderboard.models import Benchmark, Dataset, Entry, Source, System, Team
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.history.entry_rows import short_citation

#: What is read of a question, what is answered of each kind, and how many texts of authors are looked through for it.
LONGEST_QUERY, MOST_WORDS, MOST_FOUND, MOST_READ = 100, 6, 8, 200


class Found(NamedTuple):
    """One answer; `kind` is dataset, benchmark, system, team or author, `about` a few words beside the name."""

    kind: str
    name: str
    url: str
    about: str


def read_query(text: str) -> str:
    """What is looked for: without what is too long, and with single spaces."""
    return " ".join(text[:LONGEST_QUERY].split()[:MOST_WORDS])


def search(query: str) -> list[Found]:
    """At most so many of each kind, names that begin so first; nothing without a word. Seven queries at most.

    Of an anonymous system its own name alone leads to it, and its team is found by others of its systems only.
    """
    words = query.casefold().split()
    if not words:
        return []
    public = EntryQuerySet(Entry).public().values("system_id")
    systems = System.objects.filter(pk__in=public)
    named = systems.exclude(anonymity.anonymous_now())
    return [*_boards(query, words), *_systems(query, words, systems), *_teams(query, words, named),
            *_authors(words, named)]  # fmt: skip


def _has(words: Sequence[str], *columns: str) -> Q:
    """Each word in one of the columns at least."""
    each = (
        reduce(lambda left, right: left | right, (Q(**{f"{column}__icontains": word}) for column in columns))
        for word in words
    )
    return reduce(and_, each)


def _first(rows: QuerySet[Any], query: str) -> QuerySet[Any]:
    place = Case(When(name__istartswith=query, then=Value(0)), default=Value(1), output_field=IntegerField())
    return rows.order_by(place, "name")[:MOST_FOUND]


def _boards(query: str, words: Sequence[str]) -> list[Found]:
    benchmarks = _first(Benchmark.objects.filter(_has(words, "name", "slug")), query).values("name", "slug")
    datasets = _first(Dataset.objects.listed().filter(_has(words, "name", "slug", "task", "domain")), query)
    return [
        *(
            Found("benchmark", row["name"], reverse("benchmark", args=[row["slug"]]), "")
            for row in benchmarks
        ),
        *(
            Found("dataset", name, reverse("dataset", args=[slug]), ", ".join(filter(None, (task, domain))))
            for name, slug, task, domain in datasets.values_list("name", "slug", "task", "domain")
        ),
    ]


def _systems(query: str, words: Sequence[str], systems: QuerySet[System]) -> list[Found]:
    """By name, and by the participant that made the runs, who has no page; with its team or publication."""
    by_maker = ~anonymity.anonymous_now() & _has(words, "name", "participant")
    rows = _first(systems.filter(_has(words, "name") | by_maker), query).values_list(
        "name", "slug", "architecture", anonymity.team_name(), "source__authors", "source__year"
    )
    return [
        Found("system", name, reverse("system", args=[slug]), ", ".join(filter(None, about)))
        for name, slug, architecture, team, authors, year in rows
        for about in [(team or short_citation(authors, year), ARCHITECTURES.get(architecture, architecture))]
    ]


def _teams(query: str, words: Sequence[str], named: QuerySet[System]) -> list[Found]:
    teams = Team.objects.filter(_has(words, "name"), pk__in=named.values("team_id"))
    return [
        Found("team", name, reverse("team", args=[slug]), "")
        for name, slug in _first(teams, query).values_list("name", "slug")
    ]


def _authors(words: Sequence[str], named: QuerySet[System]) -> list[Found]:
    """Of systems, and of publications with reported results."""
    sources = Source.objects.filter(pk__in=EntryQuerySet(Entry).public().values("source_id"))
    texts = chain.from_iterable(
        rows.filter(_has(words, "authors")).order_by("pk").values_list(F("authors"), flat=True)[:MOST_READ]
        for rows in (named, sources)
    )
    people = {person for text in texts for person in authors_in(text) if person.slug}
    found = {
        person.slug: Found("author", person.name, reverse("author", args=[person.slug]), "")
        for person in sorted(people)
        if all(word in person.name.casefold() for word in words)
    }
    return list(found.values())[:MOST_FOUND]
