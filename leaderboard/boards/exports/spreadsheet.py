"""A board as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from leaderboard.boards.exports.cells import Citation, key_of
from leaderboard.boards.model import DELTA, EFFECTIVENESS, Board, Column, Row, Value, reason_gone
from leaderboard.boards.state import VIEWS
from leaderboard.core.text.plain import safe_cell
from leaderboard.results.kinds import QUARANTINED

#: What every row says before its columns.
LEADING = ("rank", "ranked_among")
#: What every row says after them.
TRAILING = ("configuration", "baseline", "training", "comparison_group", "missing_queries", "doubtful")
#: And how costs were measured.
MEASURED = (
    "hardware",
    "protocol",
    "latency_p50 [ms]",
    "latency_p95 [ms]",
    "latency_p99 [ms]",
    "latency_bm25 [ms]",
    "stored_runs",
)
#: And, where all pairs were tested, between which ranks the system lies: as numbers, for the column has them as text.
RANK_ENDS = ("rank low", "rank high")
#: And, for seed sets, what stands behind their means.
SEEDS = ("seeds", "sample deviation")
#: And, for boards as they were, why a row was taken off since.
GONE = ("taken_off_since",)
#: The column for a curator's reason, of rows that are out of the ranking.
UNDER_QUARANTINE = ("quarantined",)
#: Last, of which board the row is: the same in every row, so that rows of several boards can be put together.
OF_BOARD = ("measure", "view", "as_of", "permalink")
#: The names of some columns, and what makes their cells.
Part = tuple[Sequence[str], Callable[[Row], Sequence[Value]]]


def to_csv(board: Board, cited: Citation) -> str:
    """The board as CSV text: empty cells are missing values, differences are columns of their own.

    The columns are the same whichever rows the view has. CSV has no place beside its table, so every row says of which
    board and view it is, and where that stays.
    """
    from pandas import DataFrame, concat

    board = replace(board, columns=board.data_columns)
    of_board = (board.measure, board.view or VIEWS[0], cited.moment, cited.url)
    parts: list[Part] = [(LEADING, _leading_cells), (TRAILING, partial(_trailing_cells, board))]
    parts += [*_beside(board), (OF_BOARD, lambda row: of_board)]
    first, *others = (
        DataFrame([cells(row) for row in board.rows], columns=list(names), dtype=object)
        for names, cells in parts
    )
    values = board.frame().set_axis([_heading(board, column) for column in board.columns], axis=1)
    table = concat([first, values, *others], axis=1)
    plain = DataFrame(np.vectorize(_plain, otypes=[object])(table), columns=table.columns)
    return plain.to_csv(index=False, lineterminator="\r\n")


def _leading_cells(row: Row) -> Sequence[Value]:
    return [row.rank, row.ranked_in]


def _trailing_cells(board: Board, row: Row) -> Sequence[Value]:
    entry = row.entry
    baseline, doubts = "yes" if entry.is_baseline else "", "; ".join(doubtful(board, row))
    return [
        entry.configuration,
        baseline,
        entry.training,
        entry.comparison_group,
        entry.missing_queries,
        doubts,
    ]


def _beside(board: Board) -> list[Part]:
    """Further columns: their names, and what makes their cells."""
    found: list[Part] = []
    ends = {id(row): intervals(board, row) for row in board.rows}
    if board.certainty is not None or board.found_with is not None:
        for key in filter(None, map(_key_with_interval, board.columns)):
            found.append(
                ((f"{key} interval low", f"{key} interval high"), partial(_interval_cells, ends, key))
            )
    found.append((MEASURED, _measured_cells))
    if board.certainty is not None:
        found.append((tested_columns(board.measure), partial(_tested_cells, board.certainty.settings.alpha)))
        found.append((RANK_ENDS, _rank_cells))
    found += [
        (SEEDS, partial(_seed_cells, board.measure)),
        (UNDER_QUARANTINE, _quarantine_cells),
        (GONE, _gone_cells),
    ]
    return found


def _key_with_interval(column: Column) -> str:
    """Return the key of a column whose cells may have intervals, else an empty text."""
    is_score = column.group.startswith(EFFECTIVENESS) and column.kind not in ("count", "figure")
    return column.key if is_score or column.key == DELTA else ""


def intervals(board: Board, row: Row) -> dict[str, tuple[float, float]]:
    """The ends of the intervals of the row's scores and of its difference, by the keys of their columns."""
    found = {}
    for key, cell in ((column.key, row[column.key]) for column in board.columns):
        if cell.certainty is not None:
            found[key] = (cell.certainty.low, cell.certainty.high)
        elif cell.interval is not None:
            found[key] = cell.interval
    sure = row.certainty
    if sure is not None and sure.delta_low is not None and sure.delta_high is not None:
        found[DELTA] = (sure.delta_low, sure.delta_high)
    return found


def _interval_cells(
    ends: Mapping[int, Mapping[str, tuple[float, float]]], key: str, row: Row
) -> Sequence[Value]:
    return ends[id(row)].get(key, (None, None))


def _rank_cells(row: Row) -> Sequence[Value]:
    return (None, None) if row.certainty is None else (row.certainty.rank_low, row.certainty.rank_high)


def tested_columns(measure: str) -> list[str]:
    """PyTerrier's names for how a measure compares with the baseline: queries won and lost, p and its correction."""
    endings = ("+", "-", "p-value", "p-value corrected", "reject")
    return [f"{measure} {ending}" for ending in endings]


def _tested_cells(alpha: float, row: Row) -> Sequence[Value]:
    found = row.certainty
    if found is None or found.p_baseline is None:
        return [None] * 5
    corrected = found.p_baseline_corrected
    rejected = None if corrected is None else str(corrected < alpha)
    return [found.wins, found.losses, found.p_baseline, corrected, rejected]


def _seed_cells(measure: str, row: Row) -> Sequence[Value]:
    entry = row.entry
    if not entry.seed_count:
        return [None, None]
    return [entry.seed_count, entry.deviations.get(measure)]


def _gone(row: Row) -> bool:
    return row.ranked_in != QUARANTINED and row.entry.visibility in ("withdrawn", QUARANTINED)


def _gone_cells(row: Row) -> Sequence[Value]:
    return [reason_gone(row.entry) if _gone(row) else None]


def _quarantine_cells(row: Row) -> Sequence[Value]:
    return [row.entry.moderation_reason if row.ranked_in == QUARANTINED else None]


def _measured_cells(row: Row) -> Sequence[Value]:
    if row.measured is None:
        return [""] * len(MEASURED)
    latency = row.measured.latency
    return [
        row.measured.machine.slug,
        row.measured.protocol,
        *(latency[name] for name in ("p50", "p95", "p99")),
        row.measured.baseline_latency,
        row.measured.figures.get("stored_runs", 0),
    ]


def _heading(board: Board, column: Column) -> str:
    key = key_of(board, column)
    return f"{key} [{column.unit}]" if column.unit and column.kind == "figure" else key


def _plain(value: Value) -> Value:
    """A cell that no spreadsheet runs."""
    return safe_cell(value) if isinstance(value, str) else value


def doubtful(board: Board, row: Row) -> list[str]:
    """Return the row's doubtful figures, as printed or measured: beside the values, never among them."""
    return [
        f"{column.label}: {row[column.key].text}" for column in board.columns if row[column.key].mark == "?"
    ]
