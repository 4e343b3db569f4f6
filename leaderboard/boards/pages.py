"""From a slug to its board: what page, export and API call have in common. Reads; decides nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from leaderboard.boards import reading
from leaderboard.boards.benchmark_board import benchmark_board
from leaderboard.boards.collecting import BenchmarkFacts, Member
from leaderboard.boards.dataset_board import DatasetFacts, dataset_board
from leaderboard.boards.entries import entries_by_dataset
from leaderboard.boards.measured import measured_on
from leaderboard.boards.model import Board
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark, BenchmarkMember
from leaderboard.models.datasets import Dataset, DatasetQuerySet

#: What a dataset's page shows beside its board.
DATASET_FIELDS = (
    "pk",
    "slug",
    "name",
    "task",
    "domain",
    "language",
    "licence",
    "homepage",
    "citation",
    "description",
    "state",
    "hidden",
    "runs_only",
    "primary_measure",
    "measures",
    "relevance_level",
    "drop_self_matches",
    "runs_visibility",
    "current_version_id",
    "current_qrels_id",
    "current_version__number",
    "current_version__label",
    "current_version__content_sha256",
    "current_version__corpus_sha256",
    "current_version__statistics",
    "current_qrels__split",
    "current_qrels__number",
    "current_qrels__statistics",
    "reported_statistics",
    "created_at",
)


class Tombstone(NamedTuple):
    """What remains of a withdrawn entry."""

    system: str
    slug: str
    date: str
    reason: str


class DatasetPage(NamedTuple):
    """A dataset, its board, and what was withdrawn from it."""

    dataset: dict[str, Any]
    board: Board
    tombstones: list[Tombstone]


class BenchmarkPage(NamedTuple):
    """A benchmark, its board, and its datasets."""

    benchmark: dict[str, Any]
    board: Board
    members: list[Member]


def dataset_page(slug: str, state: BoardState) -> DatasetPage | None:
    """The dataset's page in this view, None where there is none. Four queries at most. Raises UnknownChoice."""
    dataset = DatasetQuerySet(Dataset).listed().filter(slug=slug).values(*DATASET_FIELDS).first()
    if dataset is None:
        return None
    entries = reading.entries_of(dataset["pk"])
    board = dataset_board(_facts(dataset), entries, state, measured_on([dataset["pk"]]))
    tombstones = [
        Tombstone(entry.system, entry.slug, entry.published[:10], entry.withdrawal_reason)
        for entry in entries
        if entry.visibility == "withdrawn"
    ]
    return DatasetPage(dataset, board, tombstones)


def _facts(dataset: dict[str, Any], prefix: str = "") -> DatasetFacts:
    return DatasetFacts(
        name=dataset[prefix + "name"],
        hidden=dataset[prefix + "hidden"],
        primary_measure=dataset[prefix + "primary_measure"],
        measures=dataset[prefix + "measures"],
        version_id=dataset[prefix + "current_version_id"],
        qrels_id=dataset[prefix + "current_qrels_id"],
    )


def benchmark_page(slug: str, state: BoardState) -> BenchmarkPage | None:
    """The benchmark's page in this view, None where there is none. Six queries at most. Raises UnknownChoice."""
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
            "source__title",
            "source__url",
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
    entries = entries_by_dataset({member.dataset_id: member.revision for member in members})
    board = benchmark_board(facts, entries, reading.systems_by_id, state)
    return BenchmarkPage(dict(benchmark), board, members)


def _members(benchmark_id: int) -> list[Member]:
    fields = ("name", "hidden", "primary_measure", "measures", "current_version_id", "current_qrels_id")
    rows = (
        BenchmarkMember.objects.filter(benchmark_id=benchmark_id)
        .exclude(dataset__state=Dataset.State.PREPARING)
        .order_by("position")
        .values(
            "dataset_id",
            "dataset__slug",
            "dataset__board_revision",
            "dataset__updated_at",
            "counted",
            "stand_ins",
            *(f"dataset__{name}" for name in fields),
        )
    )
    return [
        Member(
            dataset_id=row["dataset_id"],
            slug=row["dataset__slug"],
            facts=_facts(row, "dataset__"),
            counted=row["counted"],
            stand_ins=row["stand_ins"],
            revision=f"{row['dataset__board_revision']}:{row['dataset__updated_at'].timestamp()}",
        )
        for row in rows
    ]
