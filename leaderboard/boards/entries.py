"""The entries that boards of benchmarks are made of, decoded once for each revision of their dataset.

A benchmark of 19 datasets and 500 systems is 9,500 entries, whose JSON takes longer to read than their board to make.
So a process remembers what it read: another view of a board needs no entry again, and a publication makes one dataset's
be read, not all. A key has the dataset's revision in it, as those of kept pages have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
from django.db import connection
from django.db.models import IntegerField, TextField
from django.db.models.functions import Cast

from leaderboard.boards.figures import COSTS
from leaderboard.boards.model import REPORTED
from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.remembered import Remembered

IN_DOMAIN = Entry.Training.IN_DOMAIN.value

#: When an entry was published, then its id: the order of every board.
Published = tuple[Any, int]

#: One entry: when it was published, system, configuration, provenance, source if reported, comparison group, whether it
#: is a baseline, whether it was trained on the dataset, and its scores. Plain, because there are many.
Cell = tuple[Published, int, str, str, int | None, str, int, bool, Mapping[str, float]]

Figures = list[dict[str, Any]]


@dataclass(slots=True)
class DatasetEntries:
    """The public entries of one dataset, by date of publication.

    `measures` are those that any entry has, by source, None for scored ones. `costs` are figures of what systems need,
    each with its source (None likewise), system and configuration.
    """

    cells: list[Cell] = field(default_factory=list)
    measures: dict[int | None, set[str]] = field(default_factory=dict)
    costs: list[tuple[int | None, int, str, Figures]] = field(default_factory=list)

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
    """What datasets have, by their ids, `revisions` being their present ones. One query, none where all is known.

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
    # A row begins with what it is ordered by. SQLite would sort the JSON along with it, and take twice as long.
    rows.sort()
    read = {dataset: DatasetEntries() for dataset in datasets}
    for dataset, of_dataset in groupby(rows, itemgetter(0)):
        _fill(read[dataset], of_dataset)
    return read


def _fill(entries: DatasetEntries, rows: Iterable[tuple[Any, ...]]) -> None:
    measures: dict[int | None, set[str]] = defaultdict(set)
    for (
        _,
        at,
        pk,
        system,
        configuration,
        provenance,
        source,
        group,
        baseline,
        training,
        text,
        figures,
    ) in rows:
        of_source = source if provenance == REPORTED else None
        scores = orjson.loads(text)
        measures[of_source].update(scores)
        entries.cells.append(
            (
                (at, pk),
                system,
                configuration,
                provenance,
                of_source,
                group,
                baseline,
                training == IN_DOMAIN,
                scores,
            )
        )
        if figures != "[]":
            costs = [figure for figure in orjson.loads(figures) if figure["name"] in COSTS]
            if costs:
                entries.costs.append((of_source, system, configuration, costs))
    entries.measures = dict(measures)


def _rows(datasets: Sequence[int]) -> list[tuple[Any, ...]]:
    rows = EntryQuerySet(Entry).public().filter(dataset_id__in=datasets)
    sql, parameters = rows.values_list(
        "dataset_id",
        "published_at",
        "pk",
        "system_id",
        "configuration",
        "provenance",
        "source_id",
        "comparison_group",
        Cast("is_baseline", IntegerField()),
        "training",
        Cast("scores", TextField()),
        Cast("figures", TextField()),
    ).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())
