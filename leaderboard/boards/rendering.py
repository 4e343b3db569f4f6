"""Board rows as HTML, written column by column; the template only inserts them.

A page has up to ten thousand cells, so properties that are common to a column are computed once per column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import groupby, pairwise, repeat
from typing import NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext, ngettext_lazy

from leaderboard.boards.columns import gap as gaps
from leaderboard.boards.columns import marks
from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.columns.significance import ranks_text
from leaderboard.boards.model import (
    DELTA,
    EFFECTIVENESS,
    RATIOS,
    RELATIVE,
    SEPARATED,
    SYSTEM,
    Block,
    Board,
    Cell,
    Column,
    Row,
    Value,
    reason_gone,
)
from leaderboard.boards.wording import ranking_source
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.numbers import DECIMALS, MINUS, format_quantity, signed_percent
from leaderboard.models import REFERENCE_TYPES, Entry
from leaderboard.results.board_rows.entry_rows import GONE, REPORTED, SCORED, STALE
from leaderboard.results.significance.statements import BoardStatements, lost_class, outcome_class
from leaderboard.results.significance.types import EntryCertainty

#: Spaces as wide as a digit and as a decimal point, which align 0.123, 0.1234, and 12.
FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
#: Marks of one character, written as superscripts.
SYMBOLS = frozenset(f"‡?{SEPARATED}{marks.SELF_REPORTED}{marks.UNKNOWN_REVISION}{marks.OTHER_REVISION}")
#: Width of a drawn interval in its own units; a cell is about eighty pixels wide.
INTERVAL_WIDTH = 400
#: Heads of a board's blocks.
BLOCKS = {
    Block.SCORED: gettext_lazy("Scored by Runboard"),
    Block.REPORTED: gettext_lazy("Reported: ranked separately"),
    Block.INCOMPLETE: ngettext_lazy(
        "%d incomplete row: no comparable result on some of the datasets",
        "%d incomplete rows: no comparable result on some of the datasets",
    ),
    Block.NOT_RANKED: gettext_lazy("Not ranked"),
}
#: Number of steps of an in-cell bar, whose classes are the digits of the step: b8 c5 d3 for 0.853 of the
#: longest bar.
BAR_STEPS = 1000
#: Maximum number of reported rows per section before the rest is folded. board.css repeats it (`nth-child(n + 11)`),
#: and folds all but five rows if another section of reported rows precedes it.
SHOWN_REPORTED = 10
#: Number of rows before the figure on phones, and the minimum number after it; fewer remaining rows come before it.
FIGURE_AFTER, MIN_ROWS_AFTER_FIGURE = 5, 4

#: Cell of columns in which no row has more than a value.
EMPTY_CELL = Cell()

Cells = Sequence[Cell]


def render_rows(
    board: Board,
    widths: Mapping[str, int],
    unpin: Mapping[str, str] | None = None,
    *,
    may_pin: bool = False,
    exact: bool = False,
) -> tuple[SafeString, set[str]]:
    """Return all rows as HTML, with a `<tbody>` per block and the figure as a row, and the marks of rows and values.

    The figure follows the first five rows, or is at the end if fewer than four rows would follow it. Marks are the
    classes of rows and differences, `star`, and `interval`.

    `widths` are those of `spread_widths`. `unpin` has, by slug of a pinned system, the URL of the view without
    its pin. `may_pin` adds a pin button to other rows. Scores have three decimals unless `exact`.
    """
    if not board.rows:
        return SafeString(""), set()
    keys, shown_marks = [column.key for column in board.shown], set[str]()
    column_values = zip(*(map(row.values.get, keys[1:]) for row in board.rows), strict=True)
    keys_with_cells = {key for row in board.rows for key in row.cells}
    decimals = [row.decimals if exact else min(row.decimals, DECIMALS) for row in board.rows]
    rankings = [row.ranking for row in board.rows]
    columns = []
    for (previous, column), values in zip(pairwise(board.shown), column_values, strict=True):
        cells: Cells = [EMPTY_CELL] * len(values)
        if column.key in keys_with_cells:
            cells = [row.cells.get(column.key, EMPTY_CELL) for row in board.rows]
        begins_group = previous.key != SYSTEM and previous.group != column.group
        writer = ColumnWriter(board, shown_marks, decimals, rankings, column, values, cells)
        columns.append(writer.write(widths.get(column.key), begins_group=begins_group))
    heads = RowHeads.from_board(board, shown_marks)
    pinned, other_rows = board.rows[: board.pinned], board.rows[board.pinned :]
    first_cells = [
        heads.write(row, heads.unpin_link(row, (unpin or {}).get(row.entry.slug, "")), "is-pinned") for row in pinned
    ]
    first_cells += [heads.write(row, heads.pin_button(row) if may_pin else "") for row in other_rows]
    rows = list(map("".join, zip(first_cells, *columns, strict=True)))
    if board.summary and (figure := board.summary.forest_plot):
        shown = FIGURE_AFTER if len(rows) >= FIGURE_AFTER + MIN_ROWS_AFTER_FIGURE else len(rows)
        if shown < len(rows):
            remaining = _("%d more rows follow") % (len(rows) - shown)
            figure += format_html('<p class="figure-next">{} <span aria-hidden="true">↓</span></p>', remaining)
        rows[shown - 1] += f'</tr>\n<tr class="figure-row"><td colspan="{len(board.shown) + 1}">{figure}</td>'
    return mark_safe("".join(_block_bodies(board, rows))), shown_marks  # noqa: S308


def _block_bodies(board: Board, rows: Sequence[str]) -> Iterator[str]:
    """Yield `<tbody>` elements: the pinned rows, then each section.

    Sections have a head, except rows scored by Runboard, and reported rows if no others are ranked. The heads of
    incomplete rows and of long sections of reported rows have a button that shows all rows: a styled checkbox, which
    works without a script.
    """
    if board.pinned:
        yield f"<tbody>{_join_rows(rows[: board.pinned])}</tbody>"
    other_rows = list(zip(board.rows[board.pinned :], rows[board.pinned :], strict=True))
    sections = [list(pairs) for _, pairs in groupby(other_rows, lambda pair: board.get_section(pair[0]))]
    for section in sections:
        first_row, block_rows = section[0][0], [row for _, row in section]
        block = board.get_block(first_row)
        is_only_ranking = section is sections[0] and block is Block.REPORTED and len(board.rankings) < 2
        if is_only_ranking or block is Block.SCORED:
            yield f"<tbody>{_join_rows(block_rows)}</tbody>"
            continue
        label = escape(section_head(board, first_row, len(block_rows)))
        is_long = block is Block.REPORTED and len(block_rows) > SHOWN_REPORTED
        if block is Block.INCOMPLETE or is_long:
            checkbox = f'<input type="checkbox" class="visually-hidden"{" checked" * (board.found < board.total)}>'
            words = f"<span>{_('Show all %d') % len(block_rows)}</span><span>{_('Show fewer')}</span>"
            label += f' <label class="button is-small">{checkbox}{words}</label>'
        head = f'<th colspan="{len(board.shown) + 1}" scope="rowgroup"><span>{label}</span></th>'
        yield f'<tbody class="block"><tr>{head}</tr></tbody>'
        name = block.name.lower().replace("_", "-") + (" is-long" if is_long else "")
        yield f'<tbody class="is-{name}">{_join_rows(block_rows)}</tbody>'


def section_head(board: Board, row: Row, count: int) -> str:
    """Return the head of the section of `count` rows that begins with this row.

    If there are several rankings of reported rows, it names their source, and the dataset's revision if it is known.
    """
    block = board.get_block(row)
    if block is not Block.REPORTED or len(board.rankings) < 2:
        return BLOCKS[block] % count if block is Block.INCOMPLETE else str(BLOCKS[block])
    return _("Reported by %s: ranked separately") % ranking_source(row)


def _join_rows(rows: Sequence[str]) -> str:
    return "</tr>\n".join(rows) + "</tr>"


class ColumnHtml(NamedTuple):
    """HTML of a column's cells: texts (empty for missing values), attributes, and padding."""

    texts: list[str]
    attributes: Iterable[str] = repeat("")
    paddings: Iterable[str] = repeat("")


@dataclass(frozen=True, slots=True)
class ColumnWriter:
    """Writer of one column of a board.

    `decimals`, `rankings`, `values`, and `cells` are by row. `cells` are empty for rows with only a value. The writer
    adds the marks of its values to `marks`.
    """

    board: Board
    marks: set[str]
    decimals: Sequence[int]
    rankings: Sequence[str]
    column: Column
    values: Sequence[Value]
    cells: Cells

    def write(self, room: int | None, *, begins_group: bool) -> list[str]:
        """Return the cells as HTML, one per row, with the best and second-best values marked.

        `room` is the width of spreads, None if no cell has more than its text. Missing values are dashes. Texts at the
        start of a group get a class, because the group's head is wider.
        """
        key, values = self.column.key, self.values
        css_class = "" if self.column.numeric else "first t " if begins_group else "t "
        texts, attributes, paddings = _WRITERS[self.column.kind](self)
        if css_class:
            attributes = repeat(f' class="{css_class.rstrip()}"')
        tags = dict[tuple[str, str], str]()  # Keyed by ranking and text: values that look equal are marked equally.
        for marked_values, tag in ((self.board.second, "u"), (self.board.best, "b")):
            marked = {ranking: value for (name, ranking), value in marked_values.items() if name == key}
            rows = zip(self.rankings, texts, values, strict=True) if marked else ()
            tags |= {(ranking, text): tag for ranking, text, value in rows if marked.get(ranking, "") == value}
        if tags:
            found = [tags.get(pair) for pair in zip(self.rankings, texts, strict=True)]
            texts = [f"<{tag}>{text}</{tag}>" if tag else text for tag, text in zip(found, texts, strict=True)]
        if "" in texts:
            empty_cell = "", f' class="{css_class}none"', "—"
            parts = (part if part[2] else empty_cell for part in zip(paddings, attributes, texts, strict=False))
            paddings, attributes, texts = map(list, zip(*parts, strict=True))
        if room is not None:
            self.marks.update("interval" for cell in self.cells if cell.interval)
            scale = room, self._scale_maximum()
            return [
                f"<td{_title_html(cell)}{attribute}>{text}{_cell_suffix(cell, padding, value, digits, scale)}</td>"
                for cell, value, digits, attribute, text, padding in zip(
                    self.cells, values, self.decimals, attributes, texts, paddings, strict=False
                )
            ]
        if isinstance(attributes, repeat) and isinstance(paddings, repeat):
            opening = f"<td{next(attributes)}>"
            return [f"{opening}{text}</td>" for text in texts]
        cells = zip(attributes, texts, paddings, strict=False)
        return [f"<td{attribute}>{text}{padding}</td>" for attribute, text, padding in cells]

    def _scale_maximum(self) -> float:
        ends = [cell.interval[1] for cell in self.cells if cell.interval is not None]
        return max([value for value in self.values if isinstance(value, (float, int))] + ends, default=0.0)

    def scores(self) -> ColumnHtml:
        """Return scores, with bars if the board is sorted by this column, and texts of cells without a value."""
        texts, paddings = self._numbers("")
        if "" in texts:
            texts = [text or escape(cell.text) for text, cell in zip(texts, self.cells, strict=True)]
        if self.column.key != self.board.sort or not any(self.values):
            return ColumnHtml(texts, paddings=paddings)
        scale = BAR_STEPS / max(self._scale_maximum(), 1e-12)
        numbers = [value if isinstance(value, (float, int)) else 0.0 for value in self.values]
        bars = [min(BAR_STEPS, max(0, round(number * scale))) for number in numbers]
        digits = [(bar // 100, bar // 10 % 10, bar % 10) for bar in bars]
        return ColumnHtml(texts, [f' class="b{first} c{second} d{third}"' for first, second, third in digits], paddings)

    def _numbers(self, sign: str) -> tuple[list[str], Iterable[str]]:
        """Return the numbers as text with the decimals of their rows, and padding that aligns their points."""
        decimals, values, max_decimals = self.decimals, self.values, max(self.decimals)
        if min(decimals) == max_decimals:
            pattern = f"%{sign}.{max_decimals}f"
            if None not in values:
                # Format the whole column at once, which takes half the time of one operation per value.
                return ((pattern + "\n") * len(values) % tuple(values)).split("\n")[:-1], repeat("")
            return ["" if value is None else pattern % value for value in values], repeat("")
        texts = [
            "" if value is None else f"%{sign}.{digits}f" % value
            for digits, value in zip(decimals, values, strict=True)
        ]
        return texts, [FIGURE_SPACE * (max_decimals - digits) for digits in decimals]

    def deltas(self) -> ColumnHtml:
        """Return signed differences; in the column `delta`, also with stars and ratios.

        Stars mark rows that differ significantly from the baseline after correction. Ratios are omitted if they have a
        column of their own.
        """
        differences, board = self._differences(*self._numbers("+")), self.board
        if self.column.key != DELTA:
            return differences
        stars = [f"<sup>{SEPARATED}</sup>" if board.separates(row) else "" for row in board.rows]
        self.marks.update("star" for star in stars if star)
        relative_texts: Iterable[str] = repeat("")
        ratio_key = next((column.key for column in board.columns if column.key in RATIOS), RELATIVE)
        if not any(column.key == ratio_key for column in board.shown):
            ratios = [row.values.get(ratio_key) for row in board.rows]
            relative_texts = [
                f"<small>{signed_percent(part)}</small>" if isinstance(part, float) else "" for part in ratios
            ]
        cell_parts = zip(differences.texts, stars, differences.paddings, relative_texts, strict=False)
        return differences._replace(
            texts=["".join(part) if part[0] else "" for part in cell_parts], paddings=repeat("")
        )

    def relative_differences(self) -> ColumnHtml:
        texts = [f"{value * 100:+.1f}" if isinstance(value, (float, int)) else "" for value in self.values]
        return self._differences(texts, repeat(""))

    def _differences(self, texts: list[str], paddings: Iterable[str]) -> ColumnHtml:
        """Return signed differences with the classes of `outcome_class`.

        Better is not the same as positive for measures such as Hole@10.
        """
        higher_is_better, board = self.column.better != "lower", self.board
        signed_texts = [
            text.replace("-", MINUS) if value else text.replace("+", "±")
            for value, text in zip(self.values, texts, strict=True)
        ]
        is_of_row, tests = self.column.key in (DELTA, *RATIOS), [cell.certainty for cell in self.cells]
        published: Sequence[bool | None] = [None] * len(tests)
        if is_of_row:
            tests = [row.certainty for row in board.rows]
            if board.statements.least_difference(board.measure) is not None:
                published = [None if row.ranked_in == REPORTED else row.differs for row in board.rows]
        # Differences between the parts of a dataset are not from the baseline.
        is_from_baseline = is_of_row or self.column.group.startswith(EFFECTIVENESS)

        def css_class(row: Row, value: Value, test: EntryCertainty | None, better: bool | None) -> str:
            p = test.p_baseline if test is not None else None
            is_pending = p is None and better is None and row.ranked_in != REPORTED
            if not value or isinstance(value, str) or not is_from_baseline or is_pending:
                return "ns"
            direction = "up" if (value > 0) == higher_is_better else "down"
            return outcome_class(direction, p, lost_class(test), better=better)

        classes = list(map(css_class, board.rows, self.values, tests, published))
        # A box around the number alone, as on cards.
        signed_texts = [
            f"<span>{text}</span>" if name.endswith("is-lost") else text
            for name, text in zip(classes, signed_texts, strict=True)
        ]
        self.marks.update(classes)
        return ColumnHtml(signed_texts, [f' class="{name}"' for name in classes], paddings)

    def plain_numbers(self) -> ColumnHtml:
        """Return numbers with the column's decimals, by default as many as the values need, at most four."""
        numbers = [value if isinstance(value, (float, int)) else None for value in self.values]
        known_numbers, decimals = [number for number in numbers if number is not None], self.column.decimals
        if decimals is None:
            decimals = next((n for n in range(4) if all(abs(round(v, n) - v) < 5e-6 for v in known_numbers)), 4)
        texts = ["" if number is None else f"{number:.{decimals}f}".replace("-", MINUS) for number in numbers]
        for position, cell in enumerate(self.cells):
            if cell.published:
                texts[position] += f'<small class="below">{cell.published.text["difference"]}</small>'
        return ColumnHtml(texts)

    def figures(self) -> ColumnHtml:
        """Return figures, aligned at their decimal points.

        A cell's own text is shown unchanged; other values are rounded to significant digits.
        """
        texts = [
            cell.text or (format_quantity(value) if isinstance(value, (float, int)) else "")
            for cell, value in zip(self.cells, self.values, strict=True)
        ]
        parts, paddings = [text.partition(".")[1:] for text in texts], []
        max_length = max(len(decimals) for _, decimals in parts)
        for point, decimals in parts:
            padding = FIGURE_SPACE * (max_length - len(decimals))
            paddings.append(padding if point or not padding else POINT_SPACE + padding)
        return ColumnHtml(list(map(escape, texts)), paddings=paddings)

    def counts(self) -> ColumnHtml:
        return ColumnHtml(["" if cell.value is None else escape(cell.text) for cell in self.cells])

    def texts(self) -> ColumnHtml:
        """Return texts, with links to teams and submissions, formatted dates, and provenances as badges."""
        key, html_by_value = self.column.key, {value: escape(str(value or "")) for value in set(self.values)}
        if key == "provenance":
            for value in html_by_value:
                html_by_value[value] = " ".join(map(provenance_badge, filter(None, str(value or "").split(", "))))
        elif self.column.kind == "date":
            html_by_value = {value: format_day(str(value)) if value else "" for value in html_by_value}
        elif key == "submission":
            html_by_value = {
                value: text and f'<a href="/submissions/{text}/">{text}</a>' for value, text in html_by_value.items()
            }
        texts = [html_by_value[value] for value in self.values]
        for position, row in enumerate(self.board.rows if key == "by" else ()):
            if texts[position] and row.ranked_in != REPORTED and row.entry.team_slug:
                texts[position] = f'<a href="/teams/{row.entry.team_slug}/">{texts[position]}</a>'
        return ColumnHtml(texts)


_WRITERS: Mapping[str, Callable[[ColumnWriter], ColumnHtml]] = {
    "score": ColumnWriter.scores,
    "delta": ColumnWriter.deltas,
    "relative": ColumnWriter.relative_differences,
    "rank": ColumnWriter.plain_numbers,
    "number": ColumnWriter.plain_numbers,
    "figure": ColumnWriter.figures,
    "count": ColumnWriter.counts,
    "text": ColumnWriter.texts,
    "date": ColumnWriter.texts,
}


def _title_html(cell: Cell) -> str:
    """Return the `title` attribute of a cell, with its text and its interval; empty if it has neither."""
    title = cell.title
    if cell.interval is not None:
        interval_text = "95% interval {:.4f} to {:.4f}".format(*cell.interval)
        title = f"{title}; {interval_text}" if title else interval_text
    return title and f' title="{cached_escape(title)}"'


def _cell_suffix(cell: Cell, padding: str, value: Value, digits: int, scale: tuple[int, float]) -> str:
    """Return a cell's mark, the padding after its number, its interval, and the spread over seeds.

    `scale` is the width of spreads, and the value at the end of the intervals' scale, which begins at 0.

    Cells without a spread get an empty box of the same width, so that the means align. The interval is a thin line
    with two ends and a dot at the mean. It is hidden from screen readers, because the title has the same information.
    """
    mark = cell.mark and (
        f"<sup>{cell.mark}</sup>" if SYMBOLS.issuperset(cell.mark) else f" <i>{escape(cell.mark)}</i>"
    )
    (room, top), whisker = scale, ""
    if isinstance(value, float) and cell.interval:
        low, high, middle = (round(end * INTERVAL_WIDTH / max(top, 1e-12)) for end in (*cell.interval, value))
        whisker = (
            f'<svg class="whisker" viewBox="0 0 {INTERVAL_WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
            f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/><path d="M{middle} 2.5h0"/></svg>'
        )
    spread = cell.spread
    if spread and not cell.noise:  # A spread over seeds gets as many decimals as the mean.
        deviation, seeds = spread.removeprefix("± ").split(" ")
        spread = f"± {float(deviation):.{digits}f} {seeds}"
    return f"{mark}{padding}{whisker}{spread_box(room, spread)}"


def spread_widths(rows: Sequence[Row]) -> dict[str, int]:
    """Return the maximum length of spreads, for each column with a cell that has more than its text."""
    widths: dict[str, int] = {}
    for row in rows:
        for key, cell in row.cells.items():
            if cell.mark or cell.title or cell.spread or cell.interval:
                widths[key] = max(widths.get(key, 0), len(cell.spread))
    return widths


def spread_box(width: int, spread: str = "") -> str:
    """Return HTML for a spread in a box that is `width` characters wide; an empty string if `width` is 0.

    Cells without a spread get an empty box, because clients without style sheets, such as text browsers, show hidden
    text.
    """
    return f' <small class="spread s{width}">{escape(spread)}</small>' if width else ""


def provenance_badge(provenance: str) -> SafeString:
    """Return a badge with the name of a provenance."""
    return format_html('<span class="badge is-{}">{}</span>', provenance, Entry.Provenance(provenance).label)


#: States of a result or its system.
STATES = {
    name: gettext_lazy(name)
    for name in (
        gettext_noop("baseline"), gettext_noop("stale"), gettext_noop("challenged"), gettext_noop("late"),
        gettext_noop("manual"), gettext_noop("private"), gettext_noop("withdrawn"), gettext_noop("quarantined"),
        *REFERENCE_TYPES.values(),
    )
}  # fmt: skip
#: Separator of facts, which may end a line but not begin one.
DOT = "\u00a0· "
#: Columns whose values may be below a system's name: team, architecture, provenance, and size.
_FACT_KEYS = ("by", "architecture", "provenance", "declared-parameters")
#: Facts that are truncated or omitted on a phone, with their classes.
_SHRINKABLE = {"by": ' class="by"', "architecture": ' class="kind"'}


class RowHeads(NamedTuple):
    """Context for the row heads of a board: facts that have no column, and entries not separable from the best.

    `measure` is the key of the score's column, empty if rows have a mean. `fact_keys_below_source` are the facts of
    rows below a head that names their source. `without_page` are slugs of systems that no longer have a page,
    `implied_provenance` is one that rows omit, and `usual_missing_count` is the number of missing queries of most
    results. `marks` collects the marks of the rows. The other fields are texts looked up once per board: labels of
    buttons, with a placeholder for the name, and the notes below a rank.
    """

    measure: str
    fact_keys: tuple[str, ...]
    fact_keys_below_source: tuple[str, ...]
    tied_entries: Collection[int]
    without_page: Collection[str]
    implied_provenance: str
    usual_missing_count: int
    marks: set[str]
    pin: str
    unpin: str
    ties: str
    open_ranks: str
    separable: str

    @classmethod
    def from_board(cls, board: Board, shown_marks: set[str]) -> RowHeads:
        """Return the context of a view: facts without a column, entries tied with the best, and texts."""
        visible_keys = {column.key for column in board.shown}
        if "parameters" in visible_keys:
            visible_keys.add("declared-parameters")
        if len(board.papers) == 1:  # The publication is named above the board.
            visible_keys |= {"by", "provenance"}
        tied = board.statements.tied_with_best(board.measure)
        for other in board.statements.other_rankings:
            tied |= BoardStatements(other).tied_with_best(board.measure)
        fact_keys = tuple(key for key in _FACT_KEYS if key not in visible_keys)
        return cls(
            "" if board.views else board.measure,
            fact_keys,
            tuple(key for key in fact_keys if len(board.rankings) < 2 or key not in ("by", "provenance")),
            tied if len(tied) > 1 else (),
            board.without_page,
            "" if board.counted and board.counted[0]["provenance"].get(REPORTED) else SCORED,
            board.usual_missing_count,
            shown_marks,
            _("Pin %s"),
            _("Unpin %s"),
            f'<small title="{_("not separable from the best when all pairs are compared")}">≈ 1</small>',
            f'<small title="{_("the ranks that the tests of all pairs leave open")}">',
            f'<span class="visually-hidden">, {_("separable from the next rank")}</span>',
        )

    def pin_button(self, row: Row) -> str:
        """Return a button that pins the row's system.

        It belongs to the board's form, and is shorter than a link with the whole address.
        """
        return (
            f'<button class="pin" type="submit" form="board-form" name="pin" value="{row.entry.slug}" '
            f'aria-label="{self.pin % cached_escape(row.entry.system)}"></button>'
        )

    def unpin_link(self, row: Row, href: str) -> str:
        """Return a link to the view without the pin, empty without an address."""
        label = self.unpin % cached_escape(row.entry.system)
        return f'<a class="pin" hx-boost="true" href="{escape(href)}" aria-label="{label}"></a>' if href else ""

    def write(self, row: Row, pin: str, *classes: str) -> str:
        """Return the start of a row as HTML: the opening tag, and the cells of rank and system.

        The system's cell has marks, badges, and a line of facts, and links to its page if there is one. `pin` is the
        HTML of the button in the rank's cell; `classes` are added to the row.
        """
        entry = row.entry
        marks_text = ("‡" if entry.training == "in-domain" else "") + marks.pooled_mark(entry)
        suffix = f"<sup>{marks_text}</sup>" if marks_text else ""
        flags = {
            "baseline": entry.is_baseline and (not self.measure or row.value(self.measure) is not None),
            "stale": row.ranked_in == STALE,
            "challenged": entry.challenged,
            entry.visibility: entry.visibility not in ("public", GONE),
        }
        states = [*filter(flags.get, flags), *marks.badges(entry)]
        state_classes = [f"is-{state.replace(' ', '-')}" for state in states]
        for state, state_class in zip(states, state_classes, strict=True):
            suffix += f'&ensp;<span class="badge {state_class}">{STATES.get(state, state)}</span>'
        if row.values.get(gaps.GAP_SHOWN) == gaps.SIGNIFICANT:
            gap_label = _("significant gap")
            suffix += f'&ensp;<a class="badge is-gap" href="/docs/contamination/" title="{gaps.CLAIM}">{gap_label}</a>'
        is_incomplete = "coverage" in row.cells and row.value("mean") is None  # A benchmark's row.
        is_below_source = row.ranked_in == REPORTED and not is_incomplete and "is-pinned" not in classes
        fact_keys = self.fact_keys_below_source if is_below_source else self.fact_keys
        facts = _facts_html(fact_keys, tuple(map(row.values.get, fact_keys)), self.implied_provenance)
        coverage = _("%s datasets") % row["coverage"].text if is_incomplete else ""
        details = (coverage, self._missing_text(row), reason_gone(entry))
        text = cached_escape(entry.configuration)
        configuration = text and f'<span class="configuration" title="{text}">{text}</span>'
        items = filter(None, [configuration, *map(cached_escape, details)])
        line = facts + "".join(f'<span class="detail">{DOT}{item}</span>' for item in items)
        if line := line if facts else line.replace(DOT, "", 1):
            suffix += f"<small>{line}</small>"
        is_tied = row.first_entry in self.tied_entries
        is_separable = row.certainty is not None and row.certainty.is_separable_from_next
        test_classes = ["is-tied"] * is_tied + ["is-separable"] * is_separable
        self.marks.update(test_classes)
        class_names = " ".join([*classes, *test_classes, *state_classes])
        opening = f'<tr class="{class_names}">' if class_names else "<tr>"
        # A system that has only private results may have no page.
        address = f"/systems/{entry.slug}/" if entry.slug not in self.without_page else ""
        if entry.visibility == "private":
            address = address and entry.submission and f"/submissions/{entry.submission}/"
        name = cached_escape(entry.system).replace(" = ", "\u00a0=\u00a0").replace("/", "/<wbr>").replace("_", "_<wbr>")
        if address:
            name = f'<a href="{address}">{name}</a>'
        return (
            f'{opening}<td class="rank">{pin}{self._rank_html(row, tied=is_tied)}</td><th scope="row" class="name">'
            f"{name}{suffix}</th>"
        )

    def _missing_text(self, row: Row) -> str:
        """Return the number of the row's missing queries, or an empty string if most results lack the same number."""
        count, usual_count = row.entry.missing_queries, self.usual_missing_count if row.ranked_in != STALE else 0
        if count is None or count == usual_count:
            return ""
        if count == 0:
            return _("results for all queries")
        return ngettext("no results for %d query", "no results for %d queries", count) % count

    def _rank_html(self, row: Row, *, tied: bool) -> str:
        """Return the rank as HTML, with the rank range below it if the tests leave several ranks open.

        A text for screen readers follows if the tests separate the row from the next rank. If no test results of the
        row are known, `tied` adds `≈ 1` to ranks other than the first.
        """
        label = str(row.rank or "—") if row.ranked_in == REPORTED else row.rank_label or "—"
        certainty = row.certainty
        if certainty is None and tied:
            return label if row.rank == 1 else label + self.ties
        if certainty is not None and certainty.is_separable_from_next:
            label += self.separable
        if certainty is None or certainty.rank_low is None or certainty.rank_low == certainty.rank_high:
            return label
        return f"{label}{self.open_ranks}{ranks_text(certainty)}</small>"


@lru_cache(4096)
def _facts_html(keys: tuple[str, ...], values: tuple[Value, ...], implied_provenance: str) -> str:
    """Return the facts of a system below its name, as one line of HTML.

    Missing values and the provenance `implied_provenance` are omitted. Each fact is a `<span>` that includes the
    separator before it, so that narrow layouts can omit team and architecture. Lines are cached because many rows and
    boards share them.
    """
    facts: list[tuple[str, str]] = []
    for key, value in zip(keys, values, strict=True):
        if value is None or value in (0, ARCHITECTURES["other"]) or (key, value) == ("provenance", implied_provenance):
            continue
        if isinstance(value, (float, int)):
            text = _("%s M parameters") % format_quantity(value)
        elif key == "provenance":
            text = ", ".join(str(Entry.Provenance(provenance).label) for provenance in value.split(", "))
        else:
            text = str(value)
        facts.append((_SHRINKABLE.get(key, ""), escape(text)))
    return "".join(
        f"<span{attribute}>{DOT if number else ''}{text}</span>" for number, (attribute, text) in enumerate(facts)
    )


@lru_cache(16_384)
def cached_escape(text: str) -> str:
    """Return the text escaped for HTML, cached because boards repeat texts in thousands of cells."""
    return escape(text)
