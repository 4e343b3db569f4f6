"""Order and ranks: missing last both ways, shared ranks for ties, the earlier published first among equals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from leaderboard.boards.model import EFFECTIVENESS, Board, Column, Row, Value
from leaderboard.results.kinds import UNRANKED
from leaderboard.results.places import places

#: Kinds of columns whose best values are marked.
_MARKED = ("score", "figure", "number", "rank")


def ordered(rows: Sequence[Row], place: int, order: Literal["asc", "desc"]) -> list[Row]:
    """The rows by one column. They must come in order of publication, which then decides among equals."""
    present = [row for row in rows if row.values[place] is not None]
    missing = [row for row in rows if row.values[place] is None]
    present.sort(key=lambda row: _sortable(row.values[place]), reverse=order == "desc")
    return present + missing


def _sortable(value: Value) -> tuple[float, str]:
    return (0.0, value.casefold()) if isinstance(value, str) else (value or 0.0, "")


def assign_ranks(rows: Sequence[Row], place: int, *, lower_is_better: bool = False) -> None:
    """Give each row its rank by one column among the rows of its kind: 1, 1, 3. Unranked and missing ones get none."""
    kinds: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.values[place]
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append((value, row))
    for ranked in kinds.values():
        found = places([value for value, _ in ranked], lower_is_better=lower_is_better)
        for value, row in ranked:
            row.rank = found[value]


def mark_best(board: Board, rows: Sequence[Row]) -> None:
    """Find the best and the second best value of every column that has a better direction, per kind of row."""
    kinds: dict[str, list[list[Value]]] = defaultdict(list)
    for row in rows:
        kinds[row.ranked_in].append(row.values)
    for kind in UNRANKED:
        kinds.pop(kind, None)
    for kind, of_kind in kinds.items():
        for place, values in enumerate(zip(*of_kind, strict=True)):
            column = board.columns[place]
            if column.better and (column.kind in _MARKED or _is_view(column)):
                _two_best(board, (place, kind), values, column)


def _is_view(column: Column) -> bool:
    """Whether it shows differences in the place of scores, whose best is marked as the score's would be."""
    return column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)


def _two_best(board: Board, key: tuple[int, str], values: Sequence[Value], column: Column) -> None:
    numbers: list[float] = [value for value in values if value is not None]  # type: ignore[misc]
    if len(numbers) < 2:
        return
    choose = max if column.better == "higher" else min
    board.best[key] = best = choose(numbers)
    rest = [number for number in numbers if number != best]
    if rest:
        board.second[key] = choose(rest)
