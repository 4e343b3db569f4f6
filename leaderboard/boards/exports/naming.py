"""What an export says its cells are: a board's view is named wherever the measure is."""

from __future__ import annotations

from collections.abc import Mapping

from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.model import EFFECTIVENESS, Board, Column

#: By view: what the cells are of the measure, and what the head of each dataset's column ends with.
_VIEWS: Mapping[str, tuple[str, str]] = {
    "delta": ("Difference to {baseline} in {measure}", "Δ"),
    "relative": ("Relative difference to {baseline} in {measure}", "Δ %"),
    "rank": ("Rank by {measure}", "rank"),
}


def measured(board: Board) -> str:
    """What the datasets' cells show: `nDCG@10`, `Rank by nDCG@10`."""
    if not board.view:
        return board.measure
    return _VIEWS[board.view][0].format(measure=board.measure, baseline=board.baseline)


def label_of(board: Board, column: Column) -> str:
    """The head of a column: `FiQA-2018`, or `FiQA-2018 Δ` where it shows differences."""
    return f"{column.label} {_VIEWS[board.view][1]}" if _is_of_view(board, column) else column.label


def key_of(board: Board, column: Column) -> str:
    """The same for programs: `fiqa`, `fiqa delta`, `fiqa relative`, `fiqa rank`."""
    return f"{column.key} {board.view}" if _is_of_view(board, column) else column.key


def datasets_of(board: Board) -> str:
    """`1 of 19 datasets, chosen by domain: Finance`; empty where the board has all of its datasets."""
    shown = sum(column.group.startswith(EFFECTIVENESS) for column in board.columns)
    every = len(board.of_datasets)
    chosen = [
        f"{facet.label.lower()}: {', '.join(option.label for option in facet.options if option.chosen)}"
        for facet in board.facets
        if facet.name in OF_DATASETS and facet.chosen
    ]
    if not chosen:
        return ""
    number = f"{shown} of {every} datasets" if shown else f"some of {every} datasets"
    return f"{number}, chosen by {'; '.join(chosen)}"


def _is_of_view(board: Board, column: Column) -> bool:
    return bool(board.view) and column.group.startswith(EFFECTIVENESS)
