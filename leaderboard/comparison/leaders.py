"""Summaries of all boards: leader, lead, number of systems not separable from it, and last change."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from leaderboard.boards import pages
from leaderboard.boards.benchmark.board import benchmark_board
from leaderboard.boards.benchmark.composite import compose, wholes_of
from leaderboard.boards.dataset_board import dataset_board
from leaderboard.boards.facts import BenchmarkFacts, DatasetPart, Member
from leaderboard.boards.model import Board
from leaderboard.boards.state import BoardState
from leaderboard.core.text.numbers import direction, format_value, signed_percent
from leaderboard.datasets import lists
from leaderboard.models import Benchmark, BenchmarkMember, Dataset
from leaderboard.models.datasets import DatasetQuerySet
from leaderboard.results.board_rows.rows import CHANGED_AT, BoardRows, Revision, newest, rows_at
from leaderboard.results.significance.statements import BoardStatements, statements


@dataclass(frozen=True, slots=True)
class BoardCard:
    """A board, what it is about (`about`: columns of its dataset or benchmark), and since when it is as it is."""

    kind: str
    about: Mapping[str, Any]
    board: Board
    at: datetime.datetime | None

    @property
    def url(self) -> str:
        """Its page."""
        return f"/{self.kind}s/{self.about['slug']}/"

    @property
    def score(self) -> str:
        """That of the leader."""
        return format_value(self.board.summary.score, 3) if self.board.summary else ""

    @property
    def delta(self) -> str:
        """How far the leader is from the baseline, empty where it is the baseline, or there is none."""
        relative = self.board.summary.relative if self.board.summary else None
        return signed_percent(relative) if relative else ""

    @property
    def direction(self) -> str:
        """Return the class of the difference, empty unless it is significant and the baseline is separable."""
        summary = self.board.summary
        if summary is None or not summary.statement.better or summary.baseline_tied:
            return ""
        return direction(summary.relative, self.board.measure)

    @property
    def judgements(self) -> str:
        """What is judged how, as a facet has it; empty for a benchmark."""
        if self.kind == "benchmark":
            return ""
        if self.about["state"] not in Dataset.TAKES_RUNS:
            return "reported"
        return "hidden" if self.about["hidden"] else "open"


class BoardCards(NamedTuple):
    """Those of benchmarks, in the site's order, and those of datasets, by name, such as take runs first."""

    benchmarks: Sequence[BoardCard]
    datasets: Sequence[BoardCard]


class _Read(NamedTuple):
    """What boards are made of, by dataset."""

    datasets: Mapping[int, Mapping[str, Any]]
    parts: Mapping[int, Sequence[DatasetPart]]
    rows: Mapping[int, BoardRows]
    said: Mapping[int, BoardStatements]

    def revision(self, pk: int) -> Revision:
        return newest(self.datasets[pk]["board_revision"], self.datasets[pk]["changed_at"])


def board_cards() -> BoardCards:
    """All boards, as everyone sees them. A dozen queries, however many boards there are."""
    columns = DatasetQuerySet(Dataset).listed().values(*pages.DATASET_FIELDS, changed_at=CHANGED_AT)
    datasets = {row["pk"]: row for row in columns}
    parts = pages.parts_of([pk for pk, row in datasets.items() if row["current_version_id"] is None])
    found = _Read(datasets, parts, {}, statements(datasets))
    revisions = {pk: found.revision(pk) for pk in datasets}
    revisions |= {part.dataset_id: part.revision for each in parts.values() for part in each}
    found = found._replace(rows=rows_at(revisions))
    cards = [_dataset_card(found, row) for row in lists.datasets() if row["pk"] in datasets]
    return BoardCards(_benchmark_cards(found), cards)


def _dataset_card(found: _Read, row: Mapping[str, Any]) -> BoardCard:
    pk = row["pk"]
    dataset, parts, said = found.datasets[pk], found.parts.get(pk, ()), found.said[pk]
    entries = compose(found.rows[pk], parts, found.rows).rows.entries
    facts = pages.composite_facts(pages.facts_of(dataset), parts)
    measured = found.rows[pk].measured
    board = dataset_board(facts, entries, BoardState(), measured, said.certainty, said)
    return BoardCard("dataset", row, board, dataset["changed_at"])


def _benchmark_cards(found: _Read) -> list[BoardCard]:
    members: dict[int, list[Member]] = {}
    rows = BenchmarkMember.objects.filter(dataset__in=found.datasets).order_by("position")
    for row in rows.values("benchmark_id", "dataset_id", "counted", "stand_ins"):
        pk = row["dataset_id"]
        # As a benchmark's own page reads it, so that both find the same board remembered.
        columns = {**found.datasets[pk], **row, "protection": None}
        member = pages.read_member(columns, found.revision(pk), found.parts.get(pk, []))
        members.setdefault(row["benchmark_id"], []).append(member)
    benchmarks = Benchmark.objects.order_by("position", "name").values(
        "pk", "slug", "name", "description", "measure", "source_id", "efficiency_from_id"
    )
    return [_benchmark_card(found, row, members.get(row["pk"], [])) for row in benchmarks]


def _benchmark_card(found: _Read, row: Mapping[str, Any], members: Sequence[Member]) -> BoardCard:
    facts = BenchmarkFacts(row["name"], row["measure"], members, row["source_id"], row["efficiency_from_id"])
    read: list[Member | DatasetPart] = [*members, *(part for member in members for part in member.parts)]
    rows = {each.dataset_id: found.rows[each.dataset_id] for each in read}
    rows |= {dataset: whole.rows for dataset, whole in wholes_of(members, rows).items()}
    sure = {
        pk: said.certainty
        for pk in (member.dataset_id for member in members)
        if (said := found.said[pk]).certainty is not None
    }
    board = benchmark_board(facts, rows, BoardState(), {}, sure)
    counted = len(facts.counted)
    about = {**row, "counted": counted, "uncounted": len(members) - counted}
    return BoardCard("benchmark", about, board, _last(read))


def _last(read: Iterable[Member | DatasetPart]) -> datetime.datetime | None:
    return max((each.revision.at for each in read), default=None)
