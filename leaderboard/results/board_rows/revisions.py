"""Revisions of boards; the only writer of `BoardChange`, `EntryVersion`, and `BenchmarkVersion`.

Call `board_changed` in the transaction that changes anything a board shows, after the change, and for nothing else.
Cached pages, permalinks, and news are derived from the rows that it writes.

A transaction that also locks other rows, or changes several boards, must call `lock_boards` first. Other rows follow
in this order: persons, teams, systems, rounds, submissions, jobs. Rows are locked with `no_key` unless they are to be
deleted, so that references to them can be written in the meantime.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Case, Exists, F, FloatField, IntegerField, OuterRef, Q, QuerySet, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from leaderboard.core import anonymity
from leaderboard.core.audit import record_numbers
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.work_requests import request_certainty, request_statistics
from leaderboard.models import (
    DECLARED_NUMBERS,
    REFERENCE_TYPES,
    Benchmark,
    BenchmarkMember,
    BenchmarkVersion,
    BoardChange,
    Challenge,
    Dataset,
    Entry,
    EntryVersion,
)
from leaderboard.results import citations
from leaderboard.results.board_rows.entry_rows import DEFAULTS, EntryRow, entry_row, flatten_row
from leaderboard.results.board_rows.measurements import entry_measurements

Kind = BoardChange.Kind
#: Entries or their ids.
Entries = QuerySet[Entry] | Collection[int]
#: Columns of benchmarks and their members that boards show.
_BENCHMARK_FACTS = ("name", "measure", "source_id", "efficiency_from_id")
_MEMBER_FACTS = ("dataset_id", "counted", "stand_ins")

#: Changes that affect neither the set of public results nor their comparisons. All others require new tests.
_NOT_COMPARED = frozenset(
    {Kind.REPORTED, Kind.MEASURED, Kind.TEAM, Kind.PRICE, Kind.CERTAINTY, Kind.REVEALED, Kind.CHALLENGED}
)
#: The same for benchmarks, which also compare reported results.
_NOT_COMPARED_IN_BENCHMARKS = _NOT_COMPARED - {Kind.REPORTED}
#: Changes that may add or publish texts or judgments, and those that may add runs; they require new statistics.
_TEXT_CHANGES = frozenset({Kind.IMPORTED, Kind.DESCRIPTION, Kind.RESCORED})
_RUN_CHANGES = frozenset({Kind.PUBLISHED, Kind.VISIBILITY})


def lock_boards(datasets: Iterable[int]) -> dict[int, Dataset]:
    """Lock the boards of these datasets and of the datasets that they are parts of, until the commit.

    Returns the current rows by id. Rows are locked in a fixed order, so transactions that lock boards only here, and
    nothing before, cannot deadlock. A second call may only repeat boards of the first one.
    """
    return {dataset.pk: dataset for dataset in _lock_query(set(datasets))}


def lock_board(dataset_id: int) -> Dataset:
    """Lock one board and return the dataset's current row. Raises Dataset.DoesNotExist."""
    try:
        return lock_boards([dataset_id])[dataset_id]
    except KeyError:
        raise Dataset.DoesNotExist from None


def _lock_query(datasets: Collection[int]) -> QuerySet[Dataset]:
    """Return a locking query for these datasets and the datasets they are parts of, whose boards show the mean."""
    parents = Dataset.objects.filter(pk__in=datasets, part_of__isnull=False).values("part_of")
    boards = Dataset.objects.filter(Q(pk__in=datasets) | Q(pk__in=parents)).order_by("pk")
    # Keys are not locked, so that rows that refer to a dataset can be inserted.
    return boards.select_for_update(no_key=True)


def board_changed(
    dataset: Dataset, kind: BoardChange.Kind, entry: Entry | None = None, row_entries: Entries | None = None
) -> int:
    """Record a change of the dataset's board and return its new revision. The row stays locked until the commit.

    The board of the dataset that it is part of gets a new revision as well. `row_entries` are the entries with rows
    that may have changed. If it is None, all rows of the board are rebuilt and compared, which is slow for large
    boards.
    """
    return _change({dataset.pk}, kind, row_entries, entry)[dataset.pk]


def boards_changed(datasets: Iterable[int], kind: BoardChange.Kind, row_entries: Entries | None = None) -> None:
    """Record a change of several boards, by dataset id, with the same time."""
    _change(set(datasets), kind, row_entries)


# No savepoint is needed, because a transaction must not continue if recording the change failed.
@transaction.atomic(savepoint=False)
def _change(
    dataset_ids: Collection[int], kind: BoardChange.Kind, row_entries: Entries | None, entry: Entry | None = None
) -> dict[int, int]:
    """Record a change of these boards and of the datasets they are parts of; return the new revisions by dataset.

    Rows are locked in one order to avoid deadlocks, and before the time is read, so that times increase with
    revisions.
    """
    boards = list(_lock_query(dataset_ids).values("pk", "board_revision", *DATASET_FACTS))
    now = timezone.now()
    rows = Dataset.objects.filter(pk__in=[facts["pk"] for facts in boards])
    rows.update(board_revision=F("board_revision") + 1, updated_at=now)
    revisions = {}
    for facts in sorted(boards, key=lambda facts: facts["pk"] in dataset_ids):  # Composite datasets come first.
        dataset_id, revision = facts.pop("pk"), facts.pop("board_revision") + 1
        change = BoardChange(dataset_id=dataset_id, revision=revision, kind=kind, at=now, facts=facts)
        if dataset_id in dataset_ids:
            change.entry = entry
            _store_change(change, row_entries)
        else:
            _store_change(change, ())
        revisions[dataset_id] = revision
    return revisions


def _store_change(change: BoardChange, row_entries: Entries | None) -> None:
    """Store the change with its changed rows, and record the numbers that changed in them.

    Requests new significance tests if the change affects results with open judgments, and new statistics if it affects
    texts or runs.
    """
    dataset_id, facts = change.dataset_id, change.facts
    if facts["current_version_id"] is None:
        parts = Dataset.objects.filter(part_of=dataset_id).order_by("name", "pk")
        facts[PARTS] = list(parts.values_list("pk", flat=True))
    entries = Entry.objects.filter(dataset=dataset_id)
    rows = rows_to_store(entries if row_entries is None else entries.filter(Q(pk__in=row_entries)))
    if change.kind == Kind.PUBLISHED and change.entry_id in rows:
        facts["result"] = result_facts(dataset_id, change.entry_id, rows[change.entry_id], facts)
    change.save(force_insert=True)
    closed_rows, new_rows = _record_rows(change, rows, row_entries)
    record_numbers(dataset_id, change.revision, change.kind, closed_rows, new_rows)
    is_open = facts["current_qrels_id"] is not None and not facts["hidden"]
    if (change.kind not in _NOT_COMPARED and is_open) or (
        change.kind not in _NOT_COMPARED_IN_BENCHMARKS
        and BenchmarkMember.objects.filter(dataset=dataset_id, counted=True).exists()
    ):
        request_certainty(dataset_id)
    if change.kind in _TEXT_CHANGES or (change.kind in _RUN_CHANGES and not facts["hidden"]):
        request_statistics(dataset_id)


def _record_rows(
    change: BoardChange, rows: Mapping[int, dict[str, Any]], row_entries: Entries | None
) -> tuple[dict[int, Mapping[str, Any]], dict[int, dict[str, Any]]]:
    """Close the versions of changed or removed rows, and open those of new or changed rows.

    Returns the closed and the new rows, each by entry.
    """
    versions = EntryVersion.objects.filter(dataset=change.dataset_id, until_revision=None)
    if row_entries is not None:
        versions = versions.filter(entry__in=row_entries)
    new_rows = dict(rows)
    closed_ids: list[int] = []
    closed_rows: dict[int, Mapping[str, Any]] = {}
    for pk, entry_id, text in versions.values_list("pk", "entry_id", Cast("row", TextField())):
        row = orjson.loads(text)
        if new_rows.get(entry_id) == row:
            del new_rows[entry_id]
        else:
            closed_ids.append(pk)
            closed_rows[entry_id] = flatten_row(row)
    for start in range(0, len(closed_ids), 500):  # SQLite limits the number of parameters.
        EntryVersion.objects.filter(pk__in=closed_ids[start : start + 500]).update(until_revision=change.revision)
    new_versions = [
        EntryVersion(entry_id=key, dataset_id=change.dataset_id, from_revision=change.revision, row=row)
        for key, row in new_rows.items()
    ]
    EntryVersion.objects.bulk_create(new_versions, batch_size=500)
    return closed_rows, new_rows


@transaction.atomic
def benchmark_changed(benchmark: Benchmark) -> None:
    """Store a version of the benchmark's columns and members if they changed. Revisions of boards do not change."""
    members = benchmark.members.order_by("position", "pk").values(*_MEMBER_FACTS)
    row = {**Benchmark.objects.values(*_BENCHMARK_FACTS).get(pk=benchmark.pk), "members": list(members)}
    latest_version = benchmark.versions.last()
    if latest_version is None or latest_version.row != row:
        BenchmarkVersion.objects.create(benchmark=benchmark, at=timezone.now(), row=row)
        if member := benchmark.members.filter(counted=True).first():
            request_certainty(member.dataset_id)


def record_present() -> None:
    """Record boards that have no change yet, or whose stored rows are missing or have the layout of an earlier release.

    Each of these boards gets a new revision with current rows, and each benchmark without a version gets its first one.
    """
    open_versions = EntryVersion.objects.filter(until_revision=None)
    unstored_entries = Entry.objects.filter(visibility__in=Entry.SEEN).exclude(
        Exists(open_versions.filter(entry=OuterRef("pk")))
    )
    outdated_versions = open_versions.exclude(pk__in=open_versions.filter(row__layout=LAYOUT))
    boards_changed(
        {
            *Dataset.objects.filter(board_changes=None).values_list("pk", flat=True),
            *unstored_entries.values_list("dataset_id", flat=True),
            *outdated_versions.values_list("dataset_id", flat=True),
        },
        Kind.RECORDED,
    )
    for benchmark in Benchmark.objects.filter(versions=None):
        benchmark_changed(benchmark)


#: Dataset columns that boards show.
DATASET_FACTS = (
    "slug", "name", "task", "domain", "language", "state", "hidden", "protection", "primary_measure", "measures",
    "current_version_id", "current_qrels_id", "tags_sha256",
)  # fmt: skip
#: Key for the part ids of a dataset whose scores are means over its parts.
PARTS = "parts"

#: System columns that are copied into rows under the same names.
_SYSTEM_FIELDS = (
    "architecture", "licence", "commercial_use", "open_weights", "closed_api", "year",
    *(each.name for each in DECLARED_NUMBERS if each.key),
)  # fmt: skip
#: Version of the row layout. Increase it when `EntryRow` changes, so that the next start stores current boards
#: again; this is not necessary for a new field that is empty at first.
LAYOUT = 3
#: Fields that are read by separate queries.
_SEPARATE_FIELDS = ("measured", "bibtex")
#: Name of the downloaded checkpoint that produced the run, else the URL that the team or publication states.
_CHECKPOINT = KeyTransform("checkpoint", KeyTransform("made_by", "evaluation__run__metadata"))
_HUB_NAME = NullIf(KeyTextTransform("hub_name", _CHECKPOINT), Value(""), output_field=TextField())
_MODEL = Coalesce(_HUB_NAME, "system__model_url", output_field=TextField())


def rows_to_store(entries: QuerySet[Entry]) -> dict[int, dict[str, Any]]:
    """Return the board rows of public, withdrawn, and quarantined entries, by id, in at most three queries.

    Each row contains the layout's version, and the fields of `EntryRow` that differ from their defaults.
    """
    citation_columns = {name: f"system__{name}" for name in citations.COLUMNS}
    rows = _read_entry_rows(entries.filter(visibility__in=Entry.SEEN), *citation_columns.values())
    measurements: dict[int, list[dict[str, Any]]] = {}
    for measurement in entry_measurements([row["pk"] for row in rows]):
        measurements.setdefault(measurement.entry_id, []).append(measurement.as_stored())
    stored_rows = {}
    for row in rows:
        bibtex = citations.collect_bibtex({name: row.pop(column) for name, column in citation_columns.items()})
        all_values = {**row, "measured": measurements.get(row["pk"], ()), "bibtex": bibtex}
        changed_values = {
            name: value for name, value in all_values.items() if value not in (DEFAULTS.get(name, ...), [])
        }
        stored_rows[row["pk"]] = {"layout": LAYOUT, **changed_values}
    return stored_rows


def private_rows(datasets: Collection[int], teams: Collection[int]) -> dict[int, list[EntryRow]]:
    """Return the private entries of these teams, by dataset, in at most one query; they are never stored."""
    if not teams:
        return {}
    entries = Entry.objects.filter(dataset__in=datasets, visibility=Entry.Visibility.PRIVATE, system__team__in=teams)
    rows_by_dataset: dict[int, list[EntryRow]] = {}
    for row in _read_entry_rows(entries.order_by("published_at", "pk"), "dataset_id"):
        rows_by_dataset.setdefault(row.pop("dataset_id"), []).append(entry_row(row))
    return rows_by_dataset


def _read_entry_rows(entries: QuerySet[Entry], *extra_columns: str) -> list[dict[str, Any]]:
    """Return the fields of `EntryRow` except `_SEPARATE_FIELDS`, and `extra_columns`, of each entry, in one query."""
    names = [name for name in EntryRow._fields if name not in _SEPARATE_FIELDS]
    challenges = Challenge.objects.filter(system=OuterRef("system"), state=Challenge.State.OPEN)
    # Expressions for the fields whose column has another name or type.
    columns: dict[str, Any] = {
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
        "model": Case(When(anonymity.anonymous_now("system__"), then=Value("", TextField())), default=_MODEL),
        "version_label": Coalesce("evaluation__run__version__label", Value("")),
        "split": Coalesce("evaluation__qrels__split", Value("")),
        **{name: Cast(name, IntegerField()) for name in ("is_baseline", "late", "pooled")},
        **{name: f"system__{name}" for name in _SYSTEM_FIELDS},
    }
    rows = entries.values_list(*(columns.get(name, name) for name in names), *extra_columns)
    return [dict(zip((*names, *extra_columns), row, strict=True)) for row in rows]


def result_facts(dataset_id: int, entry: int, row: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a new result that the news shows: its score, its baseline's, and the best other one's.

    Scores are published values of the primary measure within the comparison group, or None. References and closed APIs
    are never the best. `facts` are the dataset's columns. The database selects the best result, so two queries suffice
    for boards of any size.
    """
    measure: str = facts["primary_measure"]
    other_entries = Entry.objects.filter(
        dataset=dataset_id,
        visibility=Entry.Visibility.PUBLIC,
        comparison_group=row["comparison_group"],
    ).exclude(pk=entry)
    value = Cast(KeyTextTransform(measure, "scores"), FloatField())
    order = value.asc() if better(measure) == "lower" else value.desc()
    candidates = other_entries.exclude(Q(run_type__in=REFERENCE_TYPES) | Q(system__closed_api=True))
    leader = candidates.alias(value=value).filter(value__isnull=False).order_by(order).values_list("scores").first()
    baseline = other_entries.filter(is_baseline=True).values_list("scores", "system__name").first()
    return {
        "measure": measure,
        "value": row["scores"].get(measure),
        "baseline": baseline[0].get(measure) if baseline else None,
        "baseline_name": baseline_label(baseline[1], facts["name"]) if baseline else "",
        "best_before": leader[0][measure] if leader else None,
    }
