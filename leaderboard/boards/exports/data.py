"""A board as plain values, for JSON and for the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from leaderboard.boards.columns import marks
from leaderboard.boards.exports.cells import MOMENT, Citation, label_of
from leaderboard.boards.exports.spreadsheet import doubtful, intervals
from leaderboard.boards.model import SYSTEM, Board, Row
from leaderboard.boards.state import VIEWS
from leaderboard.results.kinds import QUARANTINED


def to_json_text(board: Board, cited: Citation) -> str:
    """The board as JSON text."""
    return orjson.dumps(to_json(board, cited), option=orjson.OPT_NON_STR_KEYS).decode()


def to_json(board: Board, cited: Citation) -> dict[str, Any]:
    """Return the board as plain values, with the same columns whichever rows the view has."""
    board = replace(board, columns=board.data_columns)
    return {
        "title": board.title,
        "measure": board.measure,
        "view": board.view or VIEWS[0],
        "sort": board.sort,
        "order": board.order,
        "sorts": [{"key": sort.key, "order": sort.order} for sort in board.sorts],
        "total": board.total,
        "found": board.found,
        "as_of": cited.moment or None,
        "permalink": cited.url,
        "hardware": board.machine._asdict() if board.machine else None,
        "hardware_choices": [machine._asdict() for machine in board.machines],
        "columns": [
            {
                "key": column.key,
                "label": label_of(board, column),
                "group": column.group,
                "group_slug": column.group_slug,
                "better": column.better,
                "unit": column.unit,
                "note": column.note,
            }
            for column in board.columns
        ],
        "certainty": _certainty(board),
        "summary": _summary(board),
        "verdict": _verdict(board),
        "least_difference": board.statements.least_difference(board.measure),
        "rows": [_row(board, row) for row in board.rows],
        "notes": board.notes,
    }


def _row(board: Board, row: Row) -> dict[str, Any]:
    cells = {column.key: row[column.key] for column in board.columns}
    said = board.statements.of(row.entry.pk, board.measure)
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
        "better_than_baseline": said.better,
        "tied_with_best": said.tied_with_best,
        "contamination_gap": said.gap.as_data() if said.gap else None,
        "marks": {key: cell.mark for key, cell in cells.items() if cell.mark},
        "doubtful": doubtful(board, row),
        "measured": row.measured.as_data() if row.measured else None,
        **_certainty_of(board, row),
        "intervals": {key: {"low": low, "high": high} for key, (low, high) in intervals(board, row).items()},
    }


def _certainty(board: Board) -> dict[str, Any] | None:
    """How the rows' certainty was found, and whether it is that of the board as it is now."""
    if board.certainty is None:
        # That of single cells, each as current as its own dataset's board says.
        return board.found_with.as_dict() if board.found_with else None
    return {"current": board.certainty.current, **board.certainty.settings.as_dict()}


def _summary(board: Board) -> dict[str, Any] | None:
    """What the page says above the board, and the facts that it says it of."""
    said = board.summary
    if said is None:
        return None
    return {
        "text": said.text,
        "best": said.best,
        "measure": said.measure,
        "score": said.score,
        "relative": said.relative,
        "better": said.statement.better,
        "p": said.statement.p,
        "p_corrected": said.statement.p_corrected,
        "tied": said.tied,
        "cheapest": said.cheapest,
        "latency_ms": said.latency,
        "above_bound": said.above_bound,
    }


def _verdict(board: Board) -> dict[str, Any] | None:
    """What corrected tests tell of the whole board, whichever rows the view has."""
    said = board.verdict
    if said is None:
        return None
    ties = [entry for entry in board.named if entry in said.ties]
    return {
        "best": _named(board, said.best),
        "ties": [_named(board, entry) for entry in ties],
        "baseline": _named(board, said.baseline) if said.baseline is not None else None,
        "compared": said.compared,
        "better": len(said.better),
        "worse": len(said.worse),
        "revision": said.revision,
        "at": f"{said.at:{MOMENT}}",
    }


def _named(board: Board, entry: int) -> dict[str, str]:
    named = board.named[entry]
    return {"system": named.system, "slug": named.slug, "configuration": named.configuration}


def _certainty_of(board: Board, row: Row) -> dict[str, Any]:
    """That of the measure in focus; where there are several datasets, by the keys of their columns."""
    settings = board.certainty.settings if board.certainty else board.found_with
    return {
        "certainty": row.certainty.as_data(settings) if row.certainty and settings else None,
        "certainty_by_dataset": {
            column.key: found.as_data(settings)
            for column in board.columns
            if settings and (found := row[column.key].certainty) is not None
        },
    }
