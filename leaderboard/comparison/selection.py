"""Selection of what to compare: query parameters, available systems, and the entries of the chosen systems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast

from leaderboard.boards.state import Parameters, build_query, last_value
from leaderboard.core import anonymity
from leaderboard.core.http.choices import UnknownChoice, similar
from leaderboard.core.measures import canonical_name
from leaderboard.models import Dataset, Entry, EntryQuerySet, System, short_citation
from leaderboard.results.board_rows.entry_rows import REPORTED, STALE

#: Reason for missing tests on a dataset with hidden judgments.
HIDDEN = "hidden"


class SystemChoice(NamedTuple):
    """A system with a public result; `by` is its team or publication."""

    slug: str
    name: str
    by: str

    @property
    def short_name(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def label(self) -> str:
        return f"{self.name} ({self.by})" if self.by else self.name


class ComparedEntry(NamedTuple):
    """A public entry, with its dataset's current version and judgments."""

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
    training: str = ""
    run_type: str = ""

    @property
    def is_current(self) -> bool:
        """Whether the entry was scored on the dataset's current version and judgments."""
        return self.group.startswith(f"scored:{self.version}:{self.qrels}:")

    @property
    def untested_reason(self) -> str:
        """Reason why the dataset has no tests for this entry, empty if it has."""
        if self.provenance == REPORTED:
            return REPORTED
        if self.hidden:
            return HIDDEN
        return "" if self.is_current else STALE

    @property
    def judged_queries(self) -> int:
        return (self.statistics or {}).get("judged_queries", 0)


def system_choices() -> dict[str, SystemChoice]:
    """Return every system with a public result by slug, ordered by name, in one database query."""
    public_systems = EntryQuerySet(Entry).public().values("system_id")
    rows = (
        System.objects.filter(pk__in=public_systems)
        .order_by("name", "pk")
        .values_list("slug", "name", anonymity.team_name(), "source__authors", "source__year")
    )
    return {
        slug: SystemChoice(slug, name, team or short_citation(authors, year))
        for slug, name, team, authors, year in rows
    }


#: Maximum number of systems suggested for an unknown or ambiguous name.
MAX_SUGGESTED = 8


def resolve_systems(names: Sequence[str], choices: Mapping[str, SystemChoice]) -> tuple[str, ...]:
    """Return the slugs of systems given by slug, name, or label, without repetitions.

    Raises:
        UnknownChoice: If a name matches no system or several. Suggests the matching systems, or else similar ones.
    """
    slugs = []
    for name in names:
        matches = _matching_systems(name, choices)
        if len(matches) != 1:
            raise UnknownChoice("system", name, (matches or _similar_systems(name, choices))[:MAX_SUGGESTED])
        slugs += matches
    return tuple(dict.fromkeys(slugs))


def _matching_systems(name: str, choices: Mapping[str, SystemChoice]) -> list[str]:
    """Return the slugs of the systems with this slug, or else this exact name or label, or else a similar one.

    An exact match is used if it is unique; otherwise a slug that is equal ignoring case has precedence. Similar names
    and slugs are equal ignoring case, or else ignoring case and punctuation.
    """
    if name in choices:
        return [name]
    matches = [slug for slug, choice in choices.items() if name in (choice.name, choice.label)]
    if len(matches) != 1 and name.casefold() in choices:
        return [name.casefold()]
    for normalize in (str.casefold, _letters_and_digits):
        key = normalize(name)
        matches = matches or [
            slug for slug, choice in choices.items() if key and key in map(normalize, (slug, choice.name, choice.label))
        ]
    return matches


def _letters_and_digits(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _similar_systems(name: str, choices: Mapping[str, SystemChoice]) -> list[str]:
    """Return slugs of systems whose slug, name, team, or publication contains the text, then of similar spellings."""
    key = name.casefold()
    spellings: dict[str, list[str]] = {}
    for slug, choice in choices.items():
        for text in {slug, choice.name.casefold(), choice.label.casefold()}:
            spellings.setdefault(text, []).append(slug)
    containing_texts = [text for text in spellings if key in text]
    texts = (*containing_texts, *similar(key, spellings, MAX_SUGGESTED, cutoff=0.5))
    return list(dict.fromkeys(slug for text in texts for slug in spellings[text]))


def distinct_choices(slugs: Sequence[str], choices: Mapping[str, SystemChoice]) -> dict[str, SystemChoice]:
    """Return the chosen systems, with the team or publication appended to names that occur twice."""
    names = [choices[slug].name for slug in slugs]
    return {
        slug: choice._replace(name=f"{choice.name} ({choice.by or 'Runboard'})")
        if names.count(choice.name) > 1
        else choice
        for slug, choice in ((slug, choices[slug]) for slug in slugs)
    }


#: Database columns of `ComparedEntry` fields, where the names differ.
_COLUMNS: Mapping[str, Any] = {
    "system": "system__slug", "dataset": "dataset__slug", "dataset_name": "dataset__name", "hidden": "dataset__hidden",
    "primary_measure": "dataset__primary_measure", "version": "dataset__current_version_id",
    "qrels": "dataset__current_qrels_id", "statistics": "dataset__current_qrels__statistics",
    "group": "comparison_group", "seeds": "seed_count", "published": Cast("published_at", TextField()),
}  # fmt: skip


def entries_of_systems(slugs: Sequence[str]) -> list[ComparedEntry]:
    """Return the public entries of systems on datasets with a page, ordered by dataset name, in one database query."""
    rows = (
        EntryQuerySet(Entry)
        .public()
        .filter(system__slug__in=slugs)
        .exclude(dataset__state=Dataset.State.PREPARING)
        .order_by("dataset__name", "published_at", "pk")
        .values_list(*(_COLUMNS.get(name, name) for name in ComparedEntry._fields))
    )
    return [ComparedEntry(*row) for row in rows]


#: Maximum number of systems side by side.
MAX_SYSTEMS = 6


#: Query parameters of a comparison.
COMPARE_PARAMETERS = ("system", "dataset", "measure", "with", "benchmark")


@dataclass(frozen=True, slots=True)
class CompareState:
    """The state of a comparison page; empty fields mean the default.

    `systems` are slugs; the others are compared with the first. `dataset` and `other` select the pair shown query by
    query: the first system and `other`. `benchmark` selects the datasets that means are computed over.
    """

    systems: tuple[str, ...] = ()
    dataset: str = ""
    measure: str = ""
    other: str = ""
    benchmark: str = ""

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> CompareState:
        """Return the state that a query string describes. Raises UnknownChoice for too many systems."""
        systems = tuple(dict.fromkeys(value.strip() for value in parameters.getlist("system") if value.strip()))
        if len(systems) > MAX_SYSTEMS:
            raise UnknownChoice("number of systems", str(len(systems)), expected=f"2 to {MAX_SYSTEMS}")
        dataset, measure, other_slug, benchmark = (
            last_value(parameters, name) for name in ("dataset", "measure", "with", "benchmark")
        )
        return cls(systems, dataset, canonical_name(measure), other_slug, benchmark)

    def query_string(self) -> str:
        """Return `?system=…&system=…`, or an empty string if nothing is selected."""
        return build_query(
            *(("system", slug) for slug in self.systems),
            ("dataset", self.dataset),
            ("measure", self.measure),
            ("with", self.other),
            ("benchmark", self.benchmark),
        )

    def with_values(self, **changes: Any) -> CompareState:
        """Return the state with some values replaced."""
        return replace(self, **changes)

    def with_baseline_first(self) -> CompareState:
        """Return the state with systems that are a board's baseline moved to the front."""
        baselines = EntryQuerySet(Entry).public().filter(is_baseline=True, system__slug__in=self.systems)
        slugs = set(baselines.values_list("system__slug", flat=True))
        return self.with_values(systems=tuple(sorted(self.systems, key=lambda slug: slug not in slugs)))

    def without_system(self, slug: str) -> CompareState:
        """Return the state without one of its systems; if this was the second of the pair, no pair is selected."""
        systems = tuple(system_slug for system_slug in self.systems if system_slug != slug)
        return self.with_values(systems=systems, other="" if self.other == slug else self.other)

    def with_first_system(self, slug: str) -> CompareState:
        """Return the state with this system first, and without a second system of the pair."""
        other_slugs = [system_slug for system_slug in self.systems if system_slug != slug]
        return self.with_values(systems=(slug, *other_slugs), other="")
