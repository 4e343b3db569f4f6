"""Which comparison is meant, the systems that can be compared, and the entries that chosen ones have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast

from leaderboard.boards.state import Parameters, last_value, query_of
from leaderboard.core import anonymity
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name
from leaderboard.models import Dataset, Entry, EntryQuerySet, System
from leaderboard.results.board_rows.entry_rows import REPORTED, STALE, short_citation

#: The reason why a dataset has no tests, if its results are neither reported nor stale.
HIDDEN = "hidden"


class SystemChoice(NamedTuple):
    """A system with a public result; `by` is its team or publication."""

    slug: str
    name: str
    by: str

    @property
    def label(self) -> str:
        """The name, with the team or publication in brackets."""
        return f"{self.name} ({self.by})" if self.by else self.name


class ComparedEntry(NamedTuple):
    """A public entry with what a comparison needs of its dataset, and of the version and judgements it has now."""

    pk: int
    system: str
    dataset: str
    dataset_name: str
    hidden: bool
    primary_measure: str
    version: int | None
    qrels: int | None
    statistics: Mapping[str, Any] | None
    group: str
    provenance: str
    configuration: str
    seeds: int
    published: str
    scores: Mapping[str, float]
    deviations: Mapping[str, float]
    dataset_id: int = 0

    @property
    def is_current(self) -> bool:
        """Whether it was scored on the dataset's present version and judgements."""
        return self.group.startswith(f"scored:{self.version}:{self.qrels}:")

    @property
    def untested(self) -> str:
        """The reason why its dataset has no tests, empty where it has."""
        if self.provenance == REPORTED:
            return REPORTED
        if self.hidden:
            return HIDDEN
        return "" if self.is_current else STALE

    @property
    def judged(self) -> int:
        """How many queries the dataset has judged now."""
        return (self.statistics or {}).get("judged_queries", 0)


def system_choices() -> dict[str, SystemChoice]:
    """Every system with a public result, by slug, in order of their names. One query."""
    public = EntryQuerySet(Entry).public().values("system_id")
    rows = (
        System.objects.filter(pk__in=public)
        .order_by("name", "pk")
        .values_list("slug", "name", anonymity.team_name(), "source__authors", "source__year")
    )
    return {
        slug: SystemChoice(slug, name, team or short_citation(authors, year))
        for slug, name, team, authors, year in rows
    }


#: Systems that a page suggests for an unknown or ambiguous name.
MOST_SUGGESTED = 8


def resolve_systems(names: Sequence[str], choices: Mapping[str, SystemChoice]) -> tuple[str, ...]:
    """Return the slugs of systems that are given by slug, name, or label.

    Raises:
        UnknownChoice: With the slugs of the systems that have the name, or else of those with similar ones.
    """
    slugs = []
    for name in names:
        matches = _matches(name, choices)
        if len(matches) != 1:
            raise UnknownChoice("system", name, (matches or _similar(name, choices))[:MOST_SUGGESTED])
        slugs += matches
    return tuple(dict.fromkeys(slugs))


def _matches(name: str, choices: Mapping[str, SystemChoice]) -> list[str]:
    """Return the systems with this slug, or else this exact name or label, or else the same ignoring case."""
    if name in choices:
        return [name]
    key = name.casefold()
    exact = [slug for slug, choice in choices.items() if name in (choice.name, choice.label)]
    if len(exact) == 1:
        return exact
    if key in choices:
        return [key]
    return exact or [
        slug for slug, choice in choices.items() if key in (choice.name.casefold(), choice.label.casefold())
    ]


def _similar(name: str, choices: Mapping[str, SystemChoice]) -> list[str]:
    """Return the systems whose name or slug contains the text, and then those with similar spellings."""
    key = name.casefold()
    spellings: dict[str, list[str]] = {}
    for slug, choice in choices.items():
        for text in {slug, choice.name.casefold()}:
            spellings.setdefault(text, []).append(slug)
    containing = [text for text in spellings if key in text]
    close = get_close_matches(key, spellings, n=MOST_SUGGESTED, cutoff=0.5)
    return list(dict.fromkeys(slug for text in (*containing, *close) for slug in spellings[text]))


def distinct_choices(slugs: Sequence[str], choices: Mapping[str, SystemChoice]) -> dict[str, SystemChoice]:
    """The chosen systems; where two have one name, it says whose each is."""
    names = [choices[slug].name for slug in slugs]
    return {
        slug: choice._replace(name=f"{choice.name} ({choice.by or 'made here'})")
        if names.count(choice.name) > 1
        else choice
        for slug, choice in ((slug, choices[slug]) for slug in slugs)
    }


def entries_of_systems(slugs: Sequence[str]) -> list[ComparedEntry]:
    """The public entries of systems on datasets with a page, by the names of the datasets. One query."""
    rows = (
        EntryQuerySet(Entry)
        .public()
        .filter(system__slug__in=slugs)
        .exclude(dataset__state=Dataset.State.PREPARING)
        .order_by("dataset__name", "published_at", "pk")
        .values_list(
            "pk",
            "system__slug",
            "dataset__slug",
            "dataset__name",
            "dataset__hidden",
            "dataset__primary_measure",
            "dataset__current_version_id",
            "dataset__current_qrels_id",
            "dataset__current_qrels__statistics",
            "comparison_group",
            "provenance",
            "configuration",
            "seed_count",
            Cast("published_at", TextField()),
            "scores",
            "deviations",
            "dataset_id",
        )
    )
    return [ComparedEntry(*row) for row in rows]


#: As many systems as fit side by side.
MOST_SYSTEMS = 6


#: The query parameters of a comparison.
COMPARE_PARAMETERS = ("system", "dataset", "measure", "with", "benchmark")


@dataclass(frozen=True, slots=True)
class CompareState:
    """`systems`: slugs, the first of which the others are compared with. Empty fields mean the default.

    `dataset` and `other` choose the pair that is shown by query: the first system and `other`. `benchmark` says over
    which datasets means are.
    """

    systems: tuple[str, ...] = ()
    dataset: str = ""
    measure: str = ""
    other: str = ""
    benchmark: str = ""

    @classmethod
    def read(cls, parameters: Parameters) -> CompareState:
        """The comparison that a query string asks for. Raises UnknownChoice for more systems than fit."""
        systems = tuple(
            dict.fromkeys(value.strip() for value in parameters.getlist("system") if value.strip())
        )
        if len(systems) > MOST_SYSTEMS:
            raise UnknownChoice("number of systems", str(len(systems)), expected=f"2 to {MOST_SYSTEMS}")
        dataset, measure, other, benchmark = (
            last_value(parameters, name) for name in ("dataset", "measure", "with", "benchmark")
        )
        return cls(systems, dataset, canonical_name(measure), other, benchmark)

    def query_string(self) -> str:
        """`?system=…&system=…`, or nothing where nothing was chosen."""
        return query_of(
            *(("system", slug) for slug in self.systems),
            ("dataset", self.dataset),
            ("measure", self.measure),
            ("with", self.other),
            ("benchmark", self.benchmark),
        )

    def but(self, **changes: Any) -> CompareState:
        """The same comparison with other values."""
        return replace(self, **changes)

    def without(self, slug: str) -> CompareState:
        """The comparison without one of its systems."""
        other = "" if self.other == slug else self.other
        return self.but(systems=tuple(each for each in self.systems if each != slug), other=other)

    def anchored(self, slug: str) -> CompareState:
        """The same systems, all compared with this one."""
        others = [each for each in self.systems if each != slug]
        return self.but(systems=(slug, *others), other="")
