"""The column of a measure."""

from __future__ import annotations

from typing import Any

from leaderboard.boards.model import EFFECTIVENESS, Cell, Column
from leaderboard.core.measures import better


def measure_column(
    measure: str, group: str = EFFECTIVENESS, note: str = "", *, in_focus: bool = False
) -> Column:
    """The column of a measure on a dataset's board; that of the one in focus says how its seeds spread.

    A cell in focus has the interval that was found of it, too.
    """

    def cell(line: Any) -> Cell | None:
        value = line.scores.get(measure)
        ends = (line.certainty.low, line.certainty.high) if in_focus and line.certainty is not None else None
        if value is None:
            return Cell(interval=ends) if ends else None
        if measure not in line.deviations:
            return Cell(value, interval=ends)
        spread, seeds = f"± {line.deviations[measure]:.{line.decimals}f}", line.about.seed_count
        title = f"mean of {seeds} seeds, {spread}"
        return Cell(value, title=title, spread=f"{spread} ({seeds})" if in_focus else "", interval=ends)

    return Column(measure, measure, group, "score", better(measure), note=note, cell=cell)
