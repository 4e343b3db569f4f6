"""The rows of boards at a revision: the one reader of what `revisions` stores, for present boards and past ones.

A present board is the newest revision. Rows never change once they are stored, so a process keeps for a while what it
read, decoded: another view of a board reads no row again, and a publication makes one dataset's be read, not all.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, reduce
from operator import attrgetter, or_
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from django.db.models import DateTimeField, Q, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from leaderboard.core.cache.memory import LONG_LIFETIME, TTLCache
from leaderboard.models import Dataset, Entry, EntryVersion
from leaderboard.results.board_rows.entry_rows import REPORTED, SCORED, EntryRow, entry_row
from leaderboard.results.board_rows.measurements import MeasuredEntry, measured_rows
from leaderboard.results.board_rows.revisions import PARTS
from leaderboard.results.reported_facts import COSTS


class Revision(NamedTuple):
    """A revision of a dataset's board: its number, since when, and of a past one the dataset's columns of then.

    `rounded` is whether the judgements are hidden now: then the board says what it would of hidden ones, whatever it
    said at the time.
    """

    number: int
    at: datetime.datetime
    facts: Mapping[str, Any] = MappingProxyType({})
    rounded: bool = False

    @property
    def key(self) -> str:
        """What names it among all of the dataset's, and tells rounded values from others.

        The time tells a restored database from its future.
        """
        return f"{self.number}:{self.at.timestamp()}{':rounded' * self.rounded}"

    @property
    def parts(self) -> Sequence[int]:
        """Which datasets it was the mean of."""
        found: Sequence[int] = self.facts.get(PARTS, ())
        return found


#: The revision of a board that was not there yet.
NEVER = Revision(0, datetime.datetime.fromtimestamp(0, datetime.UTC))


#: When a dataset's board changed last, as a column of queries that read datasets. In SQL, because every page of a board
#: asks for it: a query set within another takes longer to build than all the rest of the query.
CHANGED_AT = RawSQL(
    '(SELECT "at" FROM leaderboard_boardchange WHERE dataset_id = leaderboard_dataset.id '
    "ORDER BY revision DESC LIMIT 1)",
    (),
    DateTimeField(),
)
#: The last change of the board of the dataset's twin, on which its contamination gaps depend.
TWIN_CHANGED_AT = RawSQL(
    '(SELECT MAX("at") FROM leaderboard_boardchange JOIN leaderboard_dataset half '
    "ON half.id = leaderboard_boardchange.dataset_id WHERE half.state <> 'preparing' AND "
    "(half.twin_of_id = leaderboard_dataset.id OR half.id = leaderboard_dataset.twin_of_id))",
    (),
    DateTimeField(),
)
#: The same of a benchmark itself.
BENCHMARK_CHANGED_AT = RawSQL(
    '(SELECT MAX("at") FROM leaderboard_benchmarkversion WHERE benchmark_id = leaderboard_benchmark.id)',
    (),
    DateTimeField(),
)


def newest(number: int, at: datetime.datetime | None) -> Revision:
    """The newest revision of a board, from its dataset's `board_revision` and `changed_at`."""
    return Revision(number, at or NEVER.at)


def present_rows(datasets: Collection[int]) -> dict[int, BoardRows]:
    """The rows of the datasets' boards now. Two queries, one where all are known here."""
    rows = Dataset.objects.filter(pk__in=datasets).values_list("pk", "board_revision", CHANGED_AT)
    return rows_at({pk: newest(*revision) for pk, *revision in rows})


#: Whose line an entry is part of on the board of a benchmark: system, configuration, and `REPORTED` or `SCORED`.
LineKey = tuple[int, str, str]
Figures = Sequence[Mapping[str, Any]]


class BoardRows:
    """What a dataset's board is made of, by date of publication, which is the tie-break of every board.

    `entries` are the public, the withdrawn and the quarantined ones, or the private ones of a reader's teams. What
    boards of benchmarks read of them is made when it is asked for, and once: every view of a board is made of the same.
    """

    def __init__(self, dataset_id: int, entries: list[EntryRow], text_bytes: int = 0) -> None:
        """`text_bytes`: what the rows have as JSON."""
        self.dataset_id, self.entries, self.text_bytes = dataset_id, entries, text_bytes

    @cached_property
    def measured(self) -> list[MeasuredEntry]:
        """What had been measured of them."""
        return measured_rows(self.dataset_id, self.entries)

    @cached_property
    def results(self) -> list[tuple[LineKey, EntryRow]]:
        """Those that have values for the reader, each with the key of its line."""
        return [
            ((row.system_id, row.configuration, REPORTED if row.provenance == REPORTED else SCORED), row)
            for row in self.entries
            if row.visibility in _WITH_VALUES
        ]

    @cached_property
    def kinds(self) -> set[tuple[int | None, str]]:
        """The pairs of source, None where a result was scored here, and comparison group."""
        return {(row.reported_by, row.comparison_group) for _, row in self.results}

    @cached_property
    def _measures(self) -> Mapping[int | None, set[str]]:
        found: dict[int | None, set[str]] = {}
        for _, row in self.results:
            found.setdefault(row.reported_by, set()).update(row.scores)
        return found

    def measures_of(self, source: int | None) -> set[str]:
        """The measures that any result has; of reported ones only those of `source`, if given."""
        return {
            name for key, names in self._measures.items() if matches_source(key, source) for name in names
        }

    def costs_of(self, source: int | None) -> dict[tuple[int, str], Figures]:
        """What systems need, by system and configuration; of reported results only those of `source`, if given."""
        return {
            key[:2]: costs
            for key, row in self.results
            if row.figures
            and matches_source(row.reported_by, source)
            and (costs := [figure for figure in row.figures if figure["name"] in COSTS])
        }

    @property
    def bibtex(self) -> dict[str, str]:
        """What systems said to cite then, by slug; nothing of those that said nothing."""
        return {entry.slug: entry.bibtex for entry in self.entries if entry.bibtex}

    @cached_property
    def public(self) -> dict[int, str]:
        """Of the public entries, by id, the slugs of their systems."""
        return {entry.pk: entry.slug for entry in self.entries if entry.is_public}


_WITH_VALUES = (Entry.Visibility.PUBLIC.value, Entry.Visibility.PRIVATE.value)


def matches_source(found: int | None, source: int | None) -> bool:
    """Whether a board shows what has the source `found`: one of a paper's figures shows no other paper's."""
    return source is None or found is None or found == source


#: Memory of a process for boards: rows of 20 datasets with 1,000 systems each have 60 MiB.
BOARD_BYTES = 128 * 2**20
#: Stored rows, stored tests, and ranked boards. None is ever stale: each key names the revisions of its datasets.
board_cache: TTLCache[Any] = TTLCache(BOARD_BYTES)
#: After a publication, many visitors need the same rows at once: one thread reads them, and the others wait for it.
_reading = Lock()


def decoded_size(text_bytes: int) -> int:
    """Return the memory that stored rows or tests take, with everything that boards derive from them."""
    return 4 * text_bytes + 4096


def rows_at(revisions: Mapping[int, Revision]) -> dict[int, BoardRows]:
    """The rows of several boards, each at a revision, by dataset. One query, none where all are known here."""
    keys = {dataset: f"rows {dataset}:{revision.key}" for dataset, revision in revisions.items()}
    known = _known(keys)
    if len(known) < len(keys):
        with _reading:
            known = _known(keys)
            read = _read({dataset: revisions[dataset] for dataset in keys if dataset not in known})
            for dataset, rows in read.items():
                board_cache.put(keys[dataset], rows, decoded_size(rows.text_bytes), LONG_LIFETIME)
            known.update(read)
    return {dataset: known[dataset] for dataset in keys}


def _known(keys: Mapping[int, str]) -> dict[int, BoardRows]:
    found = {dataset: board_cache.get(key) for dataset, key in keys.items()}
    return {dataset: rows for dataset, rows in found.items() if rows is not None}


def _read(revisions: Mapping[int, Revision]) -> dict[int, BoardRows]:
    if not revisions:
        return {}
    found: dict[int, list[EntryRow]] = {dataset: [] for dataset in revisions}
    lengths = dict.fromkeys(revisions, 0)
    shown = (
        Q(dataset=dataset, from_revision__lte=revision.number)
        & (Q(until_revision=None) | Q(until_revision__gt=revision.number))
        for dataset, revision in revisions.items()
    )
    versions = EntryVersion.objects.filter(reduce(or_, shown))
    for dataset, text in versions.values_list("dataset_id", Cast("row", TextField())):
        row = entry_row(orjson.loads(text))
        found[dataset].append(row.rounded() if revisions[dataset].rounded else row)
        lengths[dataset] += len(text)
    for rows in found.values():
        rows.sort(key=attrgetter("published", "pk"))
    return {dataset: BoardRows(dataset, rows, lengths[dataset]) for dataset, rows in found.items()}
