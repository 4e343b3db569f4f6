r"""A board as a LaTeX table in the manner of papers, and as a table of GitHub's Markdown.

What LaTeX's `\input` needs is one float; the packages stand in a comment on top. A page has room for eight columns that
can still be read: the rank, the system, what the order follows, the first others with numbers, and then those with
text, as far as they fit into the text of an article. Whoever hides groups chooses others.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from leaderboard.boards.columns.significance import DELTA_INTERVAL, INTERVAL, P_BASELINE, P_BEST, RANKS
from leaderboard.boards.exports.cells import (
    MISSING,
    Citation,
    datasets_of,
    footnotes,
    heading,
    measured,
    name_of,
    status_of,
    text_of,
)
from leaderboard.boards.model import SEPARATED, SYSTEM, Board, Column, Row, spans
from leaderboard.core.text.latex import escape, escape_url

#: So many columns are shown, the rank among them.
MOST_COLUMNS = 8
#: A table of more is set in 8 points, where the text has 10, with less between its columns.
_MOST_AT_FULL_SIZE = 5
#: Points that are left to the columns beside rank and system in the text of an article, and what lies between two.
_ROOM, _GAP = 258, 5
#: Points of a letter of Computer Modern at 8 points; of narrow and wide ones; and of the arrow of a head.
_LETTER, _ARROW = 4.25, 7.0
_OTHER_LETTERS = dict.fromkeys(" .,:;()[]/ijlftrI", 2.9) | dict.fromkeys(
    "@%+−±×mwABCDEFGHKLMNOPQRSTUVWXYZΔ", 6.1
)
#: So many letters of a head stand on one line over one column.
_HEAD_LETTERS = 8
#: Texts that few papers print: only who chooses them has them.
_SELDOM = frozenset(("weights", "licence", "training-data"))


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a format writes the parts of a row; `raised` are marks that directly follow a value."""

    escape: Callable[[str], str]
    dagger: str
    status: str
    emphasis: Mapping[str, str]
    beside: str = "{}"
    raised: Mapping[str, str] = field(default_factory=dict)

    def cells(self, board: Board, row: Row, columns: Sequence[Column]) -> list[str]:
        """Return the rank, the system, and the cells of the other columns."""
        name = self.escape(name_of(row)) + (self.dagger if row.entry.training == "in-domain" else "")
        if status := status_of(row):
            name += self.status.format(status)
        rank = self.escape(row.rank_label or MISSING)
        return [rank, name, *(self._cell(board, row, column) for column in columns[1:])]

    def _cell(self, board: Board, row: Row, column: Column) -> str:
        text, cell, raised = self.escape(text_of(row, column)), row[column.key], ""
        text = self.emphasis.get(board.emphasis(row, column.key), "{}").format(text)
        parts = [cell.spread, cell.mark]
        if self.raised.keys() >= set(cell.mark):
            raised, parts = "".join(self.raised[sign] for sign in cell.mark), [cell.spread]
        beside = " ".join(self.beside.format(self.escape(part)) for part in parts if part)
        return f"{text}{raised}{f' {beside}' if beside else ''}"


def to_latex(board: Board, cited: Citation) -> str:
    """The board as a `table` with caption and label."""
    columns = _shown(board)
    left_out = [column.key for column in board.columns if column not in columns]
    aligned = "".join("r" if column.numeric else "l" for column in columns[1:])
    lines = [
        f"% {escape(board.title)}: {cited.moment or 'present board'}. Needs \\usepackage{{array,booktabs,url}}",
        *([f"% {escape(board.summary.text)}"] if board.summary else []),
        *(
            [f"% Not shown (hide other groups of columns for these): {', '.join(left_out)}"]
            if left_out
            else []
        ),
        r"\begin{table}[t]",
        r"\centering",
        *([r"\footnotesize\setlength{\tabcolsep}{2.5pt}"] if len(columns) + 1 > _MOST_AT_FULL_SIZE else []),
        # The short caption is what a list of tables gets: an address is too fragile for that.
        rf"\caption[{{{escape(board.title)}}}]{{{caption(board, cited)}}}",
        rf"\label{{tab:{cited.kind}-{cited.slug}}}",
        rf"\begin{{tabular}}{{r>{{\raggedright\arraybackslash}}p{{0.18\linewidth}}{aligned}}}",
        r"\toprule",
        *_groups(columns),
        _line([r"\#", *(_head(board, column) for column in columns)]),
        r"\midrule",
        *(_line(_LATEX.cells(board, row, columns)) for row in board.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _shown(board: Board) -> list[Column]:
    """The columns that there is room for: the system, what the order follows, numbers, and then texts."""
    wanted = {sort.key for sort in board.sorts}
    seldom = _SELDOM - {column.key for column in board.shown}
    others = [column for column in board.columns if column.key not in {SYSTEM, *seldom}]
    shown, left = {SYSTEM}, float(_ROOM)
    for column in sorted(others, key=lambda column: (column.key not in wanted, not column.numeric)):
        width = _width(board, column)
        if len(shown) < MOST_COLUMNS - 1 and width <= left:
            shown.add(column.key)
            left -= width
    return [column for column in board.columns if column.key in shown]


def _width(board: Board, column: Column) -> float:
    """About how many points a column takes, with what lies between it and the next: its head's or its widest cell's."""
    head = _lines(heading(board, column), 1)
    texts = [
        f"{text_of(row, column)} {row[column.key].spread} {row[column.key].mark}".strip()
        for row in board.rows
    ]
    arrow = _ARROW if column.arrow and column.better else 0.0
    return _GAP + max(max(map(_points, head), default=0.0) + arrow, *map(_points, texts), 0.0)


def _points(text: str) -> float:
    return sum(_OTHER_LETTERS.get(sign, _LETTER) for sign in text)


def caption(board: Board, cited: Citation) -> str:
    """What the table shows, how to read it, and where it stands: LaTeX."""
    kind = "test collection" if cited.kind == "dataset" else "benchmark"
    shown = f"{len(board.rows)} of {board.total} rows" if len(board.rows) != board.total else "all rows"
    shown = "; ".join(part for part in (shown, datasets_of(board)) if part)
    parts = [f"{measured(board)} on {cited.name} ({kind}), {shown}. Best in bold, second underlined."]
    parts += [*footnotes(board), *_tests(board)]
    where = ", ".join(part for part in (cited.site, cited.date) if part)
    return rf"{escape(' '.join(parts))} {escape(where)}, \url{{{escape_url(cited.url)}}}."


def _tests(board: Board) -> list[str]:
    """How the intervals, the ranks and the p-values that the table shows were found."""
    sure = board.certainty
    if sure is None:
        return []
    how, shown = sure.settings, {column.key for column in board.columns}
    about = []
    if shown & {INTERVAL, DELTA_INTERVAL}:
        about.append(f"Intervals: {how.level * 100:.0f}%, {how.interval} over queries.")
    if P_BASELINE in shown:
        label = next(column.label for column in board.columns if column.key == P_BASELINE)
        about.append(
            f"{label}: two-sided {how.test}, {how.permutations:,} permutations, seed {how.seed}, not corrected."
        )
    if shown & {RANKS, P_BEST}:
        about.append(
            f"Rank range, p vs best: all pairs of the board, {how.pairs_correction}, level {how.alpha:g}; systems "
            "whose range begins with 1 are not separable from the best."
        )
    return about


def _groups(columns: Sequence[Column]) -> list[str]:
    """The heads of the groups of columns, and a rule under each."""
    cells, rules, place = ["", ""], [], 3
    for label, span in spans(columns[1:]):
        cells.append(
            rf"\multicolumn{{{span}}}{{c}}{{{_stacked(label, span)}}}" if label else "&" * (span - 1)
        )
        if label:
            rules.append(rf"\cmidrule(lr){{{place}-{place + span - 1}}}")
        place += span
    return [_line(cells), "".join(rules)] if rules else []


def _head(board: Board, column: Column) -> str:
    arrows = {"higher": r"~$\uparrow$", "lower": r"~$\downarrow$", "": ""}
    return _stacked(heading(board, column), 1) + (arrows[column.better] if column.arrow else "")


def _lines(label: str, span: int) -> list[str]:
    return textwrap.wrap(label, _HEAD_LETTERS * span, break_long_words=False)


def _stacked(label: str, span: int) -> str:
    """A head over so many columns, as LaTeX: in lines no longer than their room, as far as its words allow."""
    lines = _lines(label, span)
    text = r"\\".join(map(escape, lines))
    return rf"\shortstack{{{text}}}" if len(lines) > 1 else text


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


_LATEX = _Dialect(
    escape=escape,
    dagger=r"$^{\ddagger}$",
    status=r" \emph{{{}}}",
    emphasis={"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"},
    beside=r"{{\footnotesize {}}}",
    raised={"‡": escape("‡"), SEPARATED: r"$^{*}$"},
)


#: Characters with a meaning in Markdown or in its HTML.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
#: Text that GitHub turns into links or notifications despite a backslash: @names, addresses, e-mail, #1, and GH-1.
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
        _row(["#", *(escape_markdown(heading(board, column)) for column in board.columns)]),
        _row(["--:", *("--:" if is_numeric else ":--" for is_numeric in numeric)]),
        *(_row(_MARKDOWN.cells(board, row, board.columns)) for row in board.rows),
        "",
        *(f"{escape_markdown(note)}  " for note in ("Best in bold.", *footnotes(board))),
        f"{escape_markdown(cited.site)}{f', as of {cited.moment}' if cited.at else ''}: <{cited.url}>",
    ]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """The text on one line, with everything made plain that Markdown would read as its own, and GitHub as alive."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return _LIVE.sub(lambda found: found[0] + _APART, plain)


_MARKDOWN = _Dialect(escape_markdown, dagger=" ‡", status=" {}", emphasis={"best": "**{}**"})


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
