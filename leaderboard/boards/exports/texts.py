"""Boards as LaTeX, GitHub's Markdown, and BibTeX, and the words and digits that all exports share.

A LaTeX table has room for eight columns that can still be read: the rank, the system, what the order follows, the first
others with numbers, and then those with text, as far as they fit into the text of an article. Hiding groups of columns
makes room for others.
"""

import datetime
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from django.conf import settings

from leaderboard.boards.columns import marks
from leaderboard.boards.columns.significance import DELTA_INTERVAL, INTERVAL, P_BASELINE, P_BEST, RANKS
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.model import EFFECTIVENESS, SEPARATED, SYSTEM, Board, Column, Row, spans
from leaderboard.core.text import bibtex, numbers
from leaderboard.core.text.latex import escape, escape_url
from leaderboard.results.board_rows.entry_rows import CLOSED, QUARANTINED

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
    return numbers.format_quantity(value)


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
        found.append("? doubtful: as printed, or as measured on a busy machine.")
    if any(row.rank_label.startswith("r") for row in board.rows):
        found.append("r: rank among reported figures, which were not recomputed here.")
    if any(row.ranked_in == CLOSED for row in board.rows):
        found.append("c: rank among closed APIs, which cannot be reproduced.")
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
    words += ["pooled"] if marks.pooled_mark(entry) else []
    words += [entry.visibility] if entry.visibility in ("withdrawn", QUARANTINED) else []
    return f"({', '.join(words)})" if words else ""


#: By view: what the cells are of the measure, and what the head of each dataset's column ends with.
_VIEWS: Mapping[str, tuple[str, str]] = {
    "delta": ("Difference to {baseline} in {measure}", "Δ"),
    "relative": ("Relative difference to {baseline} in {measure}", "Δ %"),
    "rank": ("Rank by {measure}", "rank"),
}


def measured(board: Board) -> str:
    """What the datasets' cells show: `nDCG@10`, `Rank by nDCG@10`."""
    if not board.view:
        return board.measure
    return _VIEWS[board.view][0].format(measure=board.measure, baseline=board.baseline)


def label_of(board: Board, column: Column) -> str:
    """The head of a column: `FiQA-2018`, or `FiQA-2018 Δ` where it shows differences."""
    return f"{column.label} {_VIEWS[board.view][1]}" if _is_of_view(board, column) else column.label


def heading(board: Board, column: Column) -> str:
    """The head of a column with its unit, as people read it."""
    return label_of(board, column) + (f" ({column.unit})" if column.unit else "")


def key_of(board: Board, column: Column) -> str:
    """The same for programs: `fiqa`, `fiqa delta`, `fiqa relative`, `fiqa rank`."""
    return f"{column.key} {board.view}" if _is_of_view(board, column) else column.key


def datasets_of(board: Board) -> str:
    """`1 of 19 datasets, chosen by domain: Finance`; empty where the board has all of its datasets."""
    shown = sum(column.group.startswith(EFFECTIVENESS) for column in board.columns)
    every = len(board.of_datasets)
    chosen = [
        f"{facet.label.lower()}: {', '.join(option.label for option in facet.options if option.chosen)}"
        for facet in board.facets
        if facet.name in OF_DATASETS and facet.chosen
    ]
    if not chosen:
        return ""
    number = f"{shown} of {every} datasets" if shown else f"some of {every} datasets"
    return f"{number}, chosen by {'; '.join(chosen)}"


def _is_of_view(board: Board, column: Column) -> bool:
    return bool(board.view) and column.group.startswith(EFFECTIVENESS)


#: As addresses of past boards write a time, to the second.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Citation:
    """A board with its date. `at` is when it last changed, None where nobody wrote that down.

    `url` is its permalink in the same view, with a host; without an `at` the address of the present board.
    """

    kind: Literal["dataset", "benchmark"]
    slug: str
    name: str
    url: str
    at: datetime.datetime | None = None
    #: What each system's own page says to cite, by its slug; read for BibTeX only.
    bibtex: Mapping[str, str] = field(default_factory=dict)

    @property
    def site(self) -> str:
        """Who publishes it."""
        return settings.SITE_NAME

    @property
    def date(self) -> str:
        """`21 November 2026`, empty where it is not known."""
        return f"{self.at.day} {self.at:%B %Y}" if self.at else ""

    @property
    def moment(self) -> str:
        """`2026-11-21T17:05:09Z`, empty where it is not known."""
        return self.at.strftime(MOMENT) if self.at else ""


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
    wanted = {sort.key for sort in board.sorts}
    seldom = _SELDOM - {column.key for column in board.shown}
    others = [column for column in board.columns if column.key not in {SYSTEM, *seldom}]
    shown, left = {SYSTEM}, float(_ROOM)
    for column in sorted(others, key=lambda column: (column.key not in wanted, not column.numeric)):
        head = _lines(heading(board, column), 1)
        texts = [
            f"{text_of(row, column)} {row[column.key].spread} {row[column.key].mark}".strip()
            for row in board.rows
        ]
        arrow = _ARROW if column.arrow and column.better else 0.0
        width = _GAP + max(max(map(_points, head), default=0.0) + arrow, *map(_points, texts), 0.0)
        if len(shown) < MOST_COLUMNS - 1 and width <= left:
            shown.add(column.key)
            left -= width
    columns = [column for column in board.columns if column.key in shown]
    left_out = [column.key for column in board.columns if column not in columns]
    aligned = "".join("r" if column.numeric else "l" for column in columns[1:])
    arrows = {"higher": r"~$\uparrow$", "lower": r"~$\downarrow$", "": ""}
    heads = [
        _stacked(heading(board, column), 1) + (arrows[column.better] if column.arrow else "")
        for column in columns
    ]
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
        _line([r"\#", *heads]),
        r"\midrule",
        *(_line(_LATEX.cells(board, row, columns)) for row in board.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


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


def bibliography(references: Iterable[bibtex.BibtexEntry], taken: Iterable[str] = ()) -> list[str]:
    """The references as text, each once, under keys that none shares: `thakur2021`, `thakur2021-2`."""
    keys = {key.casefold() for key in taken}
    seen: set[str] = set()
    written = []
    for reference in references:
        content = " ".join(reference.with_key(reference.key).split())
        if content in seen:
            continue
        seen.add(content)
        key, number = reference.key, 1
        while key.casefold() in keys:
            number += 1
            key = f"{reference.key}-{number}"
        keys.add(key.casefold())
        written.append(reference.with_key(key))
    return written


def to_bibtex(board: Board, cited: Citation) -> str:
    """The board as a dated `@misc`, then what its rows cite.

    Its summary stands before these in a comment, and in another behind them the systems that have nothing to cite.
    """
    key = f"{cited.kind}-{cited.slug}" + (f"-{cited.at:%Y-%m-%d}" if cited.at else "")
    own = bibtex.misc_entry(
        key,
        {
            "title": f"{{{escape(board.title)}: {escape(measured(board))}}}",
            "author": f"{{{escape(cited.site)}}}",
            "year": f"{cited.at:%Y}" if cited.at else "",
            "month": f"{cited.at:%b}".lower() if cited.at else "",
            "howpublished": rf"\url{{{bibtex.escape_url(cited.url)}}}",
            "note": escape(f"Leaderboard as of {cited.moment}") if cited.at else "Leaderboard",
        },
    )
    names = {row.entry.slug: row.entry.system for row in board.rows}
    references = {slug: bibtex.parse_entries(cited.bibtex.get(slug, "")) for slug in names}
    silent = [name for slug, name in names.items() if not references[slug]]
    parts = [_comment(board.summary.text)] if board.summary else []
    parts += [own, *bibliography(chain.from_iterable(references.values()), [key])]
    if silent:
        parts.append(_comment(f"Nothing to cite is known of: {', '.join(silent)}"))
    return "\n\n".join(parts) + "\n"


def _comment(text: str) -> str:
    """The text on a line that BibTeX ignores: all that is outside of entries and has no @."""
    return f"% {' '.join(text.replace('@', '(at)').split())}"
