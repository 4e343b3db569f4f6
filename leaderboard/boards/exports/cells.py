"""Cells as text, with the digits of the page: for the formats that people read."""

from __future__ import annotations

from leaderboard.boards.columns import marks
from leaderboard.boards.model import SEPARATED, Board, Column, Row
from leaderboard.core.text import numbers
from leaderboard.results.kinds import CLOSED, QUARANTINED

#: What a missing value is written as.
MISSING = "—"


def text_of(row: Row, column: Column) -> str:
    """The cell as the page writes it, without its marks."""
    value, text = row.value(column.key), row[column.key].text
    if text:
        return text
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if column.kind == "score":
        return f"{value:.{row.decimals}f}"
    if column.kind == "delta":
        return numbers.signed(value, row.decimals)
    if column.kind == "relative":
        return numbers.signed(value, 1, percent=True)
    if column.decimals is not None:
        return f"{value:.{column.decimals}f}"
    if column.kind in ("count", "rank", "number"):
        return f"{round(value, 4):g}"
    return numbers.significant(value)


def name_of(row: Row) -> str:
    """Whose row it is, with its configuration: `BM25 (k1 = 1.2)`."""
    entry = row.entry
    return f"{entry.system} ({entry.configuration})" if entry.configuration else entry.system


def footnotes(board: Board) -> list[str]:
    """What a reader of the table alone has to know."""
    cells = [row[column.key] for row in board.rows for column in board.columns]
    signs = {cell.mark for cell in cells}
    found = []
    if any("‡" in sign for sign in signs) or any(row.entry.training == "in-domain" for row in board.rows):
        found.append("‡ in-domain: trained on that dataset.")
    # What the mark of a real difference means is the first sentence of the note on it.
    found += [f"{note.partition('. ')[0]}." for note in board.notes if note.startswith(f"{SEPARATED} ")]
    if any("?" in sign for sign in signs):
        found.append("? as printed, but doubtful.")
    if any(row.rank_label.startswith("r") for row in board.rows):
        found.append("r: a rank among reported figures, which nobody here recomputed.")
    if any(row.ranked_in == CLOSED for row in board.rows):
        found.append("c: a rank among systems behind a closed interface, which nobody can repeat.")
    if any(cell.spread and not cell.noise for cell in cells):
        found.append("±: sample standard deviation over seeds, and how many there are.")
    if any(cell.spread and cell.noise for cell in cells):
        found.append("± after a latency or × BM25: how far it may be off.")
    found += marks.notes(row.entry for row in board.rows)
    if any(row.entry.visibility == "withdrawn" for row in board.rows):
        found.append("Withdrawn: taken off the board since.")
    return found + [
        f"Quarantined by a curator: {name_of(row)}, {row.entry.moderation_reason}"
        for row in board.rows
        if row.entry.visibility == QUARANTINED
    ]


def status_of(row: Row) -> str:
    """What stands after the name: `(baseline)`, `(withdrawn)`, `(quarantined)`."""
    entry = row.entry
    words = ["baseline"] if entry.is_baseline else []
    words += marks.badges(entry)
    words += ["pooled"] if marks.mark(entry) else []
    words += [entry.visibility] if entry.visibility in ("withdrawn", QUARANTINED) else []
    return f"({', '.join(words)})" if words else ""
