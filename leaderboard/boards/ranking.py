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
    """Find the best and the second best value of every column that has a better direction, per kind of row.

    Of values with noise the best is one that is better than every other whatever the noise, and so is the second of the
    rest: where their ranges overlap nobody knows which is the better one.
    """
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.ranked_in].append(row)
    for kind in UNRANKED:
        kinds.pop(kind, None)
    for kind, of_kind in kinds.items():
        noisy = {place for row in of_kind for place in row.noise}
        for place, values in enumerate(zip(*(row.values for row in of_kind), strict=True)):
            column = board.columns[place]
            if column.better and (column.kind in _MARKED or _is_view(column)):
                noise = [row.noise.get(place, 0.0) for row in of_kind] if place in noisy else ()
                _two_best(board, (place, kind), values, column, noise)


def _is_view(column: Column) -> bool:
    """Whether it shows differences in the place of scores, whose best is marked as the score's would be."""
    return column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)


def _two_best(
    board: Board, key: tuple[int, str], values: Sequence[Value], column: Column, noise: Sequence[float]
) -> None:
    numbers: list[float] = [value for value in values if value is not None]  # type: ignore[misc]
    if len(numbers) < 2:
        return
    choose = max if column.better == "higher" else min
    best = choose(numbers)
    rest = [number for number in numbers if number != best]
    if noise and not _is_clear(best, values, noise):
        return
    board.best[key] = best
    if rest:
        second = choose(rest)
        others = [None if value == best else value for value in values]
        if not noise or _is_clear(second, others, noise):
            board.second[key] = second


def _is_clear(value: float, values: Sequence[Value], noise: Sequence[float]) -> bool:
    """Whether the range of a value overlaps with that of no other one."""
    ranges = [(each, off) for each, off in zip(values, noise, strict=True) if isinstance(each, (int, float))]
    own = max(off for each, off in ranges if each == value)
    return all(abs(each - value) > off + own for each, off in ranges if each != value)
