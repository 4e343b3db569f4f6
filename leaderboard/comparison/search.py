"""Site search over public boards, systems, teams, people, rounds, measures, and the documentation."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When, Window
from django.urls import reverse
from django.utils.translation import gettext as _

from evaluation.measures.registry import FAMILIES
from leaderboard.boards.system.history import authors_in
from leaderboard.core import anonymity, documents
from leaderboard.core.http.choices import similar
from leaderboard.core.measures import canonical_name, measure_anchor
from leaderboard.core.text.numbers import format_quantity
from leaderboard.models import (
    Benchmark,
    Dataset,
    Entry,
    EntryQuerySet,
    Round,
    Source,
    System,
    Team,
    TopicSource,
    architecture_choices,
    short_citation,
)

#: Limits: characters and words read from a query, results per kind, results if only one kind is requested,
#: and author texts scanned.
LONGEST_QUERY, MAX_WORDS, MAX_RESULTS, MAX_RESULTS_OF_ONE_KIND, MAX_AUTHOR_TEXTS = 100, 6, 8, 5_000, 200
KINDS = ("benchmark", "rolling_benchmark", "dataset", "system", "team", "author", "round", "measure", "documentation")
_ARCHITECTURES = dict(architecture_choices())
#: Rolling benchmarks with documents.
ROLLING_BENCHMARKS = TopicSource.objects.exclude(dataset__current_version=None)


class SearchResult(NamedTuple):
    """A search result. `about` is a short description, `of` the total number of results of its kind.

    `detail`, which only the page shows, is a line of `leaders.standing_lines` or an excerpt of the documentation.
    """

    kind: str
    name: str
    url: str
    about: str
    of: int
    detail: str = ""


def read_query(text: str) -> str:
    """Truncate the query to `LONGEST_QUERY` characters and `MAX_WORDS` words, and collapse white space."""
    return " ".join(text[:LONGEST_QUERY].split()[:MAX_WORDS])


def search(query: str, kind: str = "") -> list[SearchResult]:
    """Return up to `MAX_RESULTS` results of each kind, or up to `MAX_RESULTS_OF_ONE_KIND` of `kind`.

    An empty query finds everything of a `kind` except documentation, and nothing without one. Names that begin with
    the query come first, then systems with results scored by Runboard or on many datasets. An anonymous system
    matches only by its own name and architecture, and its team only if another of its systems is not anonymous.
    """
    words = query.casefold().split()
    if not words and not kind:
        return []
    systems = _public_systems()
    attributed_systems = systems.exclude(anonymity.anonymous_now())
    limit = MAX_RESULTS_OF_ONE_KIND if kind else MAX_RESULTS
    round_subjects = ("dataset__name", "benchmark__name")

    def find_rows(
        result_kind: str, rows: QuerySet[Any], fields: Sequence[str], *description_columns: str
    ) -> list[SearchResult]:
        """Return the rows that contain all words in `fields`, names that begin with the query first.

        `description_columns` describe them; for systems, they are the arguments of `_describe_system`.
        """
        begins = Q(name__istartswith=query) | Q(name__icontains=f"/{query}")
        matches = rows.alias(begins=begins).filter(_contains_all(words, *fields)).annotate(of=Window(Count("*")))
        matches = matches.order_by("-begins", *(("-run_here", "-datasets") if result_kind == "system" else ()), "name")
        results = []
        for title, slug, total, *texts in matches[:limit].values_list("name", "slug", "of", *description_columns):
            description = ", ".join(filter(None, _describe_system(*texts) if result_kind == "system" else texts))
            results.append(SearchResult(result_kind, title, reverse(result_kind, args=[slug]), description, total))
        return results

    finders: dict[str, Callable[[], list[SearchResult]]] = {
        "benchmark": lambda: find_rows("benchmark", Benchmark.objects.all(), ("name", "slug")),
        "rolling_benchmark": lambda: find_rows("rolling_benchmark", ROLLING_BENCHMARKS, ("name", "slug")),
        "dataset": lambda: find_rows(
            "dataset", Dataset.objects.listed(), ("name", "slug", "task", "domain"), "task", "domain"
        ),
        "system": lambda: find_rows(
            "system",
            _with_facts(systems),
            ("name", "architecture", "shown"),
            *("by", "source__authors", "source__year", "architecture", "parameter_count", "dataset", "datasets"),
        ),
        "team": lambda: find_rows("team", Team.objects.filter(pk__in=attributed_systems.values("team_id")), ("name",)),
        "author": lambda: _select(_find_authors(words, attributed_systems), query, limit),
        "round": lambda: find_rows("round", Round.objects.listed(), ("name", "slug", *round_subjects), *round_subjects),
        "measure": lambda: _select(_find_measures(query), query, limit),
        "documentation": lambda: _select(_find_documentation(words), query, limit),
    }
    return [result for name, find in finders.items() if kind in ("", name) for result in find()]


def _public_systems() -> QuerySet[System]:
    return System.objects.filter(pk__in=EntryQuerySet(Entry).public().values("system_id"))


def similar_words(query: str) -> list[str]:
    """Return names of boards, systems, and measures, or words of them, that are spelled like the query."""
    names = [family.label for family in FAMILIES.values()]
    for rows in (Benchmark.objects.all(), Dataset.objects.listed(), _public_systems()):
        names += rows.values_list("name", flat=True)
    words = (word.lstrip("+") for name in names for word in re.split("[ /()]", name))
    return similar(query, chain(words, names), cutoff=0.72)


#: Functions that return the slugs and names of existing pages, by the first part of their addresses. They accept a slug
#: to look up.
_PAGES: Mapping[str, Callable[..., Iterable[tuple[str, str]]]] = {
    "datasets": lambda **slug: Dataset.objects.listed().filter(**slug).values_list("slug", "name"),
    "benchmarks": lambda **slug: Benchmark.objects.filter(**slug).values_list("slug", "name"),
    "systems": lambda **slug: _public_systems().filter(**slug).values_list("slug", "name"),
    "rounds": lambda **slug: Round.objects.listed().filter(**slug).values_list("slug", "name"),
    "docs": lambda **slug: ((name, documents.document(name).title) for name in documents.names()),
}


def page_name(path: str) -> str:
    """Return the name of the dataset, benchmark, system, round, or document that a path is about; empty for others."""
    _, kind, slug, *_ = [*path.split("/"), "", ""]
    return dict(_PAGES[kind](slug=slug)).get(slug, "") if kind in _PAGES else ""


def similar_pages(path: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the missing page of a path, and similar pages as names and addresses.

    The missing page is its `kind` and `name`. It is empty if the page exists, the kind is unknown, or more follows.
    """
    kind, slug, *further = [*path[:200].split("/")[1:], "", ""]
    near = {
        f"/{page}/{match}/": names[match]
        for page in similar(kind, _PAGES, 1)
        for names in [dict(_PAGES[page]())]
        for match in similar(slug, names, cutoff=0.75)
    }
    is_missing = kind in _PAGES and slug and not any(further) and f"/{kind}/{slug}/" not in near
    return {"kind": kind, "name": slug} if is_missing else {}, [(name, url) for url, name in near.items()]


def _with_facts(systems: QuerySet[System]) -> QuerySet[System]:
    """Add columns of the team and the results."""
    own_entries = EntryQuerySet(Entry).public().filter(system=OuterRef("pk"))
    counts = own_entries.order_by().values("system").annotate(number=Count("dataset", distinct=True))
    return systems.annotate(
        shown=Case(When(anonymity.anonymous_now(), then=Value("")), default=anonymity.team_name()),
        by=anonymity.team_name(),
        dataset=Subquery(own_entries.order_by("dataset__name").values("dataset__name")[:1]),
        datasets=Subquery(counts.values("number")),
        run_here=Exists(own_entries.exclude(provenance=Entry.Provenance.REPORTED)),
    )


def distinguish(results: Sequence[SearchResult]) -> list[SearchResult]:
    """Append the beginning of the description, such as the team, to names that several results of a kind have."""
    names = Counter((result.kind, result.name) for result in results)
    return [
        result._replace(name=f"{result.name} ({result.about.split(', ')[0]})")
        if result.about and names[result.kind, result.name] > 1
        else result
        for result in results
    ]


def _describe_system(
    team: str, authors: str, year: int | None, architecture: str, parameters: int | None, dataset: str, datasets: int
) -> Sequence[str]:
    """Return the team or the publication, the architecture, the size, and the datasets of a system.

    In a challenge, the team is the participant's name. Systems of this site have no team or source. `dataset` is the
    name of one of the `datasets`.
    """
    origin = team or short_citation(authors, year) or _("this site")
    size = _("%s M parameters") % format_quantity(parameters / 1e6) if parameters else ""
    if datasets > 1:
        dataset = _("%(name)s and %(more)d more") % {"name": dataset, "more": datasets - 1}
    return origin, _ARCHITECTURES.get(architecture, architecture), size, dataset


def _contains_all(words: Sequence[str], *columns: str) -> Q:
    """Return the condition that each word occurs in at least one of the columns, ignoring case."""
    return Q(*(Q(*((f"{column}__icontains", word) for column in columns), _connector=Q.OR) for word in words))


def _select(results: Sequence[SearchResult], query: str, limit: int) -> list[SearchResult]:
    """Return up to `limit` of the results with their total number, names that begin with the query first.

    Results without a description, such as whole pages, precede others.
    """
    start = query.casefold()
    results = sorted(results, key=lambda found: (not found.name.casefold().startswith(start), found.about != ""))
    return [result._replace(of=len(results)) for result in results[:limit]]


def _find_measures(query: str) -> list[SearchResult]:
    """Return the measures whose names and description contain all words, or that the query names with a cutoff."""
    page, words, anchor = reverse("measures"), query.casefold().split(), measure_anchor(canonical_name(query))
    return [
        SearchResult("measure", family.label, f"{page}#{own_anchor}", family.description, 0)
        for family in FAMILIES.values()
        if (own_anchor := measure_anchor(family.label)) == anchor
        or all(word in " ".join((family.label, *family.aliases, family.description)).casefold() for word in words)
    ]


def _find_documentation(words: Sequence[str]) -> list[SearchResult]:
    """Return pages and sections whose heading contains one of the words, and with the page's title all of them."""
    results = []
    for page in chain.from_iterable(links for _group, links in documents.sidebar()):
        sections = ((heading.text, f"{page.url}#{heading.anchor}", page.title) for heading in page.headings)
        for name, url, about in ((page.title, page.url, ""), *sections):
            excerpt = page.texts.get(url.partition("#")[2], "")
            text = name.casefold()
            if any(word in text for word in words) and all(word in f"{text} {about.casefold()}" for word in words):
                results.append(SearchResult("documentation", name, url, about, 0, excerpt))
    return results


def _find_authors(words: Sequence[str], attributed_systems: QuerySet[System]) -> list[SearchResult]:
    """Return the authors whose name contains all words.

    They are authors of systems, or of publications with reported results.
    """
    sources = Source.objects.filter(pk__in=EntryQuerySet(Entry).public().values("source_id"))
    texts = chain.from_iterable(
        rows.filter(_contains_all(words, "authors"))
        .order_by("pk")
        .values_list(F("authors"), flat=True)[:MAX_AUTHOR_TEXTS]
        for rows in (attributed_systems, sources)
    )
    people = {person for text in texts for person in authors_in(text) if person.slug}
    results = {
        person.slug: SearchResult("author", person.name, reverse("author", args=[person.slug]), "", 0)
        for person in sorted(people)
        if all(word in person.name.casefold() for word in words)
    }
    return list(results.values())
