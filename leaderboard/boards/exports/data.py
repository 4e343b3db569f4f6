"""A board as CSV, and as plain values for JSON and for the API."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from leaderboard.boards.columns import marks
from leaderboard.boards.exports.texts import MOMENT, Citation, key_of, label_of
from leaderboard.boards.model import DELTA, EFFECTIVENESS, SYSTEM, Board, Row, Value, reason_gone
from leaderboard.boards.state import VIEWS
from leaderboard.core.text.plain import safe_cell
from leaderboard.results.board_rows.entry_rows import QUARANTINED


def to_json_text(board: Board, cited: Citation) -> str:
    """The board as JSON text."""
    return orjson.dumps(to_json(board, cited), option=orjson.OPT_NON_STR_KEYS).decode()


def to_json(board: Board, cited: Citation) -> dict[str, Any]:
    """Return the board as plain values, with the same columns whichever rows the view has."""
    board = replace(board, columns=board.data_columns)
    certainty = None
    if board.certainty is not None:
        certainty = {"current": board.certainty.current, **board.certainty.settings.as_dict()}
    elif board.found_with:  # of single cells, each as current as the board of its dataset
        certainty = board.found_with.as_dict()
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
        "certainty": certainty,
        "summary": _summary(board),
        "verdict": _verdict(board),
        "least_difference": board.statements.least_difference(board.measure),
        "rows": [_row(board, row) for row in board.rows],
        "notes": board.notes,
    }


def _row(board: Board, row: Row) -> dict[str, Any]:
    cells = {column.key: row[column.key] for column in board.columns}
    said = board.statements.of(row.entry.pk, board.measure)
    settings = board.certainty.settings if board.certainty else board.found_with
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
        "certainty": row.certainty.as_data(settings) if row.certainty and settings else None,
        "certainty_by_dataset": {
            key: cell.certainty.as_data(settings)
            for key, cell in cells.items()
            if settings and cell.certainty is not None
        },
        "intervals": {key: {"low": low, "high": high} for key, (low, high) in intervals(board, row).items()},
    }


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


#: Names of columns, and a function that returns their cells.
Part = tuple[Sequence[str], Callable[[Row], Sequence[Value]]]


def to_csv(board: Board, cited: Citation) -> str:
    """The board as CSV text: empty cells are missing values, differences are columns of their own.

    The columns are the same whichever rows the view has. CSV has no place beside its table, so every row says of which
    board and view it is, and where that stays.
    """
    from pandas import DataFrame  # loaded when somebody first asks for a CSV

    board = replace(board, columns=board.data_columns)
    parts = [*_leading_parts(board), *_certainty_parts(board), *_trailing_parts(board, cited)]
    names = [name for part, _ in parts for name in part]
    rows = [[value for _, cells in parts for value in cells(row)] for row in board.rows]
    # No spreadsheet may run a cell.
    rows = [[safe_cell(value) if isinstance(value, str) else value for value in row] for row in rows]
    return DataFrame(rows, columns=names, dtype=object).to_csv(index=False, lineterminator="\r\n")


def _leading_parts(board: Board) -> Iterator[Part]:
    yield ("rank", "ranked_among"), lambda row: (row.rank, row.ranked_in)
    headings = [
        f"{key_of(board, column)} [{column.unit}]"
        if column.unit and column.kind == "figure"
        else key_of(board, column)
        for column in board.columns
    ]
    yield headings, lambda row: list(board.exported(row).values())
    names = ("configuration", "baseline", "training", "comparison_group", "missing_queries", "doubtful")
    yield (
        names,
        lambda row: (
            row.entry.configuration,
            "yes" if row.entry.is_baseline else "",
            row.entry.training,
            row.entry.comparison_group,
            row.entry.missing_queries,
            "; ".join(doubtful(board, row)),
        ),
    )


def _certainty_parts(board: Board) -> Iterator[Part]:
    """Yield intervals, costs, and tests. Where all pairs were tested, rank ranges follow as numbers."""
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
    yield [*names, "stored_runs"], _measured_cells
    if board.certainty is not None:
        # PyTerrier's names: queries won and lost against the baseline, p and its correction.
        endings = ("+", "-", "p-value", "p-value corrected", "reject")
        alpha = board.certainty.settings.alpha
        yield [f"{board.measure} {ending}" for ending in endings], partial(_tested_cells, alpha)
        yield (
            ("rank low", "rank high"),
            lambda row: (row.certainty.rank_low, row.certainty.rank_high) if row.certainty else (None, None),
        )


def _trailing_parts(board: Board, cited: Citation) -> Iterator[Part]:
    """Yield seed sets, why rows left the ranking or the board, and the board of the row.

    The board is the same in every row, so that rows of several boards can be put together.
    """
    yield (
        ("seeds", "sample deviation"),
        lambda row: (
            (row.entry.seed_count, row.entry.deviations.get(board.measure))
            if row.entry.seed_count
            else (None, None)
        ),
    )
    yield ("quarantined", "taken_off_since"), _removal_cells
    of_board = (board.measure, board.view or VIEWS[0], cited.moment, cited.url)
    yield ("measure", "view", "as_of", "permalink"), lambda row: of_board


def intervals(board: Board, row: Row) -> dict[str, tuple[float, float]]:
    """The ends of the intervals of the row's scores and of its difference, by the keys of their columns."""
    found = {}
    for key, cell in ((column.key, row[column.key]) for column in board.columns):
        if cell.certainty is not None:
            found[key] = (cell.certainty.low, cell.certainty.high)
        elif cell.interval is not None:
            found[key] = cell.interval
    sure = row.certainty
    if sure is not None and sure.delta_interval is not None:
        found[DELTA] = sure.delta_interval
    return found


def _tested_cells(alpha: float, row: Row) -> Sequence[Value]:
    found = row.certainty
    if found is None or found.p_baseline is None:
        return [None] * 5
    corrected = found.p_baseline_corrected
    rejected = None if corrected is None else str(corrected < alpha)
    return [found.wins, found.losses, found.p_baseline, corrected, rejected]


def _removal_cells(row: Row) -> Sequence[Value]:
    if row.ranked_in == QUARANTINED:
        return row.entry.moderation_reason, None
    gone = row.entry.visibility in ("withdrawn", QUARANTINED)
    return None, reason_gone(row.entry) if gone else None


def _measured_cells(row: Row) -> Sequence[Value]:
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


def doubtful(board: Board, row: Row) -> list[str]:
    """Return the row's doubtful figures, as printed or measured: beside the values, never among them."""
    return [
        f"{column.label}: {row[column.key].text}" for column in board.columns if row[column.key].mark == "?"
    ]
