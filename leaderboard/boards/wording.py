"""Numbers as people read them, and a board in few words."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, isfinite, log10
from typing import NamedTuple

from leaderboard.boards.measures import better
from leaderboard.boards.model import Board, Column

MINUS = "\u2212"


def written(value: float | None, decimals: int) -> str:
    """A value as text, a dash where there is none."""
    return "—" if value is None else f"{value:.{decimals}f}"


def signed(value: float | None, decimals: int, *, percent: bool = False) -> str:
    """A difference as text, with its sign."""
    if value is None:
        return "—"
    if value == 0:
        return f"±{0:.{decimals}f}"
    return f"{value * 100 if percent else value:+.{decimals}f}".replace("-", MINUS)


def significant(value: float, digits: int = 3) -> str:
    """A quantity as people read it: three significant digits, whole numbers in full with commas, never an exponent."""
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - floor(log10(abs(value)))
    return f"{value:,.{max(decimals, 0)}f}"


def direction(value: float | None, measure: str) -> str:
    """The class of a difference: `up` is better and `down` worse, whichever way the measure goes."""
    if not value:
        return ""
    return "up" if (value > 0) == (better(measure) == "higher") else "down"


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """The groups of neighbouring columns, each with how many it spans."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


class SummaryRow(NamedTuple):
    """A row of a board in few words, for the home page."""

    rank: str
    system: str
    slug: str
    is_baseline: bool
    value: str
    relative: str
    direction: str
    wins: str


def summary(board: Board, number: int) -> list[SummaryRow]:
    """The first rows of a benchmark's board: what it is ordered by, and how that compares with BM25."""
    keys = {column.key: place for place, column in enumerate(board.columns)}
    place, average, won = keys[board.sort], keys.get("average-relative"), keys.get("wins")
    rows = []
    for row in board.rows[:number]:
        value = row.values[place]
        found = row.values[average] if average else None
        relative = found if isinstance(found, float) else None
        rows.append(
            SummaryRow(
                rank=row.rank_label,
                system=row.entry.system,
                slug=row.entry.slug,
                is_baseline=bool(row.entry.is_baseline),
                value=written(value, row.decimals) if isinstance(value, float) else "—",
                relative=signed(relative, 1, percent=True),
                direction=direction(relative, board.measure),
                wins=row.shown.get(won, "—") if won else "—",
            )
        )
    return rows
