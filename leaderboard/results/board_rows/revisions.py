"""Every change of a board gives it a new revision with a date: the only writer of revisions, `BoardChange`,
`EntryVersion` and `BenchmarkVersion`.

Call `board_changed` in the transaction that changes anything a board shows, after the change, and for nothing else.
Kept pages, permalinks and the news all follow from the rows it makes.

Where a transaction locks any other row as well, or changes several boards, `lock_boards` goes before everything else;
the rest follows in this order: persons, teams, systems, rounds, submissions, jobs. All but what is to be deleted are
locked without their keys (`no_key`), so that rows that refer to them are written meanwhile.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Exists, F, FloatField, IntegerField, OuterRef, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from leaderboard.core import anonymity
from leaderboard.core.audit import record_numbers
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.work_requests import request_certainty, request_statistics
from leaderboard.models import (
    DECLARED_NUMBERS,
    Benchmark,
    BenchmarkVersion,
    BoardChange,
    Challenge,
    Dataset,
    Entry,
    EntryVersion,
)
from leaderboard.results import citations
from leaderboard.results.board_rows.entry_rows import DEFAULTS, EntryRow, entry_row, flatten_row
from leaderboard.results.board_rows.measurements import measured_of_entries

Kind = BoardChange.Kind
#: Entries, or their ids.
Touched = QuerySet[Entry] | Collection[int]
#: What boards show of a benchmark itself, and of its membership of a dataset.
_BENCHMARK_FACTS = ("name", "measure", "source_id", "efficiency_from_id")
_MEMBER_FACTS = ("dataset_id", "counted", "stand_ins")

#: What changes neither the set of public results nor what they are compared with. After any other change intervals and
#: tests are to be found anew.
_NOT_COMPARED = frozenset(
    {Kind.REPORTED, Kind.MEASURED, Kind.TEAM, Kind.PRICE, Kind.CERTAINTY, Kind.REVEALED, Kind.CHALLENGED}
)
#: What may bring texts or judgements, or let everyone see them, and what may bring a run: there may be more to find
#: out of them.
_OF_TEXTS = frozenset({Kind.IMPORTED, Kind.DESCRIPTION, Kind.RESCORED})
_OF_RUNS = frozenset({Kind.PUBLISHED, Kind.VISIBILITY})


def lock_boards(datasets: Iterable[int]) -> dict[int, Dataset]:
    """Lock the boards of these datasets, and those of the wholes that they are parts of, until the commit.

    Returns the rows of all of them by id, as they are now. All in one order: of two transactions that take no board but
    here, and nothing before it, none ever waits for the other in a circle. A second call may name boards that the first
    one did, and no further ones.
    """
    return {dataset.pk: dataset for dataset in _locked(set(datasets))}


def lock_board(dataset_id: int) -> Dataset:
    """Lock one board in the same way. Returns the dataset's row as it is now; raises Dataset.DoesNotExist."""
    try:
        return lock_boards([dataset_id])[dataset_id]
    except KeyError:
        raise Dataset.DoesNotExist from None


def _locked(datasets: Collection[int]) -> QuerySet[Dataset]:
    """These datasets and the wholes that they are parts of, whose boards show the mean over their parts: one query."""
    wholes = Dataset.objects.filter(pk__in=datasets, part_of__isnull=False).values("part_of")
    boards = Dataset.objects.filter(Q(pk__in=datasets) | Q(pk__in=wholes)).order_by("pk")
    # Not their keys: rows that refer to a dataset may come meanwhile.
    return boards.select_for_update(no_key=True)


def board_changed(
    dataset: Dataset, kind: BoardChange.Kind, entry: Entry | None = None, touched: Touched | None = None
) -> int:
    """Give the dataset's board its next revision, which is returned. The row stays locked until the commit.

    `touched` are the entries whose rows may have changed. Without it those of the whole board are made anew and
    compared, which takes the longer the larger the board is.
    """
    return _change({dataset.pk}, kind, touched, entry)[dataset.pk]


def boards_changed(datasets: Iterable[int], kind: BoardChange.Kind, touched: Touched | None = None) -> None:
    """The same for several boards, by their datasets' ids, all at one time."""
    _change(set(datasets), kind, touched)


# Without a savepoint of its own: nobody goes on with a transaction in which a change was not recorded.
@transaction.atomic(savepoint=False)
def _change(
    changed: Collection[int], kind: BoardChange.Kind, touched: Touched | None, entry: Entry | None = None
) -> dict[int, int]:
    """Record a change of these boards and of the wholes that they are parts of; the new revisions by dataset.

    The rows are locked in one order, so that two never wait for each other, and before the time is taken, so that a
    later revision never has an earlier one.
    """
    boards = list(_locked(changed).values("pk", "board_revision", *DATASET_FACTS))
    now = timezone.now()
    rows = Dataset.objects.filter(pk__in=[facts["pk"] for facts in boards])
    rows.update(board_revision=F("board_revision") + 1, updated_at=now)
    revisions = {}
    for facts in sorted(boards, key=lambda facts: facts["pk"] in changed):  # wholes first
        dataset_id, revision = facts.pop("pk"), facts.pop("board_revision") + 1
        change = BoardChange(dataset_id=dataset_id, revision=revision, kind=kind, at=now, facts=facts)
        if dataset_id in changed:
            change.entry = entry
            _record(change, touched)
        else:
            _record(change, ())
        revisions[dataset_id] = revision
    return revisions


def _record(change: BoardChange, touched: Touched | None) -> None:
    """Store the change, which has the dataset's facts, with the rows that it touched, and ask for what follows."""
    dataset_id, facts = change.dataset_id, change.facts
    if facts["current_version_id"] is None:
        parts = Dataset.objects.filter(part_of=dataset_id).order_by("name", "pk")
        facts[PARTS] = list(parts.values_list("pk", flat=True))
    entries = Entry.objects.filter(dataset=dataset_id)
    present = rows_to_store(entries if touched is None else entries.filter(Q(pk__in=touched)))
    if change.kind == Kind.PUBLISHED and change.entry_id in present:
        facts["result"] = result_facts(dataset_id, change.entry_id, present[change.entry_id], facts)
    change.save(force_insert=True)
    before, after = _record_rows(change, present, touched)
    record_numbers(dataset_id, change.revision, change.kind, before, after)
    if change.kind not in _NOT_COMPARED and facts["current_qrels_id"] is not None and not facts["hidden"]:
        request_certainty(dataset_id)
    if change.kind in _OF_TEXTS or (change.kind in _OF_RUNS and not facts["hidden"]):
        request_statistics(dataset_id)


def _record_rows(
    change: BoardChange, present: Mapping[int, dict[str, Any]], touched: Touched | None
) -> tuple[dict[int, Mapping[str, Any]], dict[int, dict[str, Any]]]:
    """Close the versions of rows that are no longer so, and open those of rows that are new or changed.

    Both by entry are returned: what ended, and what began.
    """
    versions = EntryVersion.objects.filter(dataset=change.dataset_id, until_revision=None)
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
            before[entry_id] = flatten_row(row)
    for start in range(0, len(ended), 500):  # SQLite takes so many parameters and no more
        EntryVersion.objects.filter(pk__in=ended[start : start + 500]).update(until_revision=change.revision)
    new = [
        EntryVersion(entry_id=key, dataset_id=change.dataset_id, from_revision=change.revision, row=row)
        for key, row in after.items()
    ]
    EntryVersion.objects.bulk_create(new, batch_size=500)
    return before, after


@transaction.atomic
def benchmark_changed(benchmark: Benchmark) -> None:
    """Keep which datasets the benchmark has now and how they count, if that is news; its boards change by theirs."""
    members = benchmark.members.order_by("position", "pk").values(*_MEMBER_FACTS)
    row = {**Benchmark.objects.values(*_BENCHMARK_FACTS).get(pk=benchmark.pk), "members": list(members)}
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


#: What boards show of the dataset itself, as columns.
DATASET_FACTS = (
    "slug", "name", "task", "domain", "language", "state", "hidden", "protection", "primary_measure", "measures",
    "current_version_id", "current_qrels_id",
)  # fmt: skip
#: Of a dataset without a version the ids of its parts, which its scores are the means of.
PARTS = "parts"

#: What a row has of its system, under the names of a system's own columns.
_OF_SYSTEM = (
    "architecture", "licence", "commercial_use", "open_weights", "closed_api", "year",
    *(each.name for each in DECLARED_NUMBERS if each.key),
)  # fmt: skip
#: Which fields a row has: raised with every change of `EntryRow`, so that the next start stores present boards anew,
#: but for a new field that is empty at first.
LAYOUT = 2
#: What is read from elsewhere.
_BESIDE = ("measured", "bibtex")


def rows_to_store(entries: QuerySet[Entry]) -> dict[int, dict[str, Any]]:
    """All that boards read of the public, withdrawn and quarantined ones of these entries, by id. Two queries, and one
    for prices."""
    of_system = {name: f"system__{name}" for name in citations.COLUMNS}
    rows = _rows(entries.filter(visibility__in=Entry.SEEN), *of_system.values())
    measured: dict[int, list[dict[str, Any]]] = {}
    for one in measured_of_entries([row["pk"] for row in rows]):
        measured.setdefault(one.entry_id, []).append(one.as_stored())
    found = {}
    for row in rows:
        cited = citations.bibtex_of({name: row.pop(column) for name, column in of_system.items()})
        whole = {**row, "measured": measured.get(row["pk"], ()), "bibtex": cited}
        stored = {name: value for name, value in whole.items() if value not in (DEFAULTS.get(name, ...), [])}
        found[row["pk"]] = {"layout": LAYOUT, **stored}
    return found


def private_rows(datasets: Collection[int], teams: Collection[int]) -> dict[int, list[EntryRow]]:
    """The private entries of these teams, by dataset; they are stored nowhere. One query, none without teams."""
    if not teams:
        return {}
    own = Entry.objects.filter(
        dataset__in=datasets, visibility=Entry.Visibility.PRIVATE, system__team__in=teams
    )
    found: dict[int, list[EntryRow]] = {}
    for row in _rows(own.order_by("published_at", "pk"), "dataset_id"):
        found.setdefault(row.pop("dataset_id"), []).append(entry_row(row))
    return found


def _rows(entries: QuerySet[Entry], *further: str) -> list[dict[str, Any]]:
    """Their fields, but for `_BESIDE`, and `further` columns. One query."""
    names = [name for name in EntryRow._fields if name not in _BESIDE]
    columns = _columns()
    rows = entries.values_list(*(columns.get(name, name) for name in names), *further)
    return [dict(zip((*names, *further), row, strict=True)) for row in rows]


def _columns() -> dict[str, Any]:
    """The columns of fields that an entry has not under their own names, or in another type."""
    challenges = Challenge.objects.filter(system=OuterRef("system"), state=Challenge.State.OPEN)
    return {
        "system": "system__name",
        "slug": "system__slug",
        "team": anonymity.team_name("system__"),
        "team_slug": anonymity.team_slug("system__"),
        "source_authors": "source__authors",
        "source_year": "source__year",
        "source_key": "source__key",
        "submission": "submission_reference",
        "published": Cast("published_at", TextField()),
        "challenged": Cast(Exists(challenges), IntegerField()),
        **{name: Cast(name, IntegerField()) for name in ("is_baseline", "late", "pooled")},
        **{name: f"system__{name}" for name in _OF_SYSTEM},
    }


def result_facts(
    dataset_id: int, entry: int, row: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What the news say of a new result: its score, its baseline's, and the best of the others that it is ranked with.

    `facts` are the dataset's. All are published values; None where there is none. Two queries: the database finds the
    best, so that a large board costs no more than a small one.
    """
    measure: str = facts["primary_measure"]
    others = Entry.objects.filter(
        dataset=dataset_id,
        visibility=Entry.Visibility.PUBLIC,
        comparison_group=row["comparison_group"],
    ).exclude(pk=entry)
    value = Cast(KeyTextTransform(measure, "scores"), FloatField())
    order = value.asc() if better(measure) == "lower" else value.desc()
    best = others.alias(value=value).filter(value__isnull=False).order_by(order).values_list("scores").first()
    baseline = others.filter(is_baseline=True).values_list("scores", "system__name").first()
    return {
        "measure": measure,
        "value": row["scores"].get(measure),
        "baseline": baseline[0].get(measure) if baseline else None,
        "baseline_name": baseline_label(baseline[1], facts["name"]) if baseline else "",
        "best_before": best[0][measure] if best else None,
    }
