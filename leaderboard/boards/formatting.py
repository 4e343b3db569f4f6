"""Columns as people read them."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.boards.model import Column


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """The groups of neighbouring columns, each with how many it spans."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found
