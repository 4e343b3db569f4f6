"""Every change of a board gives it a new revision with a date: the only writer of revisions, `BoardChange`,
`EntryVersion` and `BenchmarkVersion`.

Call `board_changed` in the transaction that changes anything a board shows, after the change, and for nothing else.
Kept pages, permalinks and the news all follow from the rows it makes.

Where a transaction locks any other row as well, or changes several boards, `lock_boards` goes before everything else;
the rest follows in this order: persons, teams, systems, rounds, submissions, jobs. All but what is to be deleted are
locked without their keys (`no_key`), so that rows that refer to them are written meanwhile.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from leaderboard.core.audit import record_numbers
from leaderboard.core.work_requests import request_certainty, request_statistics
from leaderboard.models import Benchmark, BenchmarkVersion, BoardChange, Dataset, Entry, EntryVersion
from leaderboard.results.history.entry_rows import flat
from leaderboard.results.history.snapshot import LAYOUT, dataset_facts, result_facts, rows_to_store

Kind = BoardChange.Kind
#: What boards show of a benchmark itself, and of its membership of a dataset.
_BENCHMARK_FACTS = ("name", "measure", "source_id", "efficiency_from_id")
_MEMBER_FACTS = ("dataset_id", "counted", "stand_ins")

#: What may change the set of public results, or what they are compared with: intervals and tests are to be found anew.
_COMPARED = frozenset(
    {
        Kind.IMPORTED,
        Kind.PUBLISHED,
        Kind.WITHDRAWN,
        Kind.VISIBILITY,
        Kind.BASELINE,
        Kind.MEASURES,
        Kind.SYSTEM,
        Kind.DESCRIPTION,
        Kind.RECORDED,
        Kind.QUARANTINED,
        Kind.RESTORED,
        Kind.UNPUBLISHED,
        Kind.RESCORED,
        Kind.PROTECTED,
    }
)
#: What may bring texts or judgements, or let everyone see them, and what may bring a run: there may be more to find
#: out of them.
_OF_TEXTS = frozenset({Kind.IMPORTED, Kind.DESCRIPTION, Kind.RESCORED})
_OF_RUNS = frozenset({Kind.PUBLISHED, Kind.VISIBILITY})


def lock_boards(datasets: Iterable[int]) -> None:
    """Lock the boards of these datasets, and those of the wholes that they are parts of, until the commit.

    All in one order: of two transactions that take no board but here, and nothing before it, none ever waits for the
    other in a circle. A second call may name boards that the first one did, and no further ones.
    """
    changed = set(datasets)
    boards = Dataset.objects.filter(pk__in=changed.union(_wholes_of(changed))).order_by("pk")
    # Not their keys: rows that refer to a dataset may come meanwhile.
    list(boards.select_for_update(no_key=True).values_list("pk", flat=True))


@transaction.atomic
def board_changed(
    dataset: Dataset,
    kind: BoardChange.Kind,
    entry: Entry | None = None,
    touched: QuerySet[Entry] | None = None,
) -> int:
    """Give the dataset's board its next revision, which is returned. The row stays locked until the commit.

    `touched` are the entries whose rows may have changed. Without it those of the whole board are made anew and
    compared, which takes the longer the larger the board is.
    """
    wholes = _wholes_of([dataset.pk])
    _raise_revisions(sorted({dataset.pk, *wholes}))
    now = timezone.now()
    for whole in wholes:
        _record(whole, kind, now, Entry.objects.none())
    return _record(dataset.pk, kind, now, touched, entry)


@transaction.atomic
def boards_changed(
    datasets: Iterable[int], kind: BoardChange.Kind, touched: QuerySet[Entry] | None = None
) -> None:
    """The same for several boards, by their datasets' ids, all at one time.

    Their rows are locked in one order, so that two never wait for each other, and before the time is taken, so that
    a later revision never has an earlier one.
    """
    changed = set(datasets)
    ids = sorted(changed.union(_wholes_of(changed)))
    _raise_revisions(ids)
    now = timezone.now()
    for dataset_id in ids:
        _record(dataset_id, kind, now, touched if dataset_id in changed else Entry.objects.none())


def _wholes_of(datasets: Collection[int]) -> list[int]:
    """The datasets that any of these is a part of: their boards show the mean over their parts."""
    parts = Dataset.objects.filter(pk__in=datasets, part_of__isnull=False)
    return sorted(set(parts.values_list("part_of_id", flat=True)).difference(datasets))


def _raise_revisions(datasets: Iterable[int]) -> None:
    for dataset_id in datasets:
        Dataset.objects.filter(pk=dataset_id).update(
            board_revision=F("board_revision") + 1, updated_at=timezone.now()
        )


def _record(
    dataset_id: int,
    kind: BoardChange.Kind,
    at: datetime.datetime,
    touched: QuerySet[Entry] | None,
    entry: Entry | None = None,
) -> int:
    facts = dataset_facts(dataset_id)
    revision: int = facts.pop("board_revision")
    entries = Entry.objects.filter(dataset=dataset_id)
    present = rows_to_store(entries if touched is None else entries & touched)
    if entry is not None and kind == Kind.PUBLISHED and entry.pk in present:
        facts["result"] = result_facts(dataset_id, entry.pk, present[entry.pk], facts)
    BoardChange.objects.create(
        dataset_id=dataset_id,
        revision=revision,
        kind=kind,
        entry=entry,
        at=at,
        facts=facts,
    )
    record_numbers(dataset_id, revision, kind, *_record_rows(dataset_id, revision, present, touched))
    if kind in _COMPARED and facts["current_qrels_id"] is not None and not facts["hidden"]:
        request_certainty(dataset_id)
    if kind in _OF_TEXTS or (kind in _OF_RUNS and not facts["hidden"]):
        request_statistics(dataset_id)
    return revision


def _record_rows(
    dataset_id: int, revision: int, present: Mapping[int, dict[str, Any]], touched: QuerySet[Entry] | None
) -> tuple[dict[int, Mapping[str, Any]], dict[int, dict[str, Any]]]:
    """Close the versions of rows that are no longer so, and open those of rows that are new or changed.

    Both by entry are returned: what ended, and what began.
    """
    versions = EntryVersion.objects.filter(dataset=dataset_id, until_revision=None)
    if touched is not None:
        versions = versions.filter(entry__in=touched)
    after = dict(present)
    ended: list[int] = []
    before: dict[int, Mapping[str, Any]] = {}
    for pk, entry_id, text in versions.values_list("pk", "entry_id", Cast("row", TextField())):
        row = orjson.loads(text)
        if after.get(entry_id) == row:
            del after[entry_id]
        else:
            ended.append(pk)
            before[entry_id] = flat(row)
    for start in range(0, len(ended), 500):  # SQLite takes so many parameters and no more
        EntryVersion.objects.filter(pk__in=ended[start : start + 500]).update(until_revision=revision)
    EntryVersion.objects.bulk_create(
        [
            EntryVersion(entry_id=entry_id, dataset_id=dataset_id, from_revision=revision, row=row)
            for entry_id, row in after.items()
        ],
        batch_size=500,
    )
    return before, after


@transaction.atomic
def benchmark_changed(benchmark: Benchmark) -> None:
    """Keep which datasets the benchmark has now and how they count, if that is news; its boards change by theirs."""
    members = benchmark.members.order_by("position", "pk").values(*_MEMBER_FACTS)
    row: dict[str, Any] = {
        **Benchmark.objects.values(*_BENCHMARK_FACTS).get(pk=benchmark.pk),
        "members": [dict(member) for member in members],
    }
    newest = benchmark.versions.last()
    if newest is None or newest.row != row:
        BenchmarkVersion.objects.create(benchmark=benchmark, at=timezone.now(), row=row)


def record_present() -> None:
    """Store every row that is not stored yet, or as an earlier release stored it, each board's under a new revision.

    And give every board that has no date yet its first one: those of a site older than this record.
    """
    open_versions = EntryVersion.objects.filter(until_revision=None)
    missing = Entry.objects.filter(visibility__in=Entry.SEEN).exclude(
        Exists(open_versions.filter(entry=OuterRef("pk")))
    )
    of_earlier_release = open_versions.exclude(pk__in=open_versions.filter(row__layout=LAYOUT))
    boards_changed(
        {
            *Dataset.objects.filter(board_changes=None).values_list("pk", flat=True),
            *missing.values_list("dataset_id", flat=True),
            *of_earlier_release.values_list("dataset_id", flat=True),
        },
        Kind.RECORDED,
    )
    for benchmark in Benchmark.objects.filter(versions=None):
        benchmark_changed(benchmark)
