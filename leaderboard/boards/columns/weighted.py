"""The column of the score that a reader weighs, on boards of datasets and of benchmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leaderboard.boards.columns.weighted_score import average_rate, weighted_score
from leaderboard.boards.model import EFFICIENCY, Board, Cell, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.results.kinds import UNRANKED

WEIGHTED = "weighted-score"
#: What is weighed, and the column that says it.
COST_COLUMNS = {"latency": "mean-latency", "memory": "peak-memory", "cost": "cost-per-million"}
#: So many systems of the fixed set are named below the board; the set itself has no limit.
NAMED = 12


def weighted_column(group: str = EFFICIENCY) -> Column:
    """The column, in the group where the board shows it."""
    return Column(
        WEIGHTED,
        "Weighted score",
        group,
        "number",
        "higher",
        note="Dynascore: effectiveness less costs, each over its rate of exchange, by the weights of this view",
    )


def fill_weighted(
    board: Board,
    effectiveness: Sequence[float | None],
    state: BoardState,
    *,
    lower_is_better: bool = False,
) -> list[str]:
    """Weigh every row of the board, which must have all its rows, with what they cost, in the order of `effectiveness`.

    Rates of exchange are over all rows that were measured on the board's machine and have an effectiveness and every
    weighed cost, whatever the view hides: a filter moves no score. What a reader has to know is returned as notes.
    """
    weights = dict(state.weights)
    wanted = {name: COST_COLUMNS[name] for name in weights if name in COST_COLUMNS}
    shown = {column.key for column in board.columns}
    unmeasured = [name for name, key in wanted.items() if key not in shown]
    if unmeasured:
        return [f"No weighted score: nothing here has a measured {' or '.join(unmeasured)}."]
    sign = -1.0 if lower_is_better else 1.0
    complete: list[tuple[Row, float]] = [
        (row, sign * value)
        for row, value in zip(board.rows, effectiveness, strict=True)
        if value is not None
        and row.measured is not None
        and row.ranked_in not in UNRANKED
        and all(row.value(key) is not None for key in wanted.values())
    ]
    values = [value for _, value in complete]
    rates = {
        name: average_rate(values, [float(row.value(key) or 0.0) for row, _ in complete])
        for name, key in wanted.items()
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < len(rates):
        return [
            "No weighted score: a rate of exchange needs two measured systems of different effectiveness."
        ]
    for row, value in complete:
        costs = {name: float(row.value(key) or 0.0) for name, key in wanted.items()}
        score = weighted_score(value, costs, known, weights)
        if math.isfinite(score):
            row.cells[WEIGHTED] = Cell(round(score, 4))
    return _notes(board, [row for row, _ in complete], weights)


def _notes(board: Board, rows: Sequence[Row], weights: dict[str, float]) -> list[str]:
    total = sum(weights.values())
    shares = ", ".join(f"{name} {weight / total:.0%}" for name, weight in weights.items())
    names = list(dict.fromkeys(row.entry.system for row in rows))
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    machine = f" on {board.machine.name}" if board.machine else ""
    return [
        f"Weighted score: Dynascore with {shares}; costs count negative, over their average rate of exchange among all "
        f"{len(rows)} complete rows measured{machine} ({named}). Filters do not move it."
    ]
