"""Reading what boards show, as plain tuples: JSON comes as text and dates as text, so that nothing is converted twice.

Entries come in order of publication, which is the tie-break of every board.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from django.db import connection
from django.db.models import IntegerField, Q, TextField
from django.db.models.functions import Cast

from leaderboard.boards.figures import COSTS
from leaderboard.models import Entry, System
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
    missing_queries: int
    submission: str
    locator: str
    published: str

    @property
    def scores(self) -> dict[str, float]:
        """Measure → published value."""
        return orjson.loads(self.scores_text)

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

    @property
    def source(self) -> str:
        """The publication in a few words, empty where there is none."""
        return short_citation(self.source_authors, self.source_year)


#: One entry as a benchmark board reads it: dataset, system, configuration, provenance, comparison group, whether it
#: is a baseline, what it was trained on, and its scores as JSON. Plain, because there are many.
Cell = tuple[int, int, str, str, str, int, str, str]


def short_citation(authors: str | None, year: int | None) -> str:
    """`Thakur et al. 2021` from `Nandan Thakur and Nils Reimers and …`."""
    if not authors:
        return ""
    names = [name.strip().split(" ")[-1] for name in authors.split(" and ")]
    if len(names) == 2 and names[1] != "others":
        return f"{names[0]} and {names[1]} {year}"
    return f"{names[0]}{' et al.' if len(names) > 1 else ''} {year}"


def _entries() -> EntryQuerySet:
    return EntryQuerySet(Entry).order_by("published_at", "pk")


@lru_cache(maxsize=1)
def _entries_query() -> tuple[str, tuple[Any, ...]]:
    """The SQL of `entries_of` and its parameters, the dataset's id first.

    Written by the ORM once, since that takes it as long as the database takes to answer.
    """
    rows = (
        _entries()
        .filter(dataset_id=0)
        .filter(visibility__in=[Visibility.PUBLIC, Visibility.WITHDRAWN])
        .values_list(
            "system__name",
            "system__slug",
            "system__architecture",
            "system__team__name",
            "system__team__slug",
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
        )
    )
    return rows.query.sql_with_params()


def entries_of(dataset_id: int) -> list[EntryRow]:
    """The public and the withdrawn entries of a dataset, by date of publication. One query."""
    sql, (_, *others) = _entries_query()
    with connection.cursor() as cursor:
        cursor.execute(sql, [dataset_id, *others])
        return list(map(EntryRow._make, cursor.fetchall()))


def cells_of(dataset_ids: Iterable[int], source_id: int | None) -> list[Cell]:
    """The public entries of some datasets, by date; reported ones only of `source_id`, if given. One query."""
    rows = _entries().public().filter(dataset_id__in=list(dataset_ids))
    if source_id is not None:
        rows = rows.filter(~Q(provenance=Entry.Provenance.REPORTED) | Q(source_id=source_id))
    sql, parameters = rows.values_list(
        "dataset_id",
        "system_id",
        "configuration",
        "provenance",
        "comparison_group",
        Cast("is_baseline", IntegerField()),
        "training",
        Cast("scores", TextField()),
    ).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def systems_by_id(ids: Iterable[int]) -> dict[int, SystemRow]:
    """Systems by id. One query."""
    rows = System.objects.filter(pk__in=set(ids)).values_list(
        "pk",
        "name",
        "slug",
        "architecture",
        "team__name",
        "team__slug",
        "source__authors",
        "source__year",
        "source__key",
    )
    return {row[0]: SystemRow._make(row[1:]) for row in rows}


def figures_on(
    dataset_ids: Sequence[int], source_id: int | None
) -> tuple[int | None, dict[tuple[int, str], list[dict[str, Any]]]]:
    """The efficiency figures of the first dataset that has any: its id, and figures by system and configuration.

    A board takes them from one named dataset: an average over corpora of different sizes would mean nothing.
    One query.
    """
    rows = _entries().public().filter(dataset_id__in=list(dataset_ids)).exclude(figures=[])
    if source_id is not None:
        rows = rows.filter(~Q(provenance=Entry.Provenance.REPORTED) | Q(source_id=source_id))
    found: dict[int, dict[tuple[int, str], list[dict[str, Any]]]] = {}
    columns = ("dataset_id", "system_id", "configuration", Cast("figures", TextField()))
    for dataset, system, configuration, text in rows.values_list(*columns):
        figures = [figure for figure in orjson.loads(text) if figure["name"] in COSTS]
        if figures:
            found.setdefault(dataset, {})[system, configuration] = figures
    for dataset in dataset_ids:
        if dataset in found:
            return dataset, found[dataset]
    return None, {}


_REVISION = "SELECT COUNT(*), SUM(board_revision), MAX(updated_at) FROM leaderboard_dataset"
_OF_BENCHMARK = (
    " WHERE id IN (SELECT member.dataset_id FROM leaderboard_benchmarkmember member "
    "JOIN leaderboard_benchmark benchmark ON benchmark.id = member.benchmark_id WHERE benchmark.slug = %s)"
)


def dataset_revision(slug: str) -> str:
    """What changes whenever the dataset's page does; empty where there is no such page. One query."""
    return _revision(_REVISION + " WHERE slug = %s", slug)


def benchmark_revision(slug: str) -> str:
    """What changes whenever one of the benchmark's datasets does; empty where there is none. One query."""
    return _revision(_REVISION + _OF_BENCHMARK, slug)


def site_revision() -> str:
    """What changes whenever any board does. One query."""
    return _revision(_REVISION)


def _revision(query: str, *parameters: str) -> str:
    """Counters only grow, so that their sum stands for all of them.

    In SQL, because this is asked on every request: a query set would take longer to build than a kept page to serve.
    """
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return ":".join(map(str, cursor.fetchone()))
