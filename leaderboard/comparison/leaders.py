"""Summaries of all boards: leader, lead, number of systems not separable from it, and last change."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from leaderboard.boards import pages
from leaderboard.boards.model import BenchmarkFacts, Board, Member
from leaderboard.boards.state import BoardState
from leaderboard.core.text.numbers import direction, format_value, signed_percent
from leaderboard.datasets import lists
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, DatasetQuerySet
from leaderboard.results.board_rows.rows import CHANGED_AT, BoardRows
from leaderboard.results.significance.statements import statements
from leaderboard.results.significance.types import BoardCertainty


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


def board_cards() -> BoardCards:
    """Return all boards as everyone sees them. A dozen queries, however many boards there are."""
    columns = DatasetQuerySet(Dataset).listed().values(*pages.DATASET_FIELDS, changed_at=CHANGED_AT)
    datasets = {row["pk"]: row for row in columns}
    parts = pages.parts_of([pk for pk, row in datasets.items() if row["current_version_id"] is None])
    members = {pk: pages.read_member(row, parts.get(pk, ())) for pk, row in datasets.items()}
    rows, said, state = pages.read_rows(members.values()), statements(datasets), BoardState()
    cards = [
        BoardCard(
            "dataset",
            row,
            pages.dataset_board(members[row["pk"]], rows, said[row["pk"]], state),
            datasets[row["pk"]]["changed_at"],
        )
        for row in lists.datasets()
        if row["pk"] in datasets
    ]
    of_benchmarks: dict[int, list[Member]] = {}
    found = BenchmarkMember.objects.filter(dataset__in=datasets).order_by("position")
    for each in found.values("benchmark_id", "dataset_id", "counted", "stand_ins"):
        pk = each["dataset_id"]
        # Without facts that no benchmark shows, as its own page reads it: both use the same ranked board.
        about = {**datasets[pk], **each, **_NO_JUDGES}
        of_benchmarks.setdefault(each["benchmark_id"], []).append(pages.read_member(about, parts.get(pk, ())))
    certainty = {pk: each.certainty for pk, each in said.items() if each.certainty is not None}
    benchmarks = Benchmark.objects.order_by("position", "name").values(
        "pk", "slug", "name", "description", "measure", "source_id", "efficiency_from_id"
    )
    return BoardCards(
        [_benchmark_card(row, of_benchmarks.get(row["pk"], []), rows, certainty) for row in benchmarks], cards
    )


_NO_JUDGES = dict.fromkeys(("protection", "current_qrels__statistics", "current_qrels__judged_by"))


def _benchmark_card(
    row: Mapping[str, Any],
    members: Sequence[Member],
    rows: Mapping[int, BoardRows],
    certainty: Mapping[int, BoardCertainty],
) -> BoardCard:
    facts = BenchmarkFacts(row["name"], row["measure"], members, row["source_id"], row["efficiency_from_id"])
    board = pages.benchmark_board(facts, rows, certainty, BoardState())
    counted = len(facts.counted)
    about = {**row, "counted": counted, "uncounted": len(members) - counted}
    changes = (each.revision.at for member in members for each in (member, *member.parts))
    return BoardCard("benchmark", about, board, max(changes, default=None))
