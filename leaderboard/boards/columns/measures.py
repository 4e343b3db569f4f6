"""The column of a measure."""

from __future__ import annotations

from leaderboard.boards.model import EFFECTIVENESS, Column
from leaderboard.core.measures import better


def measure_column(measure: str) -> Column:
    """The column of a measure on a dataset's board."""
    return Column(
        key=measure,
        label=measure,
        group=EFFECTIVENESS,
        kind="score",
        better=better(measure),
    )
