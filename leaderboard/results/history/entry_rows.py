"""Reading what boards show, as plain tuples: JSON comes as text and dates as text, so that nothing is converted twice.

Entries come in order of publication, which is the tie-break of every board.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from django.db import connection
from django.db.models import Exists, IntegerField, OuterRef, QuerySet, TextField
from django.db.models.functions import Cast

from leaderboard.core import anonymity
from leaderboard.models import Challenge, Entry, System
from leaderboard.models.results import EntryQuerySet

Visibility = Entry.Visibility


class EntryRow(NamedTuple):
    """One entry with all a dataset board shows of it. `published` is ISO text, its first ten characters the day."""

    system: str
    slug: str
    architecture: str
    team: str | None
    team_slug: str | None
    source_authors: str | None
    source_year: int | None
    source_key: str | None
    provenance: str
    configuration: str
    scores_text: str
    figures_text: str
    comparison_group: str
    is_baseline: int
    training: str
    visibility: str
    withdrawal_reason: str
    missing_queries: int | None
    submission: str
    locator: str
    published: str
    pk: int
    seed_count: int
    deviations_text: str
    moderation_reason: str = ""
    private_scores_text: str = "{}"
    late: int = 0
    pooled: int = 0
    run_type: str = ""
    challenged: int = 0
    licence: str = ""
    commercial_use: int | None = None
    open_weights: int | None = None
    closed_api: int = 0
    year: int | None = None
    parameter_count: int | None = None
    maximum_length: int | None = None

    @property
    def scores(self) -> dict[str, float]:
        """Measure → published value."""
        return orjson.loads(self.scores_text)

    @property
    def deviations(self) -> dict[str, float]:
        """Measure → sample standard deviation over the seeds; empty for a single run."""
        return orjson.loads(self.deviations_text) if self.seed_count else {}

    @property
    def private_scores(self) -> dict[str, float]:
        """Measure → published value over a competition's private part; empty until it is revealed."""
        return {} if self.private_scores_text in ("{}", "null") else orjson.loads(self.private_scores_text)

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The figures beside the scores."""
        return [] if self.figures_text == "[]" else orjson.loads(self.figures_text)

    @property
    def source(self) -> str:
        """The publication in a few words, empty where there is none."""
        return short_citation(self.source_authors, self.source_year)


class SystemRow(NamedTuple):
    """One system as a benchmark board shows it."""

    name: str
    slug: str
    architecture: str
    team: str | None
    team_slug: str | None
    source_authors: str | None
    source_year: int | None
    source_key: str | None
    challenged: int = 0
    licence: str = ""
    commercial_use: bool | None = None
    open_weights: bool | None = None
    closed_api: bool = False
    year: int | None = None
    parameter_count: int | None = None
    maximum_length: int | None = None

    @property
    def source(self) -> str:
        """The publication in a few words, empty where there is none."""
        return short_citation(self.source_authors, self.source_year)


def short_citation(authors: str | None, year: int | None) -> str:
    """`Thakur et al. 2021` from `Nandan Thakur and Nils Reimers and …`."""
    if not authors:
        return ""
    names = [name.strip().split(" ")[-1] for name in authors.split(" and ")]
    if len(names) == 2 and names[1] != "others":
        return f"{names[0]} and {names[1]} {year}"
    return f"{names[0]}{' et al.' if len(names) > 1 else ''} {year}"


#: What else is told of a system, in the order of both kinds of row.
DESCRIBING = (
    "licence",
    "commercial_use",
    "open_weights",
    "closed_api",
    "year",
    "parameter_count",
    "maximum_length",
)


def _challenged(system: str) -> Cast:
    """Whether a row's system is challenged now; `system` is the column that holds its key."""
    of_system = Challenge.objects.filter(system=OuterRef(system), state=Challenge.State.OPEN)
    return Cast(Exists(of_system), IntegerField())


def _entries() -> EntryQuerySet:
    return EntryQuerySet(Entry).order_by("published_at", "pk")


def _values(entries: QuerySet[Entry]) -> tuple[str, tuple[Any, ...]]:
    """The SQL that reads entries as the values of an `EntryRow`, and its parameters."""
    rows = entries.values_list(
        "system__name",
        "system__slug",
        "system__architecture",
        anonymity.team_name("system__"),
        anonymity.team_slug("system__"),
        "source__authors",
        "source__year",
        "source__key",
        "provenance",
        "configuration",
        Cast("scores", TextField()),
        Cast("figures", TextField()),
        "comparison_group",
        Cast("is_baseline", IntegerField()),
        "training",
        "visibility",
        "withdrawal_reason",
        "missing_queries",
        "submission_reference",
        "locator",
        Cast("published_at", TextField()),
        "pk",
        "seed_count",
        Cast("deviations", TextField()),
        "moderation_reason",
        Cast("private_scores", TextField()),
        Cast("late", IntegerField()),
        Cast("pooled", IntegerField()),
        "run_type",
        _challenged("system"),
        *(f"system__{name}" for name in DESCRIBING),
    )
    return rows.query.sql_with_params()


#: Stands for the dataset's id in the SQL of `entries_of`.
_DATASET = -1


@lru_cache(maxsize=1)
def _entries_query() -> tuple[str, tuple[Any, ...]]:
    """The SQL of `entries_of` and its parameters, `_DATASET` in place of the dataset's id.

    Written by the ORM once, since that takes it as long as the database takes to answer.
    """
    return _values(_entries().filter(dataset_id=_DATASET).filter(visibility__in=Entry.SEEN))


def entries_for(dataset_id: int, teams: Collection[int]) -> list[EntryRow]:
    """As `entries_of`, with the private ones of the reader's own teams. Two queries at most."""
    entries = entries_of(dataset_id)
    if not teams:
        return entries
    own = _entries().filter(dataset_id=dataset_id, visibility=Visibility.PRIVATE, system__team__in=teams)
    with connection.cursor() as cursor:
        cursor.execute(*_values(own))
        entries += map(EntryRow._make, cursor.fetchall())
    return sorted(entries, key=lambda entry: (entry.published, entry.pk))


def entries_of(dataset_id: int) -> list[EntryRow]:
    """The public, withdrawn and quarantined entries of a dataset, by date of publication. One query."""
    sql, parameters = _entries_query()
    with connection.cursor() as cursor:
        cursor.execute(sql, [dataset_id if each == _DATASET else each for each in parameters])
        return list(map(EntryRow._make, cursor.fetchall()))


def systems_by_id(ids: Iterable[int]) -> dict[int, SystemRow]:
    """Systems by id. One query."""
    rows = System.objects.filter(pk__in=set(ids)).values_list(
        "pk",
        "name",
        "slug",
        "architecture",
        anonymity.team_name(),
        anonymity.team_slug(),
        "source__authors",
        "source__year",
        "source__key",
        _challenged("pk"),
        *DESCRIBING,
    )
    return {row[0]: SystemRow._make(row[1:]) for row in rows}


_REVISION = "SELECT COUNT(*), SUM(board_revision), MAX(updated_at) FROM leaderboard_dataset"
_OF_BENCHMARK = (
    " WHERE id IN (SELECT member.dataset_id FROM leaderboard_benchmarkmember member "
    "JOIN leaderboard_benchmark benchmark ON benchmark.id = member.benchmark_id WHERE benchmark.slug = %s)"
)
#: Those on which it, what it is a variant of, or a variant of it has a result. What its runs were made of was found for
#: the same datasets.
_OF_SYSTEM = (
    " WHERE id IN (SELECT dataset_id FROM leaderboard_entry WHERE system_id IN ("
    "SELECT id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT variant_of_id FROM leaderboard_system WHERE slug = %s "
    "UNION SELECT kin.id FROM leaderboard_system kin "
    "JOIN leaderboard_system itself ON itself.id = kin.variant_of_id WHERE itself.slug = %s))"
)


def dataset_revision(slug: str) -> str:
    """What changes whenever the dataset's page does; empty where there is no such page. One query."""
    return _revision(_REVISION + " WHERE slug = %s", slug)


def benchmark_revision(slug: str) -> str:
    """What changes whenever one of the benchmark's datasets does; empty where there is none. One query."""
    return _revision(_REVISION + _OF_BENCHMARK, slug)


def system_revision(slug: str) -> str:
    """What changes whenever a board does that the system or its kin stands on. One query."""
    return _revision(_REVISION + _OF_SYSTEM, slug, slug, slug)


def site_revision() -> str:
    """What changes whenever any board does. One query."""
    return _revision(_REVISION)


def _revision(query: str, *parameters: str) -> str:
    """Counters only grow, so that their sum stands for all of them; the times tell a restored database from its future.

    In SQL, because this is asked on every request: a query set would take longer to build than a kept page to serve.
    """
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return ":".join(map(str, cursor.fetchone()))
