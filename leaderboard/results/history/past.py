"""Boards as they were: which revision a time means, and the rows of then.

A time is a second. Of two changes within one second the later one counts, for all of that second.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

import orjson
from django.db.models import Max, Q, Subquery, TextField
from django.db.models.functions import Cast

from leaderboard.core.cache.memory import Remembered
from leaderboard.models import BenchmarkVersion, BoardChange, Dataset, Entry, EntryVersion
from leaderboard.results.history.entry_columns import DatasetEntries, entries_from
from leaderboard.results.history.entry_rows import EntryRow, SystemRow
from leaderboard.results.history.measurements import Measured
from leaderboard.results.history.snapshot import PARTS, entry_row, line_of, measured_rows, system_row
from leaderboard.results.kinds import REPORTED
from leaderboard.results.values import published_value

SECOND = datetime.timedelta(seconds=1)


class Revision(NamedTuple):
    """A dataset's board as it was: its number, since when, and the dataset's columns of then.

    `rounded` is whether the judgements are hidden now: then the board says what it would of hidden ones, whatever it
    said at the time.
    """

    number: int
    at: datetime.datetime
    facts: Mapping[str, Any]
    rounded: bool = False

    @property
    def key(self) -> str:
        """What names it among all of the dataset's, and tells rounded values from others."""
        return f"at:{self.number}:{self.at.timestamp()}{':rounded' * self.rounded}"

    @property
    def parts(self) -> Sequence[int]:
        """Which datasets it was the mean of."""
        found: Sequence[int] = self.facts.get(PARTS, ())
        return found


class PastRows:
    """What a dataset's board was made of: plain values as `snapshot` keeps them, oldest first.

    What boards read of them is made when it is asked for, and once: every view of a board is made of the same.
    """

    def __init__(self, dataset_id: int, kept: list[dict[str, Any]], text_bytes: int) -> None:
        """`text_bytes`: what the rows have as JSON."""
        self.dataset_id, self.text_bytes = dataset_id, text_bytes
        self._kept = kept

    @cached_property
    def entries(self) -> list[EntryRow]:
        """The public and the withdrawn ones, for the dataset's own board."""
        return [entry_row(row) for row in self._kept]

    @cached_property
    def measured(self) -> list[Measured]:
        """What had been measured of them."""
        return measured_rows(self.dataset_id, self._kept)

    @cached_property
    def lines(self) -> DatasetEntries:
        """The public ones, for boards of benchmarks."""
        public = [row for row in self._kept if row["line"]]
        return entries_from([line_of(self.dataset_id, row) for row in public], self.measured)

    @cached_property
    def bibtex(self) -> dict[str, str]:
        """What systems said to cite then, by slug; nothing of those that said nothing."""
        return {row["entry"]["slug"]: row["bibtex"] for row in self._kept if row["bibtex"]}

    @cached_property
    def public(self) -> dict[int, str]:
        """Of the public entries, by id, the slugs of their systems."""
        rows = (row["entry"] for row in self._kept)
        return {row["pk"]: row["slug"] for row in rows if row["visibility"] == Entry.Visibility.PUBLIC}

    def add_systems(self, found: dict[int, SystemRow]) -> None:
        """Add the systems that are not there yet, by id, named as they were: at one time the same on all boards."""
        for row in self._kept:
            if row["line"] and row["line"]["system_id"] not in found:
                found[row["line"]["system_id"]] = system_row(row)


class Gone(NamedTuple):
    """Why an entry is no longer public, of which dataset and system it is, and what it is now."""

    dataset_id: int
    slug: str
    reason: str
    visibility: str


_NO_LONGER = "no longer on the board"
#: Why results are gone of which no reason is public: whether their team or a curator took them off tells nobody.
_GONE: Mapping[str, str] = {
    Entry.Visibility.PRIVATE: _NO_LONGER,
    Entry.Visibility.UNPUBLISHED: _NO_LONGER,
    Entry.Visibility.HELD: _NO_LONGER,
    Entry.Visibility.SUPERSEDED: "replaced by a better result of its team or submitter",
}

#: What an old board still shows: what gave way to a better result is as true as it was.
_STANDS = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)
#: What a process keeps of old boards, about: a benchmark of twenty datasets with 1,000 systems each has 80 MiB.
KEPT_BYTES = 128 * 2**20
#: Rows take four times their text once everything that boards read of them is made.
_BYTES_A_BYTE, _AROUND_BYTES = 4, 4096


def _weight(rows: PastRows) -> int:
    """What they take in memory, about, in bytes."""
    return _BYTES_A_BYTE * rows.text_bytes + _AROUND_BYTES


_remembered: Remembered[PastRows] = Remembered(KEPT_BYTES, _weight)


def end_of(at: datetime.datetime) -> datetime.datetime:
    """The first moment after the second."""
    return at.replace(microsecond=0) + SECOND


def revisions_at(datasets: Collection[int], at: datetime.datetime) -> dict[int, Revision]:
    """The revisions at a time of datasets and of the parts they had then, by id; none where one was not public yet.

    Two queries, and two more where any had parts.
    """
    found = _revisions_at(datasets, at)
    parts = {part for revision in found.values() for part in revision.parts}.difference(found)
    return {**found, **_revisions_at(parts, at)} if parts else found


def _revisions_at(datasets: Collection[int], at: datetime.datetime) -> dict[int, Revision]:
    changes = BoardChange.objects.filter(dataset__in=datasets, at__lt=end_of(at))
    last = dict(changes.values_list("dataset").annotate(last=Max("revision")).order_by())
    rows = BoardChange.objects.filter(_each(last, "revision")) if last else BoardChange.objects.none()
    columns = ("dataset_id", "revision", "at", "facts", "dataset__hidden")
    return {
        dataset: Revision(number, since, {**facts, "hidden": True} if hidden else facts, hidden)
        for dataset, number, since, facts, hidden in rows.values_list(*columns)
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
        kept: dict[int, list[dict[str, Any]]] = {dataset: [] for dataset in missing}
        lengths = dict.fromkeys(missing, 0)
        shown = (
            Q(dataset=dataset, from_revision__lte=number)
            & (Q(until_revision=None) | Q(until_revision__gt=number))
            for dataset, number in missing.items()
        )
        versions = EntryVersion.objects.filter(reduce(or_, shown))
        for dataset, text in versions.values_list("dataset_id", Cast("row", TextField())):
            kept[dataset].append(orjson.loads(text))
            lengths[dataset] += len(text)
        for dataset, rows in kept.items():
            rows.sort(key=lambda row: (row["entry"]["published"], row["entry"]["pk"]))
            if revisions[dataset].rounded:
                _round(rows)
            made = found[dataset] = PastRows(dataset, rows, lengths[dataset])
            _remembered.put(keys[dataset], made)
    return {dataset: rows for dataset, rows in found.items() if rows is not None}


def _round(rows: Iterable[Mapping[str, Any]]) -> None:
    """Round what was scored on judgements that are hidden now; what a paper prints is no secret."""
    for row in rows:
        entry = row["entry"]
        if entry["provenance"] == REPORTED:
            continue
        for values in (entry["scores"], entry["deviations"]):
            values.update({name: published_value(value, hidden=True) for name, value in values.items()})


def gone_since(rows: Mapping[int, PastRows]) -> dict[int, Gone]:
    """The entries that were public then and are no longer, by id; `rows` are by dataset. One query."""
    gone = Entry.objects.filter(dataset__in=rows).exclude(visibility__in=_STANDS)
    found = {}
    columns = ("pk", "dataset_id", "visibility", "withdrawal_reason", "moderation_reason")
    for pk, dataset, visibility, by_team, by_curator in gone.values_list(*columns):
        said = by_curator if visibility == Entry.Visibility.QUARANTINED else by_team
        reason = _GONE.get(visibility) or said or "no reason given"
        if pk in rows[dataset].public:
            found[pk] = Gone(dataset, rows[dataset].public[pk], reason, visibility)
    return found


def without_page(gone: Iterable[Gone]) -> frozenset[str]:
    """The slugs of systems that have no page by now, since all that they have is kept back. One query at most."""
    slugs = {each.slug for each in gone if each.visibility not in Entry.SEEN}
    if not slugs:
        return frozenset()
    shown = Entry.objects.filter(system__slug__in=slugs).filter(visibility__in=Entry.SEEN)
    return frozenset(slugs.difference(shown.values_list("system__slug", flat=True)))


def gone_key(datasets: Collection[int]) -> str:
    """What changes whenever anything of these datasets is withdrawn or kept back. One query."""
    gone = BoardChange.objects.filter(dataset__in=datasets, entry__isnull=False)
    last = gone.exclude(entry__visibility__in=_STANDS)
    return str(last.aggregate(last=Max("pk"))["last"] or 0)


def benchmark_at(benchmark_id: int, at: datetime.datetime) -> dict[str, Any] | None:
    """The benchmark's columns and members as `revisions` kept them, None before the first. One query."""
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
