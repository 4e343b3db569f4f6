"""Summaries of all boards: the leader, its lead, how many systems cannot be separated from it, and the last change."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.contrib.humanize.templatetags.humanize import ordinal
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from leaderboard.boards import pages
from leaderboard.boards.model import Block, Board, Member
from leaderboard.boards.state import BoardState
from leaderboard.boards.wording import ranking_source, significance_word
from leaderboard.core.text.numbers import direction, format_value, signed_percent
from leaderboard.datasets import lists
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, DatasetQuerySet
from leaderboard.results.board_rows.entry_rows import REPORTED
from leaderboard.results.board_rows.rows import CHANGED_AT, BoardRows, matches_source
from leaderboard.results.significance.statements import lost_class, statements
from leaderboard.results.significance.types import BoardCertainty


@dataclass(frozen=True, slots=True)
class BoardCard:
    """Summary of one board for lists of boards.

    `about` contains columns of the dataset or benchmark. The rows of a dataset's `board` are in order of publication.
    `at` is the time of the last change, or None if unknown. `year` is that of a benchmark's newest figures.
    """

    kind: str
    about: Mapping[str, Any]
    board: Board
    at: datetime.datetime | None
    year: int = 0

    @property
    def url(self) -> str:
        return f"/{self.kind}s/{self.about['slug']}/"

    @property
    def score(self) -> str:
        return format_value(self.board.summary.score, 3) if self.board.summary else ""

    @property
    def delta(self) -> str:
        """Relative difference between the leader and the baseline, such as `+12.0%`, or `13×` from +900% on.

        Empty if the leader is the baseline or the board has none.
        """
        relative = self.board.summary.relative if self.board.summary else None
        return "" if not relative else f"{relative + 1:.0f}×" if relative >= 9 else signed_percent(relative)

    @property
    def direction(self) -> str:
        """CSS class of the difference, empty unless it is significant."""
        summary = self.board.summary
        if summary is None or not summary.statement.better:
            return ""
        lost = " is-lost" if summary.baseline_tied else lost_class(summary.statement)
        return direction(summary.relative, self.board.measure) + lost

    @property
    def significance(self) -> str:
        """Short verdict on the significance of the difference; empty without a difference."""
        summary = self.board.summary
        if summary is None or not self.delta:
            return ""
        return significance_word(summary.statement, is_baseline_tied=summary.baseline_tied)

    @property
    def judgements(self) -> str:
        """State of the judgments: `reported`, `hidden`, or `open`; empty for a benchmark."""
        if self.kind == "benchmark":
            return ""
        if self.about["state"] not in Dataset.TAKES_RUNS:
            return "reported"
        return "hidden" if self.about["hidden"] else "open"


class BoardCards(NamedTuple):
    """Benchmark cards with the newest figures first, and dataset cards by name with those that accept runs first.

    `total` is the number of all boards.
    """

    benchmarks: Sequence[BoardCard]
    datasets: Sequence[BoardCard]
    total: int


def board_cards(*, with_reported: bool = True) -> BoardCards:
    """Return the cards of public boards, optionally without datasets that have only reported figures.

    Takes about a dozen database queries, however many boards there are.
    """
    columns = DatasetQuerySet(Dataset).listed().values(*pages.DATASET_FIELDS, changed_at=CHANGED_AT)
    datasets = {row["pk"]: row for row in columns}
    parts = pages.read_parts([dataset_id for dataset_id, row in datasets.items() if row["current_version_id"] is None])
    members = {dataset_id: pages.read_member(row, parts.get(dataset_id, ())) for dataset_id, row in datasets.items()}
    rows, board_statements, state = pages.read_rows(members.values()), statements(datasets), BoardState()
    cards = [
        BoardCard("dataset", row, ranked.board, datasets[row["pk"]]["changed_at"])
        for row in lists.datasets()
        if row["pk"] in datasets and (with_reported or row["takes_runs"])
        for ranked in [pages.ranked_dataset(members[row["pk"]], rows, board_statements[row["pk"]], state)]
    ]
    members_by_benchmark: defaultdict[int, list[Member]] = defaultdict(list)
    memberships = BenchmarkMember.objects.filter(dataset__in=datasets).order_by("position")
    for membership in memberships.values("benchmark_id", "dataset_id", "counted", "stand_ins"):
        dataset_id = membership["dataset_id"]
        # Use the columns that the benchmark's page reads, so that both share one cached ranking.
        facts = {**datasets[dataset_id], **membership, **_WITHOUT_JUDGING}
        members_by_benchmark[membership["benchmark_id"]].append(pages.read_member(facts, parts.get(dataset_id, ())))
    certainty = {dataset_id: board.certainty for dataset_id, board in board_statements.items() if board.certainty}
    benchmarks = Benchmark.objects.order_by("position", "name").values(
        "pk", "slug", "name", "description", "measure", "source_id", "efficiency_from_id"
    )
    benchmark_cards = [_benchmark_card(row, members_by_benchmark[row["pk"]], rows, certainty) for row in benchmarks]
    return BoardCards(sorted(benchmark_cards, key=lambda card: -card.year), cards, len(datasets) + len(benchmark_cards))


def benchmark_places(slug: str) -> list[tuple[Any, ...]]:
    """Return the cards of benchmarks with a system's mean, rank, number of ranked systems, source, and coverage there.

    The source is empty for results that Runboard scored.
    """
    return [
        (
            card,
            row.value(card.board.sort),
            row.rank,
            sum(peer.rank is not None and peer.ranking == row.ranking for peer in card.board.rows),
            ranking_source(row) if row.ranked_in == REPORTED else "",
            row["coverage"].text,
        )
        for card in board_cards(with_reported=False).benchmarks
        for row in card.board.rows
        if row.entry.slug == slug
    ]


def standing_lines() -> dict[str, str]:
    """Return a line about each board and each ranked system by URL, in about a dozen database queries.

    A board has its number of systems and its best system. A system has its best place, as a share of the systems on the
    board that precede it; of equal shares, that on the board with most systems.
    """
    lines: dict[str, str] = {}
    best_places: dict[str, tuple[float, int]] = {}
    cards = board_cards()
    for card in (*cards.benchmarks, *cards.datasets):
        board, ranked_rows = card.board, [row for row in card.board.rows if row.rank is not None]
        sizes = Counter(row.ranking for row in ranked_rows)
        if board.summary:
            facts = {"total": board.total, "name": board.summary.name, "score": f"{board.measure} {card.score}"}
            text = ngettext("%(total)d system: %(name)s", "%(total)d systems, best: %(name)s", board.total)
            lines[card.url] = _("%(systems)s with %(score)s") % {**facts, "systems": text % facts}
        for row in ranked_rows:
            url, ranked_count, rank = f"/systems/{row.entry.slug}/", sizes[row.ranking], row.rank or 0
            if (place := ((rank - 1) / ranked_count, -ranked_count)) < best_places.get(url, (1, 0)):
                value = row.value(board.sort) if card.kind == "benchmark" else row.entry.scores.get(board.measure)
                facts = {"rank": ordinal(rank), "of": ranked_count, "board": card.about["name"]}
                score = f"{board.measure} {format_value(value if isinstance(value, float) else None, 3)}"
                best_places[url], lines[url] = place, _("%(rank)s of %(of)d on %(board)s") % facts + f", {score}"
    return lines


_WITHOUT_JUDGING = dict.fromkeys(("protection", "current_qrels__statistics", "current_qrels__judged_by"))


def _benchmark_card(
    row: Mapping[str, Any],
    members: Sequence[Member],
    rows: Mapping[int, BoardRows],
    certainty: Mapping[int, BoardCertainty],
) -> BoardCard:
    """Rank a benchmark's members and return its card.

    It has the number of counted members, the names of the others, and the number of systems with results on all
    counted members. The time is that of the last change of any member or part.
    """
    facts = pages.benchmark_facts(row, members)
    state = BoardState(all_rows=True)
    board = pages.ranked_benchmark(facts, rows, state).view(state, certainty)
    uncounted = [member.facts.name for member in members if not member.counted]
    complete_rows = sum(board.get_block(row) <= Block.REPORTED for row in board.rows)
    about = {**row, "counted": len(facts.counted), "uncounted": uncounted, "complete": complete_rows}
    about["datasets"] = {member.dataset_id for member in members}
    changes = (part.revision.at for member in members for part in (member, *member.parts))
    years = [
        (entry.source_year or 0) if entry.reported_by else int(entry.published[:4])
        for member in members
        for entry in rows[member.dataset_id].entries
        if matches_source(entry.reported_by, row["source_id"]) and member.measure(row["measure"]) in entry.scores
    ]
    return BoardCard("benchmark", about, board, max(changes, default=None), max(years, default=0))
