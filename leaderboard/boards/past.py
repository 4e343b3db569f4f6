"""Boards as they were: which revision a time means, and the rows of then.

A time is a second. Of two changes within one second the later one counts, for all of that second.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import orjson
from django.db.models import Max, Q, Subquery, TextField
from django.db.models.functions import Cast

from leaderboard.board_rows import entry_row, line_of, measured_rows, system_row
from leaderboard.boards.entries import DatasetEntries, entries_from
from leaderboard.boards.measured import Measured
from leaderboard.boards.reading import EntryRow, SystemRow
from leaderboard.models import BenchmarkVersion, BoardChange, Dataset, Entry, EntryVersion
from leaderboard.remembered import Remembered

SECOND = datetime.timedelta(seconds=1)


class Revision(NamedTuple):
    """A dataset's board as it was: its number, since when, and the dataset's columns of then."""

    number: int
    at: datetime.datetime
    facts: Mapping[str, Any]

    @property
    def key(self) -> str:
        """What names it among all of the dataset's."""
        return f"at:{self.number}:{self.at.timestamp()}"


class PastRows(NamedTuple):
    """What a dataset's board was made of: plain values as `leaderboard.board_rows` keeps them, oldest first."""

    dataset_id: int
    kept: list[dict[str, Any]]

    def entries(self) -> list[EntryRow]:
        """The public and the withdrawn ones, for the dataset's own board."""
        return [entry_row(row) for row in self.kept]

    def measured(self) -> list[Measured]:
        """What had been measured of them."""
        return measured_rows(self.dataset_id, self.kept)

    def lines(self) -> DatasetEntries:
        """The public ones, for boards of benchmarks."""
        public = [row for row in self.kept if row["line"]]
        return entries_from([line_of(self.dataset_id, row) for row in public], self.measured())

    def systems(self) -> dict[int, SystemRow]:
        """The systems by id, named as they were."""
        return {row["line"]["system_id"]: system_row(row) for row in self.kept if row["line"]}

    def bibtex(self) -> dict[str, str]:
        """What systems said to cite then, by slug."""
        return {row["entry"]["slug"]: row["bibtex"] for row in self.kept}


_remembered: Remembered[PastRows] = Remembered(64)


def end_of(at: datetime.datetime) -> datetime.datetime:
    """The first moment after the second."""
    return at.replace(microsecond=0) + SECOND


def revisions_at(datasets: Collection[int], at: datetime.datetime) -> dict[int, Revision]:
    """The datasets' revisions at a time, by id; none where the dataset was not public yet. Two queries."""
    changes = BoardChange.objects.filter(dataset__in=datasets, at__lt=end_of(at))
    last = dict(changes.values_list("dataset").annotate(last=Max("revision")).order_by())
    rows = BoardChange.objects.filter(_each(last, "revision")) if last else BoardChange.objects.none()
    return {
        dataset: Revision(number, since, facts)
        for dataset, number, since, facts in rows.values_list("dataset_id", "revision", "at", "facts")
        if is_public(facts)
    }


def is_public(facts: Mapping[str, Any]) -> bool:
    """Whether a dataset of these columns had a page."""
    return facts.get("state") not in (None, Dataset.State.PREPARING)


def _each(numbers: Mapping[int, int], field: str) -> Q:
    return reduce(or_, (Q(**{"dataset": dataset, field: number}) for dataset, number in numbers.items()))


def rows_at(revisions: Mapping[int, Revision]) -> dict[int, PastRows]:
    """The rows of several boards, by dataset. One query, none where all are known here: they never change."""
    keys = {dataset: f"{dataset}:{revision.key}" for dataset, revision in revisions.items()}
    found = {dataset: _remembered.get(key) for dataset, key in keys.items()}
    missing = {dataset: revisions[dataset].number for dataset, rows in found.items() if rows is None}
    if missing:
        read: dict[int, PastRows] = {dataset: PastRows(dataset, []) for dataset in missing}
        shown = (
            Q(dataset=dataset, from_revision__lte=number)
            & (Q(until_revision=None) | Q(until_revision__gt=number))
            for dataset, number in missing.items()
        )
        versions = EntryVersion.objects.filter(reduce(or_, shown))
        for dataset, text in versions.values_list("dataset_id", Cast("row", TextField())):
            read[dataset].kept.append(orjson.loads(text))
        for dataset, rows in read.items():
            rows.kept.sort(key=lambda row: (row["entry"]["published"], row["entry"]["pk"]))
            _remembered.put(keys[dataset], rows)
        found.update(read)
    return {dataset: rows for dataset, rows in found.items() if rows is not None}


def gone_since(rows: Iterable[PastRows]) -> dict[int, str]:
    """Why entries that were public then are no longer, by id. One query."""
    shown = {
        row["entry"]["pk"]: of.dataset_id
        for of in rows
        for row in of.kept
        if row["entry"]["visibility"] == Entry.Visibility.PUBLIC
    }
    gone = Entry.objects.filter(dataset__in=set(shown.values())).exclude(visibility=Entry.Visibility.PUBLIC)
    return {
        pk: (reason or "no reason given")
        if visibility == Entry.Visibility.WITHDRAWN
        else "kept back by its team"
        for pk, visibility, reason in gone.values_list("pk", "visibility", "withdrawal_reason")
        if pk in shown
    }


def gone_key(datasets: Collection[int]) -> str:
    """What changes whenever anything of these datasets is withdrawn or kept back. One query."""
    gone = BoardChange.objects.filter(dataset__in=datasets, entry__isnull=False)
    last = gone.exclude(entry__visibility=Entry.Visibility.PUBLIC)
    return str(last.aggregate(last=Max("pk"))["last"] or 0)


def benchmark_at(benchmark_id: int, at: datetime.datetime) -> dict[str, Any] | None:
    """The benchmark's columns and members as `board_versions` kept them, None before the first. One query."""
    versions = BenchmarkVersion.objects.filter(benchmark=benchmark_id, at__lt=end_of(at))
    row: dict[str, Any] | None = versions.order_by("-at", "-pk").values_list("row", flat=True).first()
    return row


def last_change(datasets: Collection[int], benchmark_id: int | None = None) -> datetime.datetime | None:
    """When the boards of these datasets changed last, or the benchmark: the time of a permalink. One query.

    None where any of them has no date yet.
    """
    versions = BenchmarkVersion.objects.filter(benchmark=benchmark_id or 0).order_by("-at").values("at")[:1]
    changes = BoardChange.objects.filter(dataset__in=datasets).values("dataset")
    newest = changes.annotate(last=Max("at"), of_benchmark=Subquery(versions)).order_by()
    rows = list(newest.values_list("last", "of_benchmark"))
    times = [at for row in rows for at in row]
    if benchmark_id is None:
        times = times[::2]
    if not times or None in times or len(rows) < len(set(datasets)):
        return None
    return max(times).replace(microsecond=0)
