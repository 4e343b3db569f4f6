"""What the site has under some words: boards, systems, teams, people; only what everyone may see."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any, NamedTuple

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When, Window
from django.urls import reverse

from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.system.history import authors_in
from leaderboard.core import anonymity
from leaderboard.models import Benchmark, Dataset, Entry, EntryQuerySet, Source, System, Team
from leaderboard.results.board_rows.entry_rows import short_citation

#: What is read of a question, what is answered of each kind and of one asked for alone, and how many texts of authors
#: are looked through for it.
LONGEST_QUERY, MOST_WORDS, MOST_FOUND, MOST_OF_ONE, MOST_READ = 100, 6, 8, 500, 200
KINDS = ("benchmark", "dataset", "system", "team", "author")


#: Returns the texts beside a name from columns as they are read.
Describe = Callable[..., Sequence[str]]


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
    shown_team = Case(When(anonymity.anonymous_now(), then=Value("")), default=anonymity.team_name())

    def by_name(
        of_kind: str,
        rows: QuerySet[Any],
        searched: Sequence[str],
        *about: str,
        describe: Describe | None = None,
    ) -> list[Found]:
        """Find words in these columns; those whose name begins with the query come first."""
        place = Case(
            When(name__istartswith=query, then=Value(0)), default=Value(1), output_field=IntegerField()
        )
        matches = rows.filter(_has(words, *searched)).annotate(of=Window(Count("*"))).order_by(place, "name")
        found = []
        for name, slug, of, *texts in matches[:most].values_list("name", "slug", "of", *about):
            described = ", ".join(filter(None, describe(*texts) if describe else texts))
            found.append(Found(of_kind, name, reverse(of_kind, args=[slug]), described, of))
        return found

    finders: dict[str, Callable[[], list[Found]]] = {
        "benchmark": lambda: by_name("benchmark", Benchmark.objects.all(), ("name", "slug")),
        "dataset": lambda: by_name(
            "dataset", Dataset.objects.listed(), ("name", "slug", "task", "domain"), "task", "domain"
        ),
        "system": lambda: by_name(
            "system",
            systems.annotate(shown=shown_team, by=anonymity.team_name()),
            ("name", "architecture", "shown"),
            *("by", "source__authors", "source__year", "architecture"),
            describe=_describe_system,
        ),
        "team": lambda: by_name("team", Team.objects.filter(pk__in=named.values("team_id")), ("name",)),
        "author": lambda: _authors(words, named, most),
    }
    return [one for name, find in finders.items() if kind in ("", name) for one in find()]


def _describe_system(team: str, authors: str, year: int | None, architecture: str) -> Sequence[str]:
    """Return the participant or team that pages name, or the publication, and the architecture."""
    return team or short_citation(authors, year), ARCHITECTURES.get(architecture, architecture)


def _has(words: Sequence[str], *columns: str) -> Q:
    """Each word in one of the columns at least."""
    each = (
        reduce(lambda left, right: left | right, (Q(**{f"{column}__icontains": word}) for column in columns))
        for word in words
    )
    return reduce(and_, each)


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
