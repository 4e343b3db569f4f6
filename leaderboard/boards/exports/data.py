"""Boards as CSV, and as plain values for JSON and the API."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

import orjson

from leaderboard.boards.columns import marks
from leaderboard.boards.columns.agreement import PUBLISHED
from leaderboard.boards.exports.texts import MOMENT, Citation, column_key, column_label
from leaderboard.boards.model import DELTA, EFFECTIVENESS, SYSTEM, Board, Row, Value, reason_gone
from leaderboard.boards.state import VIEWS
from leaderboard.core.text.plain import safe_cell
from leaderboard.results.board_rows.entry_rows import QUARANTINED
from leaderboard.results.significance.types import EntryCertainty


def to_json_text(board: Board, citation: Citation) -> str:
    return orjson.dumps(to_json(board, citation), option=orjson.OPT_NON_STR_KEYS).decode()


def to_json(board: Board, citation: Citation) -> dict[str, Any]:
    """Return the board as plain values: its view, columns, rows, test results, summary, and notes.

    The columns do not depend on the rows in view.
    """
    board = replace(board, columns=board.data_columns)
    certainty = None
    if board.certainty is not None:
        certainty = {"current": board.certainty.current, **board.certainty.settings.as_dict()}
    elif board.found_with:  # These settings are of single cells, each as current as its dataset's board.
        certainty = board.found_with.as_dict()
    return {
        "title": board.title,
        "measure": board.measure,
        "slice": board.slice.as_data() if board.slice else None,
        "slice_choices": [queries.as_data() for queries in board.slices.slices],
        "view": board.view or VIEWS[0],
        "sort": board.sort,
        "order": board.order,
        "sorts": [{"key": sort.key, "order": sort.order} for sort in board.sorts],
        "total": board.total,
        "found": board.found,
        "as_of": citation.moment or None,
        "permalink": citation.url,
        "hardware": board.machine._asdict() if board.machine else None,
        "hardware_choices": [machine._asdict() for machine in board.machines],
        "columns": [
            {
                "key": column.key,
                "label": column_label(board, column),
                "group": column.group,
                "group_slug": column.group_slug,
                "better": column.better,
                "unit": column.unit,
                "note": column.note,
            }
            for column in board.columns
        ],
        "certainty": certainty,
        "summary": _summary_data(board),
        "verdict": _verdict_data(board),
        "least_difference": board.statements.least_difference(board.measure),
        "rows": [_row_data(board, row) for row in board.rows],
        "notes": board.notes,
    }


def _row_data(board: Board, row: Row) -> dict[str, Any]:
    """Return a row's rank, system, values, and marks, and the test results and costs behind them."""
    cells = {column.key: row[column.key] for column in board.columns}
    statement = board.statements.for_entry(row.first_entry, board.measure)
    ranking = board.statements.find_ranking(row.first_entry, board.measure)
    cell_settings = board.found_with or (board.certainty.settings if board.certainty else None)
    published = row[PUBLISHED].published
    return {
        "rank": row.rank,
        "ranked_among": row.ranked_in,
        "system": row.entry.system,
        "slug": row.entry.slug,
        "configuration": row.entry.configuration,
        "baseline": bool(row.entry.is_baseline),
        "provenance": row.entry.provenance,
        "architecture": row.entry.architecture,
        "training": row.entry.training,
        "comparison_group": row.entry.comparison_group,
        "missing_queries": row.entry.missing_queries,
        "late": "late" in marks.badges(row.entry),
        "manual": "manual" in marks.badges(row.entry),
        "pooled": bool(marks.pooled_mark(row.entry)),
        "values": {key: value for key, value in board.exported(row).items() if key != SYSTEM},
        "spreads": {key: cell.spread for key, cell in cells.items() if cell.spread},
        "withdrawn": row.entry.withdrawal_reason if row.entry.visibility == "withdrawn" else None,
        "quarantined": row.entry.moderation_reason if row.entry.visibility == QUARANTINED else None,
        "challenged": bool(row.entry.challenged),
        "better_than_baseline": statement.better,
        "tied_with_best": statement.tied_with_best,
        "contamination_gap": statement.gap.as_data() if statement.gap else None,
        "published": published.as_data() if published else None,
        "marks": {key: cell.mark for key, cell in cells.items() if cell.mark},
        "doubtful": doubtful_figures(board, row),
        "measured": row.measured.as_data() if row.measured else None,
        "certainty": row.certainty.as_data(ranking.settings) if row.certainty and ranking else None,
        "certainty_by_dataset": {
            key: cell.certainty.as_data(cell_settings)
            for key, cell in cells.items()
            if cell_settings and cell.certainty is not None
        },
        "intervals": {key: {"low": low, "high": high} for key, (low, high) in intervals(board, row).items()},
    }


def _summary_data(board: Board) -> dict[str, Any] | None:
    """Return the board's summary as text and as data, or None if it has none."""
    summary = board.summary
    if summary is None:
        return None
    return {
        "text": summary.text,
        "best": summary.best,
        "measure": summary.measure,
        "score": summary.score,
        "relative": summary.relative,
        "better": summary.statement.better,
        "p": summary.statement.p,
        "p_corrected": summary.statement.p_corrected,
        "tied": summary.tied,
        "cheapest": summary.cheapest,
        "latency_ms": summary.latency,
        "above_bound": summary.above_bound,
    }


def _verdict_data(board: Board) -> dict[str, Any] | None:
    """Return the results of the corrected tests on the whole board, or None if it has none.

    They do not depend on the rows in view.
    """
    verdict = board.verdict
    if verdict is None:
        return None
    ties = [entry for entry in board.verdict_entries if entry in verdict.ties]
    return {
        "best": _system_reference(board, verdict.best),
        "ties": [_system_reference(board, entry) for entry in ties],
        "baseline": _system_reference(board, verdict.baseline) if verdict.baseline is not None else None,
        "compared": verdict.compared,
        "better": len(verdict.better),
        "worse": len(verdict.worse),
        "revision": verdict.revision,
        "at": f"{verdict.at:{MOMENT}}",
    }


def _system_reference(board: Board, entry: int) -> dict[str, str]:
    """Return the system and the configuration of an entry that the verdict names, given by id."""
    named_entry = board.verdict_entries[entry]
    return {
        "system": named_entry.system,
        "slug": named_entry.slug,
        "configuration": named_entry.configuration,
    }


#: Names of columns, and a function that returns their cells.
ColumnPart = tuple[Sequence[str], Callable[[Row], Sequence[Value]]]


def to_csv(board: Board, citation: Citation) -> str:
    """Return the board as CSV text, with empty cells for missing values and separate columns for differences.

    The columns do not depend on the rows in view. CSV has no room for metadata outside the table, so every row names
    its board, view, and permalink.
    """
    board = replace(board, columns=board.data_columns)
    parts = [*_leading_parts(board), *_certainty_parts(board), *_trailing_parts(board, citation)]
    names = [name for part, _ in parts for name in part]
    rows = [[value for _, cells in parts for value in cells(row)] for row in board.rows]
    # Prevent spreadsheets from executing cells.
    rows = [[safe_cell(value) if isinstance(value, str) else value for value in row] for row in rows]
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([names, *rows])
    return text.getvalue()


def _leading_parts(board: Board) -> Iterator[ColumnPart]:
    """Yield the rank, the board's columns with their units, and properties of the entry."""
    yield ("rank", "ranked_among"), lambda row: (row.rank, row.ranked_in)
    headings = [
        f"{column_key(board, column)} [{column.unit}]"
        if column.unit and column.kind == "figure"
        else column_key(board, column)
        for column in board.columns
    ]
    yield headings, lambda row: list(board.exported(row).values())
    yield (
        ("configuration", "baseline", "training", "comparison_group", "missing_queries", "doubtful", "self_reported"),
        lambda row: (
            row.entry.configuration,
            "yes" if row.entry.is_baseline else "",
            row.entry.training,
            row.entry.comparison_group,
            row.entry.missing_queries,
            "; ".join(doubtful_figures(board, row)),
            "; ".join(column.label for column in board.columns if marks.SELF_REPORTED in row[column.key].mark),
        ),
    )


def _certainty_parts(board: Board) -> Iterator[ColumnPart]:
    """Yield the columns of intervals, measured costs, tests against the baseline, and rank ranges.

    Boards without any test results only have the costs. Benchmarks without tests of their means also have the intervals
    of single cells.
    """
    if board.certainty is not None or board.found_with is not None:
        keys = [
            column.key
            for column in board.columns
            if column.key == DELTA
            or (column.group.startswith(EFFECTIVENESS) and column.kind not in ("count", "figure"))
        ]
        names = [f"{key} interval {end}" for key in keys for end in ("low", "high")]
        yield (
            names,
            lambda row: [
                end for ends in [intervals(board, row)] for key in keys for end in ends.get(key, (None, None))
            ],
        )
    names = ["hardware", "protocol", *(f"latency_{name} [ms]" for name in ("p50", "p95", "p99", "bm25"))]
    yield [*names, "stored_runs"], _measurement_cells
    if board.certainty is not None:
        # Columns named like PyTerrier's: queries or datasets won and lost against the baseline, p-value and its
        # correction.
        endings = ("+", "-", "p-value", "p-value corrected", "reject")
        alpha = board.certainty.settings.alpha
        yield [f"{board.measure} {ending}" for ending in endings], partial(_test_cells, alpha)
        yield (
            ("rank low", "rank high", "separable from next"),
            lambda row: _rank_cells(row.certainty) if row.certainty else [None] * 3,
        )
        yield ("tested over",), partial(_tested_over_cells, board)


def _trailing_parts(board: Board, citation: Citation) -> Iterator[ColumnPart]:
    """Yield the columns of seed sets, reasons for removals, agreement with publications, and the board of the row.

    The board is repeated in every row, so that rows of several boards can be concatenated.
    """
    yield (
        ("seeds", "sample deviation"),
        lambda row: (
            (row.entry.seed_count, row.entry.deviations.get(board.measure)) if row.entry.seed_count else (None, None)
        ),
    )
    yield ("quarantined", "taken_off_since"), _removal_cells
    if board.column(PUBLISHED) is not None:
        yield (
            ("published difference", "published source"),
            lambda row: (score.difference, score.source) if (score := row[PUBLISHED].published) else (None, None),
        )
    board_values = (board.measure, board.view or VIEWS[0], citation.moment, citation.url)
    yield ("measure", "view", "as_of", "permalink"), lambda row: board_values


def intervals(board: Board, row: Row) -> dict[str, tuple[float, float]]:
    """Return the intervals of the row's scores and of its difference by column key."""
    intervals_by_key = {}
    for key, cell in ((column.key, row[column.key]) for column in board.columns):
        if cell.certainty is not None:
            intervals_by_key[key] = (cell.certainty.low, cell.certainty.high)
        elif cell.interval is not None:
            intervals_by_key[key] = cell.interval
    certainty = row.certainty
    if certainty is not None and certainty.delta_interval is not None:
        intervals_by_key[DELTA] = certainty.delta_interval
    return intervals_by_key


def _rank_cells(certainty: EntryCertainty) -> list[int | str | None]:
    """Return the rank range and whether the row is separable from the next one, None if that is not tested."""
    is_separable = None if certainty.p_next is None else str(certainty.is_separable_from_next)
    return [certainty.rank_low, certainty.rank_high, is_separable]


def _test_cells(alpha: float, row: Row) -> Sequence[Value]:
    """Return wins, losses, p-value, corrected p-value, and whether it is below `alpha`; all None if untested."""
    certainty = row.certainty
    if certainty is None or certainty.p_baseline is None:
        return [None] * 5
    corrected_p = certainty.p_baseline_corrected
    is_rejected = None if corrected_p is None else str(corrected_p < alpha)
    return [certainty.wins, certainty.losses, certainty.p_baseline, corrected_p, is_rejected]


def _tested_over_cells(board: Board, row: Row) -> list[str | None]:
    """Return whether the row's test, wins, and losses are over `queries` or over `datasets`."""
    ranking = board.statements.find_ranking(row.first_entry, board.measure)
    return [ranking.settings.tested_over if ranking else None]


def _removal_cells(row: Row) -> Sequence[Value]:
    """Return the curator's reason for a quarantined row, and for other rows the reason for a later removal."""
    if row.ranked_in == QUARANTINED:
        return row.entry.moderation_reason, None
    is_removed = row.entry.visibility in ("withdrawn", QUARANTINED)
    return None, reason_gone(row.entry) if is_removed else None


def _measurement_cells(row: Row) -> Sequence[Value]:
    """Return machine, protocol, latencies in milliseconds, and stored runs; empty texts if not measured."""
    if row.measured is None:
        return [""] * 7
    latency = row.measured.latency
    return [
        row.measured.machine.slug,
        row.measured.protocol,
        *(latency[name] for name in ("p50", "p95", "p99")),
        row.measured.baseline_latency,
        row.measured.figures.get("stored_runs", 0),
    ]


def doubtful_figures(board: Board, row: Row) -> list[str]:
    """Return the row's doubtful figures as text; they are not among the values."""
    return [f"{column.label}: {row[column.key].text}" for column in board.columns if row[column.key].mark == "?"]
