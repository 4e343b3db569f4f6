"""Suggested comparisons: the two best comparable systems of boards."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from django.urls import reverse

from leaderboard.boards.filtering import apply_view
from leaderboard.boards.model import Board, Row
from leaderboard.boards.state import BoardState
from leaderboard.comparison.leaders import BoardCard, board_cards
from leaderboard.comparison.selection import CompareState
from leaderboard.core.text.numbers import format_value

MAX_SUGGESTIONS = 6


class SuggestedComparison(NamedTuple):
    """The two best comparable systems of a dataset's board, with their scores; `url` is their comparison."""

    card: BoardCard
    names: Sequence[str]
    scores: Sequence[str]
    url: str


def suggested_comparisons() -> list[SuggestedComparison]:
    """Return the best pairs of boards with open or reported results, boards with the newest results first.

    A pair that is the best on several boards is suggested once. Takes about a dozen database queries.
    """
    cards = [card for card in board_cards().datasets if card.judgements != "hidden"]
    cards.sort(key=lambda card: -card.at.timestamp() if card.at else 0.0)
    suggestions: dict[frozenset[str], SuggestedComparison] = {}
    for card in cards:
        if pair := _best_pair(card.board):
            slugs = tuple(row.entry.slug for row in sorted(pair, key=lambda row: not row.entry.is_baseline))
            # The section by query requires open judgments.
            state = CompareState(slugs, card.about["slug"] if card.judgements == "open" else "")
            names = [row.entry.system for row in pair]
            scores = [format_value(row.entry.scores.get(card.board.measure), 3) for row in pair]
            suggestion = SuggestedComparison(card, names, scores, reverse("compare") + state.query_string())
            suggestions.setdefault(frozenset(slugs), suggestion)
    return list(suggestions.values())[:MAX_SUGGESTIONS]


def _best_pair(board: Board) -> tuple[Row, Row] | None:
    """Return the first two ranked rows of different systems in one comparison group, or None."""
    rows = [row for row in apply_view(board, BoardState(), board.measure).rows if row.rank is not None]
    for first, second in combinations(rows, 2):
        if first.entry.comparison_group == second.entry.comparison_group and first.entry.slug != second.entry.slug:
            return first, second
    return None
