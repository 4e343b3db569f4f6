"""A board as a table of GitHub's Markdown."""

from __future__ import annotations

import re

from leaderboard.boards.exports.cells import (
    Citation,
    datasets_of,
    footnotes,
    heading,
    measured,
    name_of,
    status_of,
    text_of,
)
from leaderboard.boards.model import Board, Column, Row

#: What means something in Markdown or in HTML within it.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
#: What GitHub links or notifies wherever it reads it: @names, addresses, e-mail, #1 and GH-1. No backslash stops it.
_LIVE = re.compile(
    r"(?<!\w)@(?=\w)|@(?=[\w\\-]+\.\w)|#(?=\d)|\w(?=://)|\bwww(?=\.)|\bGH(?=-\d)", re.IGNORECASE
)
#: A space without width.
_APART = "&#8203;"


def to_markdown(board: Board, cited: Citation) -> str:
    """The board as text: a heading line, the table with the best values bold, and where it is from."""
    numeric = [False, *(column.numeric for column in board.columns[1:])]
    about = "; ".join(
        part for part in (f"{len(board.rows)} of {board.total} rows", datasets_of(board)) if part
    )
    lines = [
        f"**{escape_markdown(board.title)}**, {escape_markdown(measured(board))}: {escape_markdown(about)}.",
        *(["", escape_markdown(board.summary.text)] if board.summary else []),
        "",
        _line(["#", *(escape_markdown(heading(board, column)) for column in board.columns)]),
        _line(["--:", *("--:" if is_numeric else ":--" for is_numeric in numeric)]),
        *(_line(_cells(board, row)) for row in board.rows),
        "",
        *(f"{escape_markdown(note)}  " for note in ("Best in bold.", *footnotes(board))),
        f"{escape_markdown(cited.site)}{f', as of {cited.moment}' if cited.at else ''}: <{cited.url}>",
    ]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """The text on one line, with everything made plain that Markdown would read as its own, and GitHub as alive."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return _LIVE.sub(lambda found: found[0] + _APART, plain)


def _cells(board: Board, row: Row) -> list[str]:
    name = escape_markdown(name_of(row)) + (" ‡" if row.entry.training == "in-domain" else "")
    if status_of(row):
        name += f" {status_of(row)}"
    return [
        escape_markdown(row.rank_label) or "—",
        name,
        *(_cell(board, row, column) for column in board.columns[1:]),
    ]


def _cell(board: Board, row: Row, column: Column) -> str:
    cell, text = row[column.key], escape_markdown(text_of(row, column))
    if board.emphasis(row, column.key) == "best":
        text = f"**{text}**"
    beside = " ".join(escape_markdown(part) for part in (cell.spread, cell.mark) if part)
    return f"{text}{f' {beside}' if beside else ''}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
