"""Order and ranks: missing last both ways, shared ranks for ties, the earlier published first among equals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Literal

from leaderboard.boards.model import EFFECTIVENESS, Board, Cell, Column, Row
from leaderboard.results.kinds import UNRANKED
from leaderboard.results.places import places

#: Kinds of columns whose best values are marked.
_MARKED = ("score", "figure", "number", "rank")


def ordered(rows: Sequence[Row], key: str, order: Literal["asc", "desc"]) -> list[Row]:
    """The rows by one column. They must come in order of publication, which then decides among equals."""
    values = [(row.value(key), row) for row in rows]
    present = [(_sortable(value), row) for value, row in values if value is not None]
    present.sort(key=itemgetter(0), reverse=order == "desc")
    return [row for _, row in present] + [row for value, row in values if value is None]


def _sortable(value: float | str) -> tuple[float, str]:
    return (0.0, value.casefold()) if isinstance(value, str) else (value, "")


def assign_ranks(rows: Sequence[Row], key: str, *, lower_is_better: bool = False) -> None:
    """Give each row its rank by one column among the rows of its kind: 1, 1, 3. Unranked and missing ones get none."""
    kinds: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        value = row.value(key)
        row.rank = None
        if isinstance(value, (float, int)) and row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append((value, row))
    for ranked in kinds.values():
        found = places([value for value, _ in ranked], lower_is_better=lower_is_better)
        for value, row in ranked:
            row.rank = found[value]


def mark_best(board: Board, rows: Sequence[Row]) -> None:
    """Find the best and the second best value of every column that has a better direction, per kind of row.

    Of values with noise the best is one that is better than every other whatever the noise, and so is the second of the
    rest: where their ranges overlap nobody knows which is the better one.
    """
    kinds: dict[str, list[dict[str, Cell]]] = defaultdict(list)
    for row in rows:
        if row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append(row.cells)
    marked = [
        column for column in board.columns if column.better and (column.kind in _MARKED or _is_view(column))
    ]
    for kind, of_kind in kinds.items():
        for column in marked:
            cells = [cell for cells in of_kind if (cell := cells.get(column.key)) and cell.value is not None]
            _two_best(board, (column.key, kind), cells, column)


def _is_view(column: Column) -> bool:
    """Whether it shows differences in the place of scores, whose best is marked as the score's would be."""
    return column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)


def _two_best(board: Board, key: tuple[str, str], cells: Sequence[Cell], column: Column) -> None:
    if len(cells) < 2:
        return
    choose = max if column.better == "higher" else min
    numbers: list[float] = [cell.value for cell in cells]  # type: ignore[misc]
    best = choose(numbers)
    noisy = column.kind == "figure" and any(cell.noise for cell in cells)
    if noisy and not _is_clear(best, cells):
        return
    board.best[key] = best
    rest = [number for number in numbers if number != best]
    if rest:
        second = choose(rest)
        if not noisy or _is_clear(second, [cell for cell in cells if cell.value != best]):
            board.second[key] = second


def _is_clear(value: float, cells: Sequence[Cell]) -> bool:
    """Whether the range of a value overlaps with that of no other one."""
    ranges = [(cell.value, cell.noise) for cell in cells if isinstance(cell.value, (float, int))]
    own = max(off for each, off in ranges if each == value)
    return all(abs(each - value) > off + own for each, off in ranges if each != value)
