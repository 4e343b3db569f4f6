"""Boards as LaTeX, GitHub Markdown, and BibTeX, and the texts and number formats that all exports share.

A readable LaTeX table has room for eight columns: rank, system, sort columns, then other numeric columns, and then
texts, as far as they fit into the text width of an article. Hiding groups of columns makes room for others.
"""

import datetime
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Literal

from django.conf import settings

from leaderboard.boards.columns import marks
from leaderboard.boards.columns.significance import DELTA_INTERVAL, INTERVAL, P_BASELINE, P_BEST, RANKS
from leaderboard.boards.facets import DATASET_FACETS
from leaderboard.boards.model import EFFECTIVENESS, SEPARATED, SYSTEM, Board, Column, Row, spans
from leaderboard.boards.rendering import section_head
from leaderboard.core.text import bibtex, numbers
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.latex import escape, escape_url
from leaderboard.results.board_rows.entry_rows import CLOSED, QUARANTINED
from leaderboard.results.significance.types import TestSettings

#: Text of a missing value.
MISSING_TEXT = "—"


def cell_text(row: Row, column: Column) -> str:
    """Return a cell as shown on the page, without its marks."""
    value, text = row.value(column.key), row[column.key].text
    if text:
        return text
    if value is None:
        return MISSING_TEXT
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


def row_name(row: Row) -> str:
    """Return the row's system and configuration, such as `BM25 (k1 = 1.2)`."""
    entry = row.entry
    return f"{entry.system} ({entry.configuration})" if entry.configuration else entry.system


def footnotes(board: Board) -> list[str]:
    """Return the notes that explain marks, ranks, and spreads in the table, and name its quarantined rows."""
    cells = [row[column.key] for row in board.rows for column in board.columns]
    signs = {cell.mark for cell in cells}
    texts = []
    if any("‡" in sign for sign in signs) or any(row.entry.training == "in-domain" for row in board.rows):
        texts.append("‡ in-domain: trained on that dataset.")
    # The first sentence of the note on significance explains its mark.
    texts += [f"{note.partition('. ')[0]}." for note in board.notes if note.startswith(f"{SEPARATED} ")]
    if any("?" in sign for sign in signs):
        texts.append("? doubtful: as printed, or as measured on a busy machine.")
    texts += marks.notes_on_cells(board.rows)
    if any(row.rank_label.startswith("r") for row in board.rows):
        source = " of one source" if len(board.rankings) > 1 else ""
        texts.append(f"r: rank among reported figures{source}, which Runboard did not recompute.")
    if any(row.ranked_in == CLOSED for row in board.rows):
        texts.append("c: rank among closed APIs, which cannot be reproduced.")
    if any(cell.spread and not cell.noise for cell in cells):
        texts.append("±: sample standard deviation over seeds, with their number.")
    if any(cell.spread and cell.noise for cell in cells):
        texts.append("± after a latency or × BM25: uncertainty of the value.")
    texts += marks.notes(row.entry for row in board.rows)
    if any(row.entry.visibility == "withdrawn" for row in board.rows):
        texts.append("Withdrawn: removed from the board since then.")
    return texts + [
        f"Quarantined by a curator: {row_name(row)}, {row.entry.moderation_reason}"
        for row in board.rows
        if row.entry.visibility == QUARANTINED
    ]


def row_status(row: Row) -> str:
    """Return the labels after the name, such as `(baseline)`, `(withdrawn)`, or `(quarantined)`."""
    entry = row.entry
    words = ["baseline"] if entry.is_baseline else []
    words += marks.badges(entry)
    words += ["pooled"] if marks.pooled_mark(entry) else []
    words += [entry.visibility] if entry.visibility in ("withdrawn", QUARANTINED) else []
    return f"({', '.join(words)})" if words else ""


#: Description of the cells and suffix of the dataset columns' heads, by view.
_VIEWS: Mapping[str, tuple[str, str]] = {
    "delta": ("Difference from {baseline} in {measure}", "Δ"),
    "relative": ("Relative difference from {baseline} in {measure}", "Δ %"),
    "rank": ("Rank by {measure}", "rank"),
}


def measure_text(board: Board) -> str:
    """Return a description of the dataset columns, such as `nDCG@10` or `Rank by nDCG@10`."""
    if not board.view:
        return board.measure
    return _VIEWS[board.view][0].format(measure=board.measure, baseline=board.baseline)


def column_label(board: Board, column: Column) -> str:
    """Return the head of a column, such as `FiQA-2018`, or `FiQA-2018 Δ` if it shows differences."""
    return f"{column.label} {_VIEWS[board.view][1]}" if _shows_view(board, column) else column.label


def heading(board: Board, column: Column) -> str:
    return column_label(board, column) + (f" ({column.unit})" if column.unit else "")


def column_key(board: Board, column: Column) -> str:
    """Return the machine-readable key of a column: `fiqa`, `fiqa delta`, `fiqa relative`, or `fiqa rank`."""
    return f"{column.key} {board.view}" if _shows_view(board, column) else column.key


def dataset_selection(board: Board) -> str:
    """Return a text such as `1 of 19 datasets, chosen by domain: Finance`, empty without a selection."""
    visible_count = sum(column.group.startswith(EFFECTIVENESS) for column in board.columns)
    total = len(board.member_facets)
    selections = [
        f"{facet.label.lower()}: {', '.join(option.label for option in facet.options if option.chosen)}"
        for facet in board.facets
        if facet.name in DATASET_FACETS and facet.chosen
    ]
    if not selections:
        return ""
    number = f"{visible_count} of {total} datasets" if visible_count else f"some of {total} datasets"
    return f"{number}, chosen by {'; '.join(selections)}"


def _shows_view(board: Board, column: Column) -> bool:
    return bool(board.view) and column.group.startswith(EFFECTIVENESS)


#: Time format of permalinks, to the second.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Citation:
    """Citation data of a board. `at` is the time of its last change, None if unknown.

    `url` is its absolute permalink in the same view, or the current board's URL if `at` is None.
    """

    kind: Literal["dataset", "benchmark"]
    slug: str
    name: str
    url: str
    at: datetime.datetime | None = None
    #: BibTeX by slug of the system; read for BibTeX exports only.
    bibtex: Mapping[str, str] = field(default_factory=dict)

    @property
    def site(self) -> str:
        return settings.SITE_NAME

    @property
    def date(self) -> str:
        return format_day(self.at) if self.at else ""

    @property
    def moment(self) -> str:
        """Timestamp such as `2026-11-21T17:05:09Z`, empty if unknown."""
        return self.at.strftime(MOMENT) if self.at else ""


#: Maximum number of columns, including the rank.
MAX_COLUMNS = 8
#: Maximum number of columns in normal size; wider tables are set in 8 points with narrower gaps.
_MAX_AT_FULL_SIZE = 5
#: Width in points of an article's text that rank and system leave to other columns, and the gap between columns.
_TEXT_WIDTH, _GAP = 258, 5
#: Widths in points of a Computer Modern letter at 8 points, of an arrow in a head, and of narrow and wide
#: letters.
_LETTER, _ARROW = 4.25, 7.0
_OTHER_LETTERS = dict.fromkeys(" .,:;()[]/ijlftrI", 2.9) | dict.fromkeys("@%+−±×mwABCDEFGHKLMNOPQRSTUVWXYZΔ", 6.1)
#: Maximum number of letters per line in the head of one column.
_HEAD_LETTERS = 8
#: Columns that few papers print; they are omitted unless selected.
_RARELY_PRINTED = frozenset(("mean-relative", "weights", "licence", "training-data"))


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Markup of a format; `superscripts` are marks that directly follow a value."""

    escape: Callable[[str], str]
    dagger: str
    status_format: str
    emphasis: Mapping[str, str]
    annotation: str = "{}"
    superscripts: Mapping[str, str] = field(default_factory=dict)

    def cells(self, board: Board, row: Row, columns: Sequence[Column]) -> list[str]:
        """Return the rank, the system, and the cells of the other columns."""
        name = self.escape(row_name(row)) + (self.dagger if row.entry.training == "in-domain" else "")
        if status := row_status(row):
            name += self.status_format.format(status)
        rank = self.escape(row.rank_label or MISSING_TEXT)
        return [rank, name, *(self._cell_markup(board, row, column) for column in columns[1:])]

    def _cell_markup(self, board: Board, row: Row, column: Column) -> str:
        """Return a value with emphasis if it is the best or second best, its marks, and its spread.

        Marks become superscripts if the format has one for each of them.
        """
        text, cell, superscripts = self.escape(cell_text(row, column)), row[column.key], ""
        text = self.emphasis.get(board.emphasis(row, column.key), "{}").format(text)
        parts = [cell.spread, cell.mark]
        if self.superscripts.keys() >= set(cell.mark):
            superscripts, parts = "".join(self.superscripts[sign] for sign in cell.mark), [cell.spread]
        annotations = " ".join(self.annotation.format(self.escape(part)) for part in parts if part)
        return f"{text}{superscripts}{f' {annotations}' if annotations else ''}"


def to_latex(board: Board, citation: Citation) -> str:
    """Return the board as a `table` with caption and label, with as many columns as fit the text width.

    Sort columns are preferred, then numeric ones. A comment at the start lists the keys of omitted columns.
    """
    sort_keys = {sort.key for sort in board.sorts}
    rarely_printed = _RARELY_PRINTED - {column.key for column in board.shown}
    candidates = [column for column in board.columns if column.key not in {SYSTEM, *rarely_printed}]
    selected_keys, available_width = {SYSTEM}, float(_TEXT_WIDTH)
    for column in sorted(candidates, key=lambda column: (column.key not in sort_keys, not column.numeric)):
        head = _wrap_head(heading(board, column), 1)
        texts = [
            f"{cell_text(row, column)} {row[column.key].spread} {row[column.key].mark}".strip() for row in board.rows
        ]
        arrow = _ARROW if column.arrow and column.better else 0.0
        width = _GAP + max(max(map(_width_in_points, head), default=0.0) + arrow, *map(_width_in_points, texts), 0.0)
        if len(selected_keys) < MAX_COLUMNS - 1 and width <= available_width:
            selected_keys.add(column.key)
            available_width -= width
    columns = [column for column in board.columns if column.key in selected_keys]
    omitted_keys = [column.key for column in board.columns if column not in columns]
    alignment = "".join("r" if column.numeric else "l" for column in columns[1:])
    arrows = {"higher": r"~$\uparrow$", "lower": r"~$\downarrow$", "": ""}
    heads = [
        _stack_head(heading(board, column), 1) + (arrows[column.better] if column.arrow else "") for column in columns
    ]
    lines = [
        f"% {escape(board.title)}: {citation.moment or 'present board'}. Needs \\usepackage{{array,booktabs,url}}",
        *([f"% {escape(board.summary.text)}"] if board.summary else []),
        *([f"% Not shown (hide other groups of columns for these): {', '.join(omitted_keys)}"] if omitted_keys else []),
        r"\begin{table}[t]",
        r"\centering",
        *(
            [r"\footnotesize\setlength{\tabcolsep}{2.5pt}"] if len(columns) + 1 > _MAX_AT_FULL_SIZE else []
        ),  # Lists of tables get the short caption, because a URL is fragile in them.
        rf"\caption[{{{escape(board.title)}}}]{{{caption(board, citation)}}}",
        rf"\label{{tab:{citation.kind}-{citation.slug}}}",
        rf"\begin{{tabular}}{{r>{{\raggedright\arraybackslash}}p{{0.18\linewidth}}{alignment}}}",
        r"\toprule",
        *_group_head_lines(columns),
        _latex_row([r"\#", *heads]),
        *_latex_body(board, columns),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _sections(board: Board) -> list[tuple[str, Sequence[Row]]]:
    """Return the rows by section with its head, which is empty for pinned rows and if there is a single section."""
    pinned, others = board.rows[: board.pinned], board.rows[board.pinned :]
    sections = [list(rows) for _, rows in groupby(others, board.get_section)]
    heads = [section_head(board, rows[0], len(rows)) if len(sections) > 1 else "" for rows in sections]
    return [*([("", pinned)] if pinned or not others else []), *zip(heads, sections, strict=True)]


def _latex_body(board: Board, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a rule, the head if there is any, and the rows of each section."""
    for head, rows in _sections(board):
        yield r"\midrule"
        if head:
            yield rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\emph{{{escape(head)}}}}} \\"
        yield from (_latex_row(_LATEX.cells(board, row, columns)) for row in rows)


def _width_in_points(text: str) -> float:
    return sum(_OTHER_LETTERS.get(sign, _LETTER) for sign in text)


def caption(board: Board, citation: Citation) -> str:
    """Return the LaTeX caption: content of the table, notes on reading it, and its source."""
    kind = "test collection" if citation.kind == "dataset" else "benchmark"
    scope = f"{len(board.rows)} of {board.total} rows" if len(board.rows) != board.total else "all rows"
    scope = "; ".join(part for part in (scope, dataset_selection(board)) if part)
    best = "Best in bold, second underlined"
    if any(head for head, _ in _sections(board)):
        best += "; ranks, marks, and tests are within each part of the table"
    parts = [f"{measure_text(board)} on {citation.name} ({kind}), {scope}. {best}."]
    parts += [*footnotes(board), *_test_notes(board)]
    source = ", ".join(part for part in (citation.site, citation.date) if part)
    return rf"{escape(' '.join(parts))} {escape(source)}, \url{{{escape_url(citation.url)}}}."


def _test_notes(board: Board) -> list[str]:
    """Return notes on how the visible intervals, ranks, and p-values were computed, for each kind of ranking."""
    if board.certainty is None:
        return []
    tests = list(dict.fromkeys(ranking.settings for ranking in board.statements.rankings))
    settings, visible_keys = tests[0], {column.key for column in board.columns}

    def describe(text: Callable[[TestSettings], str]) -> str:
        if len(tests) == 1:
            return text(settings)
        names = {"queries": "rows scored by Runboard", "datasets": "reported rows"}
        return " or ".join(f"{text(each)} ({names[each.tested_over]})" for each in tests)

    texts = []
    if visible_keys & {INTERVAL, DELTA_INTERVAL}:
        methods = describe(lambda each: f"{each.interval}, over {each.tested_over}")
        texts.append(f"Intervals: {settings.level * 100:.0f}%, {methods}.")
    if P_BASELINE in visible_keys:
        label = next(column.label for column in board.columns if column.key == P_BASELINE)
        methods = describe(lambda each: f"{each.test}, {each.describe_patterns(each.permutations)}")
        texts.append(f"{label}: two-sided {methods}, not corrected.")
    if visible_keys & {RANKS, P_BEST}:
        texts.append(
            f"Rank range, p vs best: all pairs of the {'ranking' if board.tested_over else 'board'}, "
            f"{settings.pairs_correction}, level {settings.alpha:g}; systems with a range that starts at 1 are not "
            "separable from the best."
        )
    return texts


def _group_head_lines(columns: Sequence[Column]) -> list[str]:
    """Return a line with the heads of column groups and a line with the rules below them, empty without heads."""
    cells, rules, column_number = ["", ""], [], 3
    for label, span in spans(columns[1:]):
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{_stack_head(label, span)}}}" if label else "&" * (span - 1))
        if label:
            rules.append(rf"\cmidrule(lr){{{column_number}-{column_number + span - 1}}}")
        column_number += span
    return [_latex_row(cells), "".join(rules)] if rules else []


def _wrap_head(label: str, span: int) -> list[str]:
    return textwrap.wrap(label, _HEAD_LETTERS * span, break_long_words=False)


def _stack_head(label: str, span: int) -> str:
    """Return a LaTeX column heading that spans `span` columns, broken between words to fit where possible."""
    lines = _wrap_head(label, span)
    text = r"\\".join(map(escape, lines))
    return rf"\shortstack{{{text}}}" if len(lines) > 1 else text


def _latex_row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


_LATEX = _Dialect(
    escape=escape,
    dagger=r"$^{\ddagger}$",
    status_format=r" \emph{{{}}}",
    emphasis={"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"},
    annotation=r"{{\footnotesize {}}}",
    superscripts={
        **{mark: escape(mark) for mark in ("‡", marks.SELF_REPORTED, marks.UNKNOWN_REVISION, marks.OTHER_REVISION)},
        SEPARATED: r"$^{*}$",
    },
)


#: Characters with a meaning in Markdown or in its HTML.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
#: Text that GitHub turns into links or notifications despite a backslash: @names, addresses, email, #1, and
#: GH-1.
_AUTOLINKED = re.compile(r"(?<!\w)@(?=\w)|@(?=[\w\\-]+\.\w)|#(?=\d)|\w(?=://)|\bwww(?=\.)|\bGH(?=-\d)", re.IGNORECASE)
#: Zero-width space.
_ZERO_WIDTH_SPACE = "&#8203;"


def to_markdown(board: Board, citation: Citation) -> str:
    """Return the board as Markdown: a heading line, the table with the best values in bold, and its source."""
    numeric_columns = [False, *(column.numeric for column in board.columns[1:])]
    scope = "; ".join(part for part in (f"{len(board.rows)} of {board.total} rows", dataset_selection(board)) if part)
    lines = [
        f"**{escape_markdown(board.title)}**, {escape_markdown(measure_text(board))}: {escape_markdown(scope)}.",
        *(["", escape_markdown(board.summary.text)] if board.summary else []),
        "",
        _markdown_row(["#", *(escape_markdown(heading(board, column)) for column in board.columns)]),
        _markdown_row(["--:", *("--:" if is_numeric else ":--" for is_numeric in numeric_columns)]),
        *(_markdown_row(_MARKDOWN.cells(board, row, board.columns)) for row in board.rows),
        "",
        *(f"{escape_markdown(note)}  " for note in ("Best in bold.", *footnotes(board))),
        f"{escape_markdown(citation.site)}{f', as of {citation.moment}' if citation.at else ''}: <{citation.url}>",
    ]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Return the text on one line, escaped for Markdown and protected from GitHub's automatic links."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return _AUTOLINKED.sub(lambda match: match[0] + _ZERO_WIDTH_SPACE, escaped)


_MARKDOWN = _Dialect(escape_markdown, dagger=" ‡", status_format=" {}", emphasis={"best": "**{}**"})


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def bibliography(references: Iterable[bibtex.BibtexEntry], used_keys: Iterable[str] = ()) -> list[str]:
    """Return the distinct references as text, with unique keys: `thakur2021`, `thakur2021-2`.

    `used_keys` are keys that must not be used again.
    """
    keys = {key.casefold() for key in used_keys}
    written_contents: set[str] = set()
    entries = []
    for reference in references:
        content = " ".join(reference.with_key(reference.key).split())
        if content in written_contents:
            continue
        written_contents.add(content)
        key, number = reference.key, 1
        while key.casefold() in keys:
            number += 1
            key = f"{reference.key}-{number}"
        keys.add(key.casefold())
        entries.append(reference.with_key(key))
    return entries


def to_bibtex(board: Board, citation: Citation) -> str:
    """Return the board as a dated `@misc` entry, followed by the entries that its rows cite.

    A comment at the start has its summary, and one at the end lists the systems without a reference.
    """
    key = f"{citation.kind}-{citation.slug}" + (f"-{citation.at:%Y-%m-%d}" if citation.at else "")
    board_entry = bibtex.misc_entry(
        key,
        {
            "title": f"{{{escape(board.title)}: {escape(measure_text(board))}}}",
            "author": f"{{{escape(citation.site)}}}",
            "year": f"{citation.at:%Y}" if citation.at else "",
            "month": f"{citation.at:%b}".lower() if citation.at else "",
            "howpublished": rf"\url{{{bibtex.escape_url(citation.url)}}}",
            "note": escape(f"Leaderboard as of {citation.moment}") if citation.at else "Leaderboard",
        },
    )
    names = {row.entry.slug: row.entry.system for row in board.rows}
    references = {slug: bibtex.parse_entries(citation.bibtex.get(slug, "")) for slug in names}
    names_without_references = [name for slug, name in names.items() if not references[slug]]
    parts = [_bibtex_comment(board.summary.text)] if board.summary else []
    parts += [board_entry, *bibliography(chain.from_iterable(references.values()), [key])]
    if names_without_references:
        parts.append(_bibtex_comment(f"No reference is known for: {', '.join(names_without_references)}"))
    return "\n\n".join(parts) + "\n"


def _bibtex_comment(text: str) -> str:
    return f"% {' '.join(text.replace('@', '(at)').split())}"
