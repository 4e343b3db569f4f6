"""What figures mean by how good a system is."""

from __future__ import annotations

from leaderboard.boards.model import Board
from leaderboard.figures.model import FigureRequest


def effectiveness(request: FigureRequest, board: Board) -> tuple[str, str]:
    """The column that says how good systems are, and what it has: a dataset's measure, or a mean over datasets."""
    keys = [column.key for column in board.columns]
    if request.dataset:
        return board.measure, board.measure
    if "mean" in keys:
        counted = [member.slug for member in request.benchmark_page.members if member.counted]
        return "mean", f"mean {board.measure} over {len(set(counted) & set(keys))} datasets"
    shown = next(member for member in request.benchmark_page.members if member.slug in keys)
    return shown.slug, shown.measure(board.measure)
