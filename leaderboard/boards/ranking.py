"""Order and ranks: missing last both ways, shared ranks for ties, the earlier published first among equals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from leaderboard.boards.model import STALE, Board, Column, Row, Value


def ordered(rows: Sequence[Row], place: int, order: Literal["asc", "desc"]) -> list[Row]:
    """The rows by one column. They must come in order of publication, which then decides among equals."""
    present = [row for row in rows if row.values[place] is not None]
    missing = [row for row in rows if row.values[place] is None]
    present.sort(key=lambda row: _sortable(row.values[place]), reverse=order == "desc")
    return present + missing


def _sortable(value: Value) -> tuple[float, str]:
    return (0.0, value.casefold()) if isinstance(value, str) else (value or 0.0, "")


def assign_ranks(rows: Sequence[Row], place: int, *, lower_is_better: bool = False) -> None:
    """Give each row its rank by one column among the rows of its kind: 1, 1, 3. Stale and missing ones get none."""
    kinds: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.values[place]
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in != STALE:
            kinds[row.ranked_in].append((value, row))
    for ranked in kinds.values():
        ranked.sort(key=lambda pair: pair[0], reverse=not lower_is_better)
        previous, rank = None, 0
        for position, (value, row) in enumerate(ranked, start=1):
            if value != previous:
                previous, rank = value, position
            row.rank = rank


def mark_best(board: Board, rows: Sequence[Row]) -> None:
    """Find the best and the second best value of every column that has a better direction, per kind of row."""
    for place, column in enumerate(board.columns):
        if column.kind not in ("score", "figure") or not column.better:
            continue
        kinds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            value = row.values[place]
            if isinstance(value, (float, int)) and row.ranked_in != STALE:
                kinds[row.ranked_in].append(value)
        for kind, values in kinds.items():
            _two_best(board, (place, kind), values, column)


def _two_best(board: Board, key: tuple[int, str], values: list[float], column: Column) -> None:
    if len(values) < 2:
        return
    distinct = sorted(set(values), reverse=column.better == "higher")
    board.best[key] = distinct[0]
    if len(distinct) > 1:
        board.second[key] = distinct[1]
