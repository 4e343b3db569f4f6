"""Board rows at a revision; the only reader of the rows that `revisions` stores.

The current board is the newest revision. Stored rows never change, so each process caches the decoded rows: other
views of a board need no queries, and a publication causes only one dataset to be read again.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from django.db.models import BooleanField, DateTimeField, Q, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from leaderboard.core.cache.memory import LONG_LIFETIME, TTLCache
from leaderboard.models import Dataset, Entry, EntryVersion
from leaderboard.results.board_rows.entry_rows import REPORTED, SCORED, EntryRow, entry_row, publication_order
from leaderboard.results.board_rows.measurements import MeasuredEntry, measured_rows
from leaderboard.results.board_rows.revisions import PARTS
from leaderboard.results.reported_facts import COSTS


class Revision(NamedTuple):
    """A revision of a dataset's board: its number, its time, and the dataset's columns (past revisions only).

    `is_rounded` is set if the judgments are hidden now: the board then shows only what a hidden board would.
    """

    number: int
    at: datetime.datetime
    facts: Mapping[str, Any] = MappingProxyType({})
    is_rounded: bool = False

    @property
    def key(self) -> str:
        """Key that identifies the revision within a dataset and distinguishes rounded values.

        The time distinguishes a restored database from its former state.
        """
        return f"{self.number}:{self.at.timestamp()}{':rounded' * self.is_rounded}"

    @property
    def parts(self) -> Sequence[int]:
        """Ids of the datasets whose mean the board showed."""
        part_ids: Sequence[int] = self.facts.get(PARTS, ())
        return part_ids


#: Revision of a board without any change.
NO_REVISION = Revision(0, datetime.datetime.fromtimestamp(0, datetime.UTC))


#: Time of a dataset's last board change, for queries of datasets. Raw SQL because every board page needs it: building a
#: nested query set takes longer than the rest of the query.
CHANGED_AT = RawSQL(
    '(SELECT "at" FROM leaderboard_boardchange WHERE dataset_id = leaderboard_dataset.id '
    "ORDER BY revision DESC LIMIT 1)",
    (),
    DateTimeField(),
)
#: Time of the last board change of the dataset's twin, on which contamination gaps depend.
TWIN_CHANGED_AT = RawSQL(
    '(SELECT MAX("at") FROM leaderboard_boardchange JOIN leaderboard_dataset half '
    "ON half.id = leaderboard_boardchange.dataset_id WHERE half.state <> 'preparing' AND "
    "(half.twin_of_id = leaderboard_dataset.id OR half.id = leaderboard_dataset.twin_of_id))",
    (),
    DateTimeField(),
)
#: Time of the last change of a benchmark itself.
BENCHMARK_CHANGED_AT = RawSQL(
    '(SELECT MAX("at") FROM leaderboard_benchmarkversion WHERE benchmark_id = leaderboard_benchmark.id)',
    (),
    DateTimeField(),
)
#: Whether a dataset or one of its benchmarks, and whether a benchmark itself, has unrevealed rounds.
DATASET_HAS_ROUNDS = RawSQL(
    "EXISTS(SELECT 1 FROM leaderboard_round WHERE revealed_at IS NULL AND (dataset_id = leaderboard_dataset.id OR "
    "benchmark_id IN (SELECT member.benchmark_id FROM leaderboard_benchmarkmember member "
    "WHERE member.dataset_id = leaderboard_dataset.id)))",
    (),
    BooleanField(),
)
BENCHMARK_HAS_ROUNDS = RawSQL(
    "EXISTS(SELECT 1 FROM leaderboard_round WHERE revealed_at IS NULL AND benchmark_id = leaderboard_benchmark.id)",
    (),
    BooleanField(),
)


def newest_revision(number: int, changed_at: datetime.datetime | None) -> Revision:
    """Return the newest revision of a board from its dataset's `board_revision` and `changed_at`."""
    return Revision(number, changed_at or NO_REVISION.at)


def present_rows(datasets: Collection[int]) -> dict[int, BoardRows]:
    """Return the current rows of the datasets' boards, in two queries, or one if all are cached."""
    rows = Dataset.objects.filter(pk__in=datasets).values_list("pk", "board_revision", CHANGED_AT)
    return rows_at({pk: newest_revision(*revision) for pk, *revision in rows})


#: Line of a benchmark board: system id, configuration, and `REPORTED` or `SCORED`.
LineKey = tuple[int, str, str]
Figures = Sequence[Mapping[str, Any]]


class BoardRows:
    """Entries of a dataset's board by date of publication, which is the tie-break of every board.

    `entries` are the public, withdrawn, and quarantined entries, or the private ones of a reader's teams. Derived
    values are computed lazily and once, because all views of a board share them.
    """

    def __init__(self, dataset_id: int, entries: list[EntryRow], text_bytes: int = 0) -> None:
        self.dataset_id, self.entries, self.text_bytes = dataset_id, entries, text_bytes

    @cached_property
    def measured(self) -> list[MeasuredEntry]:
        """Efficiency measurements of the entries."""
        return measured_rows(self.dataset_id, self.entries)

    @cached_property
    def results(self) -> list[tuple[LineKey, EntryRow]]:
        """Public and private entries, each with the key of its line on a benchmark board."""
        return [
            ((row.system_id, row.configuration, REPORTED if row.provenance == REPORTED else SCORED), row)
            for row in self.entries
            if row.visibility in _SCORED_VISIBILITIES
        ]

    @cached_property
    def _variants(self) -> set[tuple[int | None, str, tuple[str, ...]]]:
        """Distinct combinations of source (None for scored results), comparison group, and measures."""
        return {(row.reported_by, row.comparison_group, tuple(row.scores)) for _, row in self.results}

    @property
    def kinds(self) -> set[tuple[int | None, str]]:
        """Pairs of source (None for scored results) and comparison group."""
        return {variant[:2] for variant in self._variants}

    def get_measures(self, source: int | None) -> set[str]:
        """Return the measures of all results; if `source` is given, without those of other papers."""
        return {name for key, _, names in self._variants if matches_source(key, source) for name in names}

    def get_costs(self, source: int | None) -> dict[tuple[int, str], Figures]:
        """Return reported costs by system id and configuration; if `source` is given, without those of other papers."""
        return {
            key[:2]: costs
            for key, row in self.results
            if row.figures
            and matches_source(row.reported_by, source)
            and (costs := [figure for figure in row.figures if figure["name"] in COSTS])
        }

    @property
    def bibtex(self) -> dict[str, str]:
        """Citations at the time of the revision, by system slug."""
        return {entry.slug: entry.bibtex for entry in self.entries if entry.bibtex}

    @cached_property
    def public_slugs(self) -> dict[int, str]:
        """System slugs of the public entries, by entry id."""
        return {entry.pk: entry.slug for entry in self.entries if entry.is_public}


_SCORED_VISIBILITIES = (Entry.Visibility.PUBLIC.value, Entry.Visibility.PRIVATE.value)


def matches_source(row_source: int | None, source: int | None) -> bool:
    """Return whether a board shows a row: the board of one paper omits rows of other papers."""
    return source is None or row_source is None or row_source == source


#: Cache size per process; rows of 20 datasets with 1,000 systems each take 60 MiB.
BOARD_BYTES = 128 * 2**20
#: Cache of stored rows, stored tests, and ranked boards. Keys contain the revisions, so entries are never stale.
board_cache: TTLCache[Any] = TTLCache(BOARD_BYTES)
#: Lock for reading rows: after a publication, many visitors need the same rows, and only one thread should read them.
_reading = Lock()


def decoded_size(text_bytes: int) -> int:
    """Return the estimated memory of decoded rows or tests, including derived values, in bytes."""
    return 4 * text_bytes + 4096


def rows_at(revisions: Mapping[int, Revision]) -> dict[int, BoardRows]:
    """Return the rows of several boards at given revisions, by dataset, in one query, or none if all are cached."""
    keys = {dataset: f"rows {dataset}:{revision.key}" for dataset, revision in revisions.items()}
    cached_rows = _cached_rows(keys)
    if len(cached_rows) < len(keys):
        with _reading:
            cached_rows = _cached_rows(keys)
            read_rows = _read_rows({dataset: revisions[dataset] for dataset in keys if dataset not in cached_rows})
            for dataset, rows in read_rows.items():
                board_cache.put(keys[dataset], rows, decoded_size(rows.text_bytes), LONG_LIFETIME)
            cached_rows.update(read_rows)
    return {dataset: cached_rows[dataset] for dataset in keys}


def _cached_rows(keys: Mapping[int, str]) -> dict[int, BoardRows]:
    entries = {dataset: board_cache.get(key) for dataset, key in keys.items()}
    return {dataset: rows for dataset, rows in entries.items() if rows is not None}


def _read_rows(revisions: Mapping[int, Revision]) -> dict[int, BoardRows]:
    """Read the rows of boards at these revisions from the database, by dataset, in one query.

    Rows are rounded if their revision is.
    """
    if not revisions:
        return {}
    texts_by_dataset: dict[int, list[str]] = {dataset: [] for dataset in revisions}
    conditions = (
        Q(dataset=dataset, from_revision__lte=revision.number)
        & (Q(until_revision=None) | Q(until_revision__gt=revision.number))
        for dataset, revision in revisions.items()
    )
    versions = EntryVersion.objects.filter(reduce(or_, conditions))
    for dataset, text in versions.values_list("dataset_id", Cast("row", TextField())):
        texts_by_dataset[dataset].append(text)
    boards = {}
    for dataset, texts in texts_by_dataset.items():
        rows = sorted(map(entry_row, orjson.loads(f"[{','.join(texts)}]")), key=publication_order)
        rows = [row.with_rounded_scores() for row in rows] if revisions[dataset].is_rounded else rows
        boards[dataset] = BoardRows(dataset, rows, sum(map(len, texts)))
    return boards
