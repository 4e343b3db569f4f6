"""A board as CSV."""

from __future__ import annotations

import csv
import io

from leaderboard.boards.exports.cited import Cited
from leaderboard.boards.model import Board, Column, Row, Value

#: What a spreadsheet would take for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

#: What every row says before its columns.
LEADING = ("rank", "ranked_among")
#: What every row says after them.
TRAILING = ("configuration", "baseline", "training", "comparison_group", "missing_queries", "doubtful")
#: And, where a board shows measured costs, how they were measured.
MEASURED = (
    "hardware",
    "protocol",
    "latency_p50 [ms]",
    "latency_p95 [ms]",
    "latency_p99 [ms]",
    "latency_bm25 [ms]",
    "stored_runs",
)


def to_csv(board: Board, cited: Cited) -> str:
    """The board as CSV text: empty cells are missing values, differences are columns of their own.

    CSV has no place for what is `cited`; its file is named after it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    measured = MEASURED if board.machine else ()
    writer.writerow([*LEADING, *(_heading(column) for column in board.columns), *TRAILING, *measured])
    for row in board.rows:
        writer.writerow(
            [
                "" if row.rank is None else row.rank,
                row.ranked_in,
                *(_plain(value) for value in exported(board, row)),
                _plain(row.entry.configuration),
                "yes" if row.entry.is_baseline else "",
                row.entry.training,
                _plain(row.entry.comparison_group),
                row.entry.missing_queries,
                "; ".join(doubtful(board, row)),
                *(_measured_cells(row) if measured else ()),
            ]
        )
    return out.getvalue()


def exported(board: Board, row: Row) -> list[Value]:
    """The row's values; what counts something of something (18/18) is written as on the page."""
    return [
        row.shown.get(place, value) if column.kind == "count" and value is not None else value
        for place, (column, value) in enumerate(zip(board.columns, row.values, strict=True))
    ]


def _measured_cells(row: Row) -> list[Value]:
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


def _heading(column: Column) -> str:
    return f"{column.key} [{column.unit}]" if column.unit and column.kind == "figure" else column.key


def _plain(value: Value) -> Value:
    """A cell that no spreadsheet runs."""
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value


def doubtful(board: Board, row: Row) -> list[str]:
    """The row's doubtful figures, as printed: they stand beside the values, never among them."""
    return [
        f"{board.columns[place].label}: {row.shown[place]}"
        for place, mark in row.marks.items()
        if mark == "?"
    ]
