r"""A board as a LaTeX table in the manner of papers: booktabs, best bold, second underlined.

What `\input` needs is one float; the packages stand in a comment on top.
"""

from __future__ import annotations

from leaderboard.boards import formatting
from leaderboard.boards.exports.cells import (
    MISSING,
    emphasis,
    footnotes,
    letters_of,
    name_of,
    status_of,
    text_of,
)
from leaderboard.boards.exports.cited import Cited
from leaderboard.boards.exports.naming import datasets_of, label_of, measured
from leaderboard.boards.model import SEPARATED, Board, Column, Row
from leaderboard.core.text.latex import address, escape

#: A table of more columns is made small, and as wide as the text.
MOST_COLUMNS = 10
#: Marks that stand raised.
_RAISED = {"‡": escape("‡"), SEPARATED: r"$^{*}$"}


def to_latex(board: Board, cited: Cited) -> str:
    """The board as a `table` with caption and label."""
    wide = len(board.columns) + 1 > MOST_COLUMNS
    packages = r"\usepackage{booktabs,url}" + (r" \usepackage{graphicx}" if wide else "")
    lines = [
        f"% {escape(board.title)}: {cited.moment or 'present board'}. Needs {packages}",
        r"\begin{table}[t]",
        r"\centering",
        *([r"\small"] if wide else []),
        rf"\caption{{{caption(board, cited)}}}",
        rf"\label{{tab:{cited.kind}-{cited.slug}}}",
        *([r"\resizebox{\linewidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{r{''.join('r' if column.numeric else 'l' for column in board.columns)}}}",
        r"\toprule",
        *_groups(board),
        _line([r"\#", *(_head(board, column) for column in board.columns)]),
        r"\midrule",
        *(_line(_cells(board, row)) for row in board.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(["}"] if wide else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def caption(board: Board, cited: Cited) -> str:
    """What the table shows, how to read it, and where it stands: LaTeX."""
    kind = "test collection" if cited.kind == "dataset" else "benchmark"
    shown = f"{len(board.rows)} of {board.total} rows" if len(board.rows) != board.total else "all rows"
    shown = "; ".join(part for part in (shown, datasets_of(board)) if part)
    parts = [f"{measured(board)} on {cited.name} ({kind}), {shown}. Best in bold, second underlined."]
    parts += [*footnotes(board), *_tests(board)]
    where = ", ".join(part for part in (cited.site, cited.date) if part)
    return rf"{escape(' '.join(parts))} {escape(where)}, \url{{{address(cited.url)}}}."


def _tests(board: Board) -> list[str]:
    """What the letters mean, and how they were found."""
    sure = board.certainty
    if sure is None or not sure.current or not any(row.certainty for row in board.rows):
        return []
    how = sure.settings
    return [
        f"Letters: results of one letter are not separated from the best of that letter by a two-sided {how.test} "
        f"({how.permutations:,} permutations, seed {how.seed}, {how.correction}-corrected over the board, "
        f"level {how.alpha:g})."
    ]


def _groups(board: Board) -> list[str]:
    """The heads of the groups of columns, and a rule under each."""
    cells, rules, place = ["", ""], [], 3
    for label, span in formatting.spans(board.columns[1:]):
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escape(label)}}}" if label else "&" * (span - 1))
        if label:
            rules.append(rf"\cmidrule(lr){{{place}-{place + span - 1}}}")
        place += span
    return [_line(cells), "".join(rules)] if rules else []


def _head(board: Board, column: Column) -> str:
    arrow = (
        {"higher": r"~$\uparrow$", "lower": r"~$\downarrow$", "": ""}[column.better] if column.arrow else ""
    )
    unit = f" ({escape(column.unit)})" if column.unit else ""
    return f"{escape(label_of(board, column))}{unit}{arrow}"


def _cells(board: Board, row: Row) -> list[str]:
    name = escape(name_of(row)) + (r"$^{\ddagger}$" if row.entry.training == "in-domain" else "")
    if status_of(row):
        name += rf" \emph{{{status_of(row)}}}"
    cells = (_cell(board, row, place) for place in range(1, len(board.columns)))
    return [escape(row.rank_label or MISSING), name, *cells]


def _cell(board: Board, row: Row, place: int) -> str:
    text = escape(text_of(board, row, place))
    found = emphasis(board, row, place)
    if found:
        text = rf"\textbf{{{text}}}" if found == "best" else rf"\underline{{{text}}}"
    letters, mark, spread = (
        letters_of(board, row, place),
        row.marks.get(place, ""),
        row.spreads.get(place, ""),
    )
    raised = rf"$^{{\mathrm{{{letters}}}}}$" if letters else ""
    if _RAISED.keys() >= set(mark):
        raised, mark = raised + "".join(_RAISED[sign] for sign in mark), ""
    beside = " ".join(rf"{{\footnotesize {escape(part)}}}" for part in (spread, mark) if part)
    return f"{text}{raised}{f' {beside}' if beside else ''}"


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
