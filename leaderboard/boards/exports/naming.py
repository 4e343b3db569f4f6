"""What an export says its cells are: a board's view is named wherever the measure is."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from django.conf import settings

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


#: As addresses of past boards write a time, to the second.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Cited:
    """A board with its date. `at` is when it last changed, None where nobody wrote that down.

    `url` is its permalink in the same view, with a host; without an `at` the address of the present board.
    """

    kind: Literal["dataset", "benchmark"]
    slug: str
    name: str
    url: str
    at: datetime.datetime | None = None
    #: What each system's own page says to cite, by its slug; read for BibTeX only.
    bibtex: Mapping[str, str] = field(default_factory=dict)

    @property
    def site(self) -> str:
        """Who publishes it."""
        return settings.SITE_NAME

    @property
    def date(self) -> str:
        """`21 November 2026`, empty where it is not known."""
        return f"{self.at.day} {self.at:%B %Y}" if self.at else ""

    @property
    def moment(self) -> str:
        """`2026-11-21T17:05:09Z`, empty where it is not known."""
        return self.at.strftime(MOMENT) if self.at else ""
