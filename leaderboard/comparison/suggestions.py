"""Suggested comparisons: the two best comparable systems of boards."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _

from leaderboard.boards.filtering import apply_view
from leaderboard.boards.model import Board, Row
from leaderboard.boards.state import BoardState
from leaderboard.comparison.leaders import BoardCard, board_cards
from leaderboard.comparison.selection import CompareState
from leaderboard.core.text.numbers import difference, format_value, signed

MAX_SUGGESTIONS = 6


class SuggestedComparison(NamedTuple):
    """The two best comparable systems of a dataset's board, with their scores; `url` is their comparison.

    `verdict` is the difference of the first from the second, and whether the tests of the board separate them.
    `is_tested` is false if there are no such tests.
    """

    card: BoardCard
    names: Sequence[str]
    scores: Sequence[str]
    verdict: str
    url: str
    is_tested: bool


def suggested_comparisons() -> list[SuggestedComparison]:
    """Return the best pairs of boards with open or reported results: tested ones first, then the newest results.

    A pair that is the best on several boards is suggested once. Takes about a dozen database queries.
    """
    cards = [card for card in board_cards().datasets if card.judgements != "hidden"]
    cards.sort(key=lambda card: -card.at.timestamp() if card.at else 0.0)
    suggestions: dict[frozenset[str], SuggestedComparison] = {}
    for card in cards:
        if pair := _best_pair(card.board):
            # A comparison shows differences from its first system, and the verdict the lead of the best.
            reference = pair[0] if pair[0].entry.is_baseline else pair[1]
            slugs = tuple(row.entry.slug for row in sorted(pair, key=lambda row: row is not reference))
            # The section by query requires open judgments.
            state = CompareState(slugs, card.about["slug"] if card.judgements == "open" else "")
            names = [row.entry.system for row in pair]
            values = [row.entry.scores.get(card.board.measure) for row in pair]
            scores = [format_value(value, 3) for value in values]
            statement = card.board.statements.for_entry(pair[1].first_entry, card.board.measure)
            is_tied = statement.tied_with_best if pair[0].rank == 1 else None
            separation = {None: _("not tested"), True: _("not separable"), False: _("separable")}[is_tied]
            verdict = f"{signed(difference(*values), 3)}, {separation}"
            url = reverse("compare") + state.query_string()
            suggestion = SuggestedComparison(card, names, scores, verdict, url, is_tied is not None)
            suggestions.setdefault(frozenset(slugs), suggestion)
    return sorted(suggestions.values(), key=lambda suggestion: not suggestion.is_tested)[:MAX_SUGGESTIONS]


def _best_pair(board: Board) -> tuple[Row, Row] | None:
    """Return the first two ranked rows of different systems in one comparison group, or None."""
    rows = [row for row in apply_view(board, BoardState(), board.measure).rows if row.rank is not None]
    for first, second in combinations(rows, 2):
        if first.entry.comparison_group == second.entry.comparison_group and first.entry.slug != second.entry.slug:
            return first, second
    return None
