"""The entries that boards of benchmarks are made of, decoded once for each revision of their dataset.

A benchmark of 19 datasets and 500 systems is 9,500 entries, whose JSON takes longer to read than their board to make.
So a process remembers what it read: another view of a board needs no entry again, and a publication makes one dataset's
be read, not all. A key has the dataset's revision in it, as those of kept pages have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from sys import intern
from typing import Any, NamedTuple

import orjson
from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from leaderboard.core.cache.memory import Remembered
from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.history.measurements import Measured, measured_on
from leaderboard.results.kinds import REPORTED, SCORED
from leaderboard.results.reported_facts import COSTS

IN_DOMAIN = intern(Entry.Training.IN_DOMAIN.value)

#: When an entry was published, then its id: the order of every board.
Published = tuple[Any, int]

#: Whose line an entry is part of: system, configuration, and `REPORTED` or `SCORED`.
LineKey = tuple[int, str, str]

Figures = list[dict[str, Any]]


class SeedSet(NamedTuple):
    """An entry that is the mean of several runs."""

    line: LineKey
    number: int
    scores: Mapping[str, float]
    deviations: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DatasetEntries:
    """The public entries of one dataset, by date of publication: each list has one place for each entry.

    Lists, because there are thousands of entries, and an object of each would take longer to make than to use.
    `sources` are those of reported entries, None for scored ones. Of all entries together, `kinds` are their pairs of
    source and comparison group, `measures` by source those that any has, and `costs` the figures of what systems need,
    each with its source, system and configuration. `measured` is what was measured of any, oldest first, and
    `seed_sets` are the few that are the means of several runs.
    """

    lines: Sequence[LineKey]
    published: Sequence[Published]
    provenances: Sequence[str]
    sources: Sequence[int | None]
    groups: Sequence[str]
    baselines: Sequence[int]
    trainings: Sequence[str]
    scores: Sequence[Mapping[str, float]]
    kinds: set[tuple[int | None, str]]
    measures: Mapping[int | None, set[str]]
    costs: Sequence[tuple[int | None, int, str, Figures]]
    measured: Sequence[Measured] = ()
    seed_sets: Sequence[SeedSet] = ()

    def measures_of(self, source: int | None) -> set[str]:
        """The measures that any entry has; of reported ones only those of `source`, if given."""
        return {name for key, names in self.measures.items() if is_of(key, source) for name in names}

    def costs_of(self, source: int | None) -> dict[tuple[int, str], Figures]:
        """What systems need, by system and configuration; of reported entries only those of `source`, if given."""
        return {
            (system, configuration): figures
            for key, system, configuration, figures in self.costs
            if is_of(key, source)
        }


def is_of(found: int | None, source: int | None) -> bool:
    """Whether a board shows what has the source `found`: one of a paper's figures shows no other paper's."""
    return source is None or found is None or found == source


_remembered: Remembered[DatasetEntries] = Remembered(128)


def forget_entries() -> None:
    """Read everything again next time; for measuring."""
    _remembered.clear()


def entries_by_dataset(revisions: Mapping[int, str]) -> dict[int, DatasetEntries]:
    """What datasets have, by their ids, `revisions` being their present ones.

    Three queries at most, none where all is known.

    Revisions must have been read before this is asked, so that nothing is remembered under a newer one than its own.
    """
    keys = {dataset: f"{dataset}:{revision}" for dataset, revision in revisions.items()}
    known = {dataset: _remembered.get(key) for dataset, key in keys.items()}
    missing = [dataset for dataset, entries in known.items() if entries is None]
    read = _read(missing) if missing else {}
    for dataset, entries in read.items():
        _remembered.put(keys[dataset], entries)
    return {dataset: entries or read[dataset] for dataset, entries in known.items()}


def _read(datasets: Sequence[int]) -> dict[int, DatasetEntries]:
    rows = _rows(datasets)
    measured: dict[int, list[Measured]] = {}
    for one in measured_on(datasets):
        measured.setdefault(one.dataset_id, []).append(one)
    # A row begins with what it is ordered by. SQLite would sort the JSON along with it, and take longer.
    rows.sort()
    read = {
        dataset: entries_from(list(of_dataset), measured.get(dataset, ()))
        for dataset, of_dataset in groupby(rows, itemgetter(0))
    }
    return {dataset: read.get(dataset) or entries_from([], ()) for dataset in datasets}


def entries_from(rows: Sequence[tuple[Any, ...]], measured: Sequence[Measured]) -> DatasetEntries:
    columns = list(zip(*rows, strict=True)) or [()] * len(FIELDS)
    _, dates, ids, systems, configurations, provenances, sources, groups, baselines, trainings, *others = (
        columns
    )
    seed_counts, *texts = others
    reported = [provenance == REPORTED for provenance in provenances]
    of_sources = [
        source if is_reported else None for source, is_reported in zip(sources, reported, strict=True)
    ]
    kinds = [REPORTED if is_reported else SCORED for is_reported in reported]
    scores = list(map(orjson.loads, texts[0]))
    lines = list(zip(systems, map(intern, configurations), kinds, strict=True))
    return DatasetEntries(
        lines=lines,
        published=list(zip(dates, ids, strict=True)),
        provenances=list(map(intern, provenances)),
        sources=of_sources,
        groups=list(map(intern, groups)),
        baselines=baselines,
        trainings=list(map(intern, trainings)),
        scores=scores,
        kinds=set(zip(of_sources, groups, strict=True)),
        measures={
            source: set().union(
                *(found for found, of in zip(scores, of_sources, strict=True) if of == source)
            )
            for source in set(of_sources)
        },
        costs=[
            (source, system, configuration, costs)
            for source, system, configuration, text in zip(
                of_sources, systems, configurations, texts[1], strict=True
            )
            if text != "[]"
            and (costs := [figure for figure in orjson.loads(text) if figure["name"] in COSTS])
        ],
        measured=measured,
        seed_sets=[
            SeedSet(lines[place], count, scores[place], orjson.loads(texts[2][place]))
            for place, count in enumerate(seed_counts)
            if count
        ],
    )


def private_entries(datasets: Sequence[int], teams: Collection[int]) -> dict[int, DatasetEntries]:
    """The private entries of these teams, by dataset; never remembered. One query, none without teams."""
    if not teams:
        return {}
    own = EntryQuerySet(Entry).filter(
        dataset_id__in=datasets, visibility=Entry.Visibility.PRIVATE, system__team__in=teams
    )
    rows = sorted(_fetched(own))
    return {dataset: entries_from(list(of), ()) for dataset, of in groupby(rows, itemgetter(0))}


#: What `_rows` reads, what rows are ordered by first.
FIELDS = (
    "dataset_id",
    "published_at",
    "pk",
    "system_id",
    "configuration",
    "provenance",
    "source_id",
    "comparison_group",
    "is_baseline",
    "training",
    "seed_count",
    Cast("scores", TextField()),
    Cast("figures", TextField()),
    Cast("deviations", TextField()),
)


def _rows(datasets: Sequence[int]) -> list[tuple[Any, ...]]:
    """Entries as the database has them: values converted by nobody, in no order."""
    return _fetched(EntryQuerySet(Entry).public().filter(dataset_id__in=datasets))


def _fetched(entries: QuerySet[Entry]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(*entries.values_list(*FIELDS).query.sql_with_params())
        return list(cursor.fetchall())


#: Of a dataset that has none.
NO_ENTRIES = entries_from([], ())


#: The names of FIELDS, and which of them hold JSON text.
FIELD_NAMES = tuple(
    field if isinstance(field, str) else field.source_expressions[0].name  # type: ignore[attr-defined]
    for field in FIELDS
)
TEXTS = tuple(name for name, field in zip(FIELD_NAMES, FIELDS, strict=True) if not isinstance(field, str))


def rows_of(datasets: Sequence[int]) -> list[dict[str, Any]]:
    """Their public entries as `FIELDS` names them, in no order. One query."""
    return [dict(zip(FIELD_NAMES, row, strict=True)) for row in _rows(datasets)]
