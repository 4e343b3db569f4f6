"""Numbers as people read them, and a board in few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leaderboard.boards.model import Board, Column
from leaderboard.core.text.numbers import direction, format_value, signed


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """The groups of neighbouring columns, each with how many it spans."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


def summary(board: Board, number: int) -> list[dict[str, Any]]:
    """The first rows of a benchmark's board: what it is ordered by, and how that compares with BM25."""
    rows = []
    for row in board.rows[:number]:
        value, average = row.value(board.sort), row.value("average-relative")
        relative = average if isinstance(average, float) else None
        rows.append(
            {
                "rank": row.rank_label,
                "system": row.entry.system,
                "slug": row.entry.slug,
                "is_baseline": bool(row.entry.is_baseline),
                "value": format_value(value, row.decimals) if isinstance(value, float) else "—",
                "relative": signed(relative, 1, percent=True),
                "direction": direction(relative, board.measure),
                "wins": row["wins"].text or "—",
            }
        )
    return rows
