"""Order and ranks: missing last both ways, shared ranks for ties, the earlier published first among equals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal

from leaderboard.boards.model import EFFECTIVENESS, Board, Column, Row
from leaderboard.results.kinds import UNRANKED
from leaderboard.results.places import places

#: Kinds of columns whose best values are marked.
_MARKED = ("score", "figure", "number", "rank")


def ordered(rows: Sequence[Row], key: str, order: Literal["asc", "desc"]) -> list[Row]:
    """The rows by one column. They must come in order of publication, which then decides among equals."""
    present = [(value, row) for row in rows if (value := row.value(key)) is not None]
    missing = [row for row in rows if row.value(key) is None]
    texts = [(value.casefold(), row) for value, row in present if isinstance(value, str)]
    ordered_rows = sorted(texts or present, key=itemgetter(0), reverse=order == "desc")
    return [row for _, row in ordered_rows] + missing


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
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ranked_in not in UNRANKED:
            kinds[row.ranked_in].append(row)
    marked = [
        column for column in board.columns if column.better and (column.kind in _MARKED or _is_view(column))
    ]
    for kind, of_kind in kinds.items():
        for column in marked:
            for found, value in zip((board.best, board.second), _two_best(column, of_kind), strict=False):
                found[column.key, kind] = value


def _is_view(column: Column) -> bool:
    """Whether it shows differences in the place of scores, whose best is marked as the score's would be."""
    return column.kind in ("delta", "relative") and column.group.startswith(EFFECTIVENESS)


def _two_best(column: Column, rows: Sequence[Row]) -> list[float]:
    """The best and the second best distinct value, as far as noise leaves no doubt of them."""
    key, choose = column.key, max if column.better == "higher" else min
    numbers: list[Any] = [value for row in rows if (value := row.values.get(key)) is not None]
    noisy = column.kind == "figure" and any(row[key].noise for row in rows)
    ranges = (
        [(value, row[key].noise) for row in rows if (value := row.values.get(key)) is not None]
        if noisy
        else []
    )
    found: list[float] = []
    while numbers and len(found) < 2:
        best = choose(numbers)
        if (len(numbers) < 2 and not found) or (noisy and not _is_clear(best, ranges)):
            break
        found.append(best)
        numbers = [number for number in numbers if number != best]
        ranges = [each for each in ranges if each[0] != best]
    return found


def _is_clear(value: float, ranges: Sequence[tuple[Any, float]]) -> bool:
    """Whether the range of a value overlaps with that of no other one."""
    own = max(off for each, off in ranges if each == value)
    return all(abs(each - value) > off + own for each, off in ranges if each != value)
