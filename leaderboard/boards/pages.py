"""From a slug to its board: what page, export and API call have in common. Reads; decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple

from django.db.models import F

from leaderboard.boards.benchmark.board import benchmark_board
from leaderboard.boards.benchmark.composite import compose, has_hidden_part, wholes_of
from leaderboard.boards.benchmark.published_means import PublishedMeans, compare_published_means
from leaderboard.boards.columns.judging import describe_judges
from leaderboard.boards.dataset_board import dataset_board
from leaderboard.boards.facts import BenchmarkFacts, DatasetFacts, DatasetPart, Member
from leaderboard.boards.model import Board
from leaderboard.boards.remarks import BM25_FINDS_NOTHING, remarks
from leaderboard.boards.state import BoardState
from leaderboard.datasets.files import are_sealed, without_checksums
from leaderboard.models import Benchmark, BenchmarkMember
from leaderboard.models.datasets import Dataset, DatasetQuerySet, Protection
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import (
    BENCHMARK_CHANGED_AT,
    CHANGED_AT,
    NEVER,
    TWIN_CHANGED_AT,
    BoardRows,
    Revision,
    newest,
    rows_at,
)
from leaderboard.results.board_rows.snapshot import private_rows
from leaderboard.results.significance.reading import read_certainty
from leaderboard.results.significance.statements import statements

#: What a dataset's page shows beside its board: all of its own columns, and some of its version and judgements.
DATASET_FIELDS = (
    "pk",
    *(field.attname for field in Dataset._meta.concrete_fields),
    "current_version__number",
    "current_version__label",
    "current_version__content_sha256",
    "current_version__corpus_sha256",
    "current_version__statistics",
    "current_qrels__split",
    "current_qrels__number",
    "current_qrels__statistics",
    *(f"{half}__{name}" for half in ("twin", "twin_of") for name in ("slug", "name", "state")),
    "current_qrels__judged_by",
)


class Tombstone(NamedTuple):
    """What remains of a withdrawn entry."""

    system: str
    slug: str
    date: str
    reason: str


class DatasetPage(NamedTuple):
    """A dataset, its board, what was withdrawn from it, and the datasets that it is the mean of.

    `remarks` are sentences on its collection.
    `at` is when the board changed last, None where that is not known. `rows` is what it is made of.
    """

    dataset: dict[str, Any]
    board: Board
    tombstones: list[Tombstone]
    parts: Sequence[DatasetPart]
    at: datetime | None
    rows: Collection[BoardRows]
    remarks: Sequence[str] = ()

    @property
    def twin(self) -> dict[str, str] | None:
        """The slug and the name of the dataset with the other half of the topics, None where it has no page."""
        half = "twin_of" if self.dataset["twin_of_id"] else "twin"
        if self.dataset[f"{half}__state"] in (None, Dataset.State.PREPARING):
            return None
        return {name: self.dataset[f"{half}__{name}"] for name in ("slug", "name")}


class BenchmarkPage(NamedTuple):
    """A benchmark, its board, its datasets, and what its publication prints over all of them.

    `at` and `rows` are as of a dataset.
    """

    benchmark: dict[str, Any]
    board: Board
    members: list[Member]
    printed: PublishedMeans | None
    at: datetime | None
    rows: Collection[BoardRows]


def dataset_page(slug: str, state: BoardState, teams: Collection[int] = ()) -> DatasetPage | None:
    """The dataset's page in this view, None where there is none. Raises UnknownChoice.

    `teams` are the reader's own, whose private results stand on the board too: such a page is nobody else's.
    Six queries at most, and one more for a dataset that is the mean of its parts.
    """
    listed = DatasetQuerySet(Dataset).listed().filter(slug=slug)
    computed = {
        "changed_at": CHANGED_AT,
        "twin_changed_at": TWIN_CHANGED_AT,
        "finds_nothing": BM25_FINDS_NOTHING,
    }
    dataset = next(iter(listed.values(*DATASET_FIELDS, **computed)), None)
    if dataset is None:
        return None
    if are_sealed(dataset["hidden"], dataset["queries_visibility"]):
        dataset["current_version__content_sha256"] = ""
        dataset["current_version__statistics"] = without_checksums(
            dataset["current_version__statistics"] or {}
        )
    pk = dataset["pk"]
    parts = parts_of([pk]).get(pk, ()) if dataset["current_version_id"] is None else ()
    revisions = {pk: _revision(dataset), **{part.dataset_id: part.revision for part in parts}}
    rows = rows_at(revisions)
    entries = compose(rows[pk], parts, rows).rows.entries
    if own := private_rows([pk], teams).get(pk):
        entries = sorted([*entries, *own], key=attrgetter("published"))
    facts = composite_facts(facts_of(dataset), parts)
    said = statements([pk])[pk]
    board = dataset_board(facts, entries, state, rows[pk].measured, said.certainty, said)
    remarked = remarks(
        finds_nothing=dataset["finds_nothing"],
        statistics=dataset["current_qrels__statistics"],
        hidden=facts.hidden,
    )
    board.notes += [*notes_on_parts(parts), *remarked]
    changes = [revision.at for revision in revisions.values()]
    at = _last_change([*changes, dataset["twin_changed_at"] or changes[0]])
    return DatasetPage(dataset, board, tombstones_of(entries), parts, at, rows.values(), remarked)


def _last_change(times: Iterable[datetime | None]) -> datetime | None:
    """The time of a permalink: the last of these. None where any of them is not known yet."""
    found = list(times)
    known = [at for at in found if at not in (None, NEVER.at)]
    return max(known).replace(microsecond=0) if found and len(known) == len(found) else None


def bibtex_of(rows: Iterable[BoardRows]) -> dict[str, str]:
    """What the systems of boards say to cite, by slug."""
    return {slug: text for of_dataset in rows for slug, text in of_dataset.bibtex.items()}


def tombstones_of(entries: Sequence[EntryRow]) -> list[Tombstone]:
    """What was withdrawn."""
    return [
        Tombstone(entry.system, entry.slug, entry.published[:10], entry.withdrawal_reason)
        for entry in entries
        if entry.visibility == "withdrawn"
    ]


def notes_on_parts(parts: Sequence[DatasetPart]) -> list[str]:
    """What a reader has to know of a board that is the mean of others."""
    if not parts:
        return []
    return [
        f"Scored results are means over the {len(parts)} parts, for systems that have all of them; each part has its "
        "own board."
    ]


def composite_facts(facts: DatasetFacts, parts: Sequence[DatasetPart]) -> DatasetFacts:
    """The columns of a dataset with these parts: what is a mean over hidden judgements is shown as of hidden ones."""
    return replace(facts, hidden=True) if has_hidden_part(parts) else facts


def facts_of(dataset: Mapping[str, Any]) -> DatasetFacts:
    """What a board needs of its dataset, from the dataset's columns."""
    about = dataset.get("current_qrels__statistics") or {}
    judged_by = dataset.get("current_qrels__judged_by") or {}
    judges, agreement = describe_judges(judged_by, hidden=dataset["hidden"])
    return DatasetFacts(
        **{name: dataset[name] for name in ("name", "hidden", "primary_measure", "measures", "language")},
        version_id=dataset["current_version_id"],
        qrels_id=dataset["current_qrels_id"],
        competition=dataset["hidden"] and dataset.get("protection") == Protection.COMPETITION,
        judges=judges,
        agreement=agreement,
        relevant_per_query=None if dataset["hidden"] else about.get("relevant_per_query"),
    )


def benchmark_page(slug: str, state: BoardState, teams: Collection[int] = ()) -> BenchmarkPage | None:
    """The benchmark's page in this view, None where there is none. Raises UnknownChoice.

    `teams` are the reader's own, as for `dataset_page`. Eight queries at most, three where what its boards are made
    of is known here, and one more for teams.
    """
    benchmark = (
        Benchmark.objects.filter(slug=slug)
        .values(
            "pk",
            "slug",
            "name",
            "description",
            "citation",
            "measure",
            "source_id",
            "efficiency_from_id",
            "source__key",
            "source__title",
            "source__url",
            changed_at=BENCHMARK_CHANGED_AT,
        )
        .first()
    )
    if benchmark is None:
        return None
    members = _members(benchmark["pk"])
    facts = BenchmarkFacts(
        benchmark["name"],
        benchmark["measure"],
        members,
        benchmark["source_id"],
        benchmark["efficiency_from_id"],
    )
    read: list[Member | DatasetPart] = list(members)
    read += [part for member in members for part in member.parts]
    rows = rows_at({each.dataset_id: each.revision for each in read})
    rows |= {dataset: whole.rows for dataset, whole in wholes_of(members, rows).items()}
    datasets = [member.dataset_id for member in members]
    own, sure = private_rows(datasets, teams), read_certainty(datasets)
    board = benchmark_board(facts, rows, state, own, sure)
    printed = compare_published_means(facts, rows, benchmark["source__key"])
    times = [each.revision.at for each in read]
    at = _last_change([*times, benchmark["changed_at"]]) if times else None
    return BenchmarkPage(dict(benchmark), board, members, printed, at, rows.values())


def read_boards(seconds: float) -> list[tuple[str, str]]:
    """Read what boards are made of, so that it is known here; for about so long at most, those of benchmarks first.

    Returns the kinds and the slugs of the boards that were read.
    """
    end, read = monotonic() + seconds, list[tuple[str, str]]()
    benchmarks, datasets = Benchmark.objects.order_by("position"), Dataset.objects.listed().order_by("pk")
    for kind, page, boards in (
        ("benchmark", benchmark_page, benchmarks),
        ("dataset", dataset_page, datasets),
    ):
        for slug in boards.values_list("slug", flat=True):
            if monotonic() < end:
                page(slug, BoardState())
                read.append((kind, slug))
    return read


#: What a board needs of each dataset.
_FACTS = (
    "name",
    "hidden",
    "primary_measure",
    "measures",
    "language",
    "current_version_id",
    "current_qrels_id",
)


def _members(benchmark_id: int) -> list[Member]:
    rows: list[Any] = list(
        BenchmarkMember.objects.filter(benchmark_id=benchmark_id)
        .exclude(dataset__state=Dataset.State.PREPARING)
        .order_by("position")
        .values(
            "dataset_id",
            "counted",
            "stand_ins",
            **{name: F(f"dataset__{name}") for name in ("slug", "board_revision", "domain", "task", *_FACTS)},
            changed_at=CHANGED_AT,
        )
    )
    parts = parts_of([row["dataset_id"] for row in rows if row["current_version_id"] is None])
    return [read_member(row, _revision(row), parts.get(row["dataset_id"], [])) for row in rows]


def read_member(row: Mapping[str, Any], revision: Revision, parts: Sequence[DatasetPart]) -> Member:
    """A member from its own columns and those of its dataset."""
    columns = ("dataset_id", "slug", "counted", "stand_ins", "language", "domain", "task")
    return Member(
        **{name: row[name] for name in columns},
        facts=composite_facts(facts_of(row), parts),
        revision=revision,
        parts=parts,
    )


def _revision(dataset: Mapping[str, Any]) -> Revision:
    """The present revision of a dataset's board, from the dataset's columns."""
    return newest(dataset["board_revision"], dataset["changed_at"])


def parts_of(datasets: Collection[int]) -> dict[int, list[DatasetPart]]:
    """The parts of datasets that are the mean of others, by their ids. One query, none where there is no dataset."""
    if not datasets:
        return {}
    rows = (
        Dataset.objects.filter(part_of_id__in=datasets)
        .order_by("name")
        .values("part_of_id", "pk", "slug", "state", "board_revision", *_FACTS, changed_at=CHANGED_AT)
    )
    found: dict[int, list[DatasetPart]] = {}
    for row in rows:
        part = DatasetPart(
            row["pk"],
            row["slug"],
            facts_of(row),
            _revision(row),
            listed=row["state"] != Dataset.State.PREPARING,
        )
        found.setdefault(row["part_of_id"], []).append(part)
    return found
