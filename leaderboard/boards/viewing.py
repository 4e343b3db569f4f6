"""From all rows of a board to the ones that a view shows: facets, ranges, order, pins, pages. Both boards end here."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.boards.model import Board, Column, Row
from leaderboard.boards.ranking import mark_best, ordered
from leaderboard.boards.state import ROWS_OF_A_PAGE, BoardState, Sort, UnknownChoice


def arrange(board: Board, state: BoardState, default: str) -> Board:
    """Leave of the board's rows those that the view shows, in its order; `default` is the column sorted by otherwise.

    The rows must be all there are, ranked, in order of publication. Best and second are found among all of them, so
    that no filter moves these. Raises UnknownChoice for a column that the board does not have.
    """
    every = board.rows
    board.total = len(every)
    board.sorts = resolved_sorts(board.columns, state, default)
    mark_best(board, every)
    found = in_view(board, every, state)
    for sort in reversed(board.sorts):
        place = board.index(sort.key)
        found = ordered(found, place, sort.order or board.columns[place].first_order)
    board.found = len(found)
    _take_page(board, found, state)
    pinned = [row for slug in state.pins for row in ranked_first(every, board) if row.entry.slug == slug]
    board.pinned = len(pinned)
    board.rows = pinned + [row for row in board.rows if row.entry.slug not in state.pins]
    return board


def ranked_first(rows: Sequence[Row], board: Board) -> Sequence[Row]:
    """The rows in the board's order, for pins: a system's several rows keep theirs."""
    first = board.sorts[0]
    place = board.index(first.key)
    return ordered(rows, place, first.order or board.columns[place].first_order)


def resolved_sorts(columns: Sequence[Column], state: BoardState, default: str) -> list[Sort]:
    """The columns that decide the order, each with its order. Raises UnknownChoice."""
    by_key = {column.key: column for column in columns}
    sorts = []
    for sort in state.sorts or (Sort(default),):
        key = sort.key or default
        if key not in by_key:
            raise UnknownChoice("sort", key, by_key)
        sorts.append(Sort(key, sort.order or by_key[key].first_order))
    return sorts


def in_view(board: Board, rows: Sequence[Row], state: BoardState) -> list[Row]:
    """The rows that the view shows, on all of its pages. Raises UnknownChoice for a range of no numeric column."""
    found = list(rows)
    if state.filtered:
        found = [row for row in found if _matches(row, state)]
    numeric = {column.key: place for place, column in enumerate(board.columns) if column.numeric}
    for key, low, high in state.ranges:
        if key not in numeric:
            raise UnknownChoice("range", key, numeric)
        found = [row for row in found if _within(row.values[numeric[key]], low, high)]
    return found


def _matches(row: Row, state: BoardState) -> bool:
    entry = row.entry
    for name, chosen in (
        ("architecture", entry.architecture),
        ("provenance", entry.provenance),
        ("training", entry.training),
    ):
        wanted = state.chosen(name)
        if wanted and chosen not in wanted:
            return False
    text = state.text.casefold()
    named = (entry.system, entry.configuration, entry.team or "", entry.source_key or "")
    return not text or any(text in part.casefold() for part in named)


def _within(value: object, low: float | None, high: float | None) -> bool:
    if not isinstance(value, (int, float)):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def _take_page(board: Board, found: Sequence[Row], state: BoardState) -> None:
    """The page's rows. A board of a thousand systems comes in pages: a browser would lay out all of them at once."""
    if state.all_rows or len(found) <= ROWS_OF_A_PAGE:
        board.rows, board.page, board.pages = list(found), 1, 1
        return
    board.pages = -(-len(found) // ROWS_OF_A_PAGE)
    board.page = min(state.page, board.pages)
    first = (board.page - 1) * ROWS_OF_A_PAGE
    board.rows = list(found[first : first + ROWS_OF_A_PAGE])
