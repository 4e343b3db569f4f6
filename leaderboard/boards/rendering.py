"""Board rows as HTML, written column by column; the template only inserts them.

A page has up to ten thousand cells, so properties that are common to a column are computed once per column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import groupby, pairwise, repeat
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from leaderboard.boards.columns import gap as gaps
from leaderboard.boards.columns import marks
from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.columns.significance import ranks_text
from leaderboard.boards.model import (
    DELTA,
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
from leaderboard.core.text.numbers import DECIMALS, MINUS, format_quantity, signed_percent
from leaderboard.results.board_rows.entry_rows import GONE, REPORTED, SCORED, STALE
from leaderboard.results.significance.statements import differs

#: Spaces as wide as a digit and as a decimal point, which align 0.123, 0.1234, and 12.
FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
#: Marks of one character, written as superscripts.
SYMBOLS = frozenset(f"‡?{SEPARATED}")
#: Width of a drawn interval in its own units; a cell is about eighty pixels wide.
WIDTH = 400
#: Heads of a board's blocks.
BLOCKS = {
    Block.SCORED: gettext_lazy("Scored here"),
    Block.REPORTED: gettext_lazy("Reported by papers: not scored here, ranked separately"),
    Block.INCOMPLETE: ngettext_lazy(
        "%d incomplete row: no result on some of the datasets",
        "%d incomplete rows: no result on some of the datasets",
    ),
    Block.NOT_RANKED: gettext_lazy("Not ranked"),
}
#: Number of steps of an in-cell bar, whose classes are the digits of the step: b8 c5 d3 for 0.853 of the
#: longest bar.
BAR_STEPS = 1000
#: Number of rows before the figure on phones.
FIGURE_AFTER = 5

#: Cell of columns in which no row has more than a value.
EMPTY_CELL = Cell()

Cells = Sequence[Cell]


def render_rows(
    board: Board,
    rooms: Mapping[str, int],
    unpin: Mapping[str, str] | None = None,
    *,
    may_pin: bool = False,
    exact: bool = False,
    figure: str = "",
) -> SafeString:
    """Return all rows as HTML, with a `<tbody>` per block, and the figure as a row after the first five.

    `rooms` are the widths from `spread_widths`. `unpin` has, by slug of a pinned system, the URL of the view without
    its pin. Scores have three decimals unless `exact`.
    """
    if not board.rows:
        return SafeString("")
    keys = [column.key for column in board.shown]
    column_values = zip(*(map(row.values.get, keys[1:]) for row in board.rows), strict=True)
    keys_with_cells = {key for row in board.rows for key in row.cells}
    decimals = [row.decimals if exact else min(row.decimals, DECIMALS) for row in board.rows]
    kinds = {row.ranked_in for row in board.rows}
    columns = []
    for (previous, column), values in zip(pairwise(board.shown), column_values, strict=True):
        cells: Cells = [EMPTY_CELL] * len(values)
        if column.key in keys_with_cells:
            cells = [row.cells.get(column.key, EMPTY_CELL) for row in board.rows]
        begins_group = previous.key != SYSTEM and previous.group != column.group
        writer = ColumnWriter(board, decimals, kinds, column, values, cells)
        columns.append(writer.write(rooms.get(column.key), begins_group=begins_group))
    heads = RowHeads.from_board(board)
    pinned, other_rows = board.rows[: board.pinned], board.rows[board.pinned :]
    first_cells = [
        heads.write(row, heads.unpin_link(row, (unpin or {}).get(row.entry.slug, "")), "is-pinned") for row in pinned
    ]
    first_cells += [heads.write(row, heads.pin_button(row) if may_pin else "") for row in other_rows]
    rows = list(map("".join, zip(first_cells, *columns, strict=True)))
    if figure:
        figure_row = f'</tr>\n<tr class="figure-row"><td colspan="{len(board.shown) + 1}">{figure}</td>'
        rows[min(FIGURE_AFTER, len(rows)) - 1] += figure_row
    return mark_safe("".join(_blocks(board, rows)))  # noqa: S308


def _blocks(board: Board, rows: Sequence[str]) -> Iterator[str]:
    """Yield the pinned rows, then each block, with a head unless there is only one."""
    if board.pinned:
        yield f"<tbody>{_join_rows(rows[: board.pinned])}</tbody>"
    other_rows = list(zip(board.rows[board.pinned :], rows[board.pinned :], strict=True))
    blocks = [
        (block, [row for _, row in block_rows])
        for block, block_rows in groupby(other_rows, lambda pair: board.get_block(pair[0]))
    ]
    is_single = len(blocks) == 1 and blocks[0][0] in (Block.SCORED, Block.REPORTED)
    for block, block_rows in blocks:
        if is_single or block is Block.SCORED:
            yield f"<tbody>{_join_rows(block_rows)}</tbody>"
            continue
        label = BLOCKS[block] if block is not Block.INCOMPLETE else BLOCKS[block] % len(block_rows)
        if block is Block.INCOMPLETE:
            checked_attribute = " checked" if board.found < board.total else ""
            label = f'<label><input type="checkbox" id="show-incomplete"{checked_attribute}> {label}</label>'
        head = f'<th colspan="{len(board.shown) + 1}" scope="rowgroup"><span>{label}</span></th>'
        yield f'<tbody class="block"><tr>{head}</tr></tbody>'
        name = block.name.lower().replace("_", "-")
        yield f'<tbody class="is-{name}">{_join_rows(block_rows)}</tbody>'


def _join_rows(rows: Sequence[str]) -> str:
    return "</tr>\n".join(rows) + "</tr>"


class ColumnHtml(NamedTuple):
    """A column's cells: texts as HTML, empty if missing, attributes, and padding."""

    texts: list[str]
    attributes: Iterable[str] = repeat("")
    paddings: Iterable[str] = repeat("")


@dataclass(frozen=True, slots=True)
class ColumnWriter:
    """Writer of one column of a board.

    `decimals` are by row, and `kinds` are the groups that rows are ranked in. `cells` are empty for rows with only a
    value.
    """

    board: Board
    decimals: Sequence[int]
    kinds: Collection[str]
    column: Column
    values: Sequence[Value]
    cells: Cells

    def write(self, room: int | None, *, begins_group: bool) -> list[str]:
        """Return the cells as HTML, one per row.

        `room` is the width of spreads, None if no cell has more than its text. Texts at the start of a group get a
        class, because the group's head is wider.
        """
        key, values = self.column.key, self.values
        css_class = "" if self.column.numeric else "first t " if begins_group else "t "
        texts, attributes, paddings = _WRITERS[self.column.kind](self)
        if css_class:
            attributes = repeat(f' class="{css_class.rstrip()}"')
        for ranked_in in self.kinds:
            for marked_values, tag in ((self.board.best, "b"), (self.board.second, "u")):
                value, position = marked_values.get((key, ranked_in)), -1
                with suppress(ValueError):  # `index` raises ValueError after the last one.
                    while value is not None:
                        position = values.index(value, position + 1)
                        if self.board.rows[position].ranked_in == ranked_in:
                            texts[position] = f"<{tag}>{texts[position]}</{tag}>"
        if "" in texts:
            empty_cell = "", f' class="{css_class}none"', "—"
            parts = (part if part[2] else empty_cell for part in zip(paddings, attributes, texts, strict=False))
            paddings, attributes, texts = map(list, zip(*parts, strict=True))
        if room is not None:
            top = self._scale_maximum()
            return [
                f"<td{_title(cell)}{attribute}>{text}{padding}{_cell_suffix(cell, value, digits, room, top)}</td>"
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
        """Return scores, with bars if the board is sorted by this column."""
        texts, paddings = self._numbers("")
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
        """Return differences from the baseline, with stars, and with ratios unless these have a column."""
        differences, board = self._differences(*self._numbers("+")), self.board
        if self.column.key != DELTA:
            return differences
        stars = [f"<sup>{SEPARATED}</sup>" if board.separates(row) else "" for row in board.rows]
        relative_texts: Iterable[str] = repeat("")
        if not any(column.key == RELATIVE for column in board.shown):
            ratios = [row.values.get(RELATIVE) for row in board.rows]
            relative_texts = [
                f"<small>{signed_percent(part)}</small>" if isinstance(part, float) else "" for part in ratios
            ]
        cell_parts = zip(differences.texts, differences.paddings, stars, relative_texts, strict=False)
        return differences._replace(
            texts=["".join(part) if part[0] else "" for part in cell_parts], paddings=repeat("")
        )

    def relatives(self) -> ColumnHtml:
        texts = [f"{value * 100:+.1f}" if isinstance(value, (float, int)) else "" for value in self.values]
        return self._differences(texts, repeat(""))

    def _differences(self, texts: list[str], paddings: Iterable[str]) -> ColumnHtml:
        """Return signed differences, with a class for significantly better or worse ones and gray for all others.

        Better is not the same as positive for measures such as Hole@10. Worse scores on hidden judgments are not
        tested, so they are not gray.
        """
        higher_is_better, gray = self.column.better != "lower", ' class="ns"'
        plus, minus = (' class="up"', ' class="down"') if higher_is_better else (' class="down"', ' class="up"')
        signed_texts = [
            text.replace("-", MINUS) if value else text.replace("+", "±")
            for value, text in zip(self.values, texts, strict=True)
        ]
        board, untested_gray = self.board, gray
        if self.column.key in (DELTA, RELATIVE):
            significances = [row.differs for row in board.rows]
            untested_gray = gray if board.statements.least_difference(board.measure) is None else ' class="untested"'
        else:
            significances = [differs(cell.certainty) for cell in self.cells]
        attributes = [
            gray
            if not value or isinstance(value, str)
            else (plus if value > 0 else minus)
            if is_significant
            else untested_gray
            if (value < 0) == higher_is_better
            else gray
            for value, is_significant in zip(self.values, significances, strict=True)
        ]
        return ColumnHtml(signed_texts, attributes, paddings)

    def plain_numbers(self) -> ColumnHtml:
        """Return numbers with the column's decimals, or as many as they need, four at most."""
        numbers = [value if isinstance(value, (float, int)) else None for value in self.values]
        known_numbers, decimals = [number for number in numbers if number is not None], self.column.decimals
        if decimals is None:
            decimals = next((n for n in range(4) if all(abs(round(v, n) - v) < 5e-6 for v in known_numbers)), 4)
        return ColumnHtml(
            ["" if number is None else f"{number:.{decimals}f}".replace("-", MINUS) for number in numbers]
        )

    def figures(self) -> ColumnHtml:
        """Return figures as printed, or else with significant digits, aligned at their points."""
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
        """Return texts, with links to teams and submissions."""
        key, html_by_value = self.column.key, {value: escape(str(value or "")) for value in set(self.values)}
        if key == "provenance":
            for value in html_by_value:
                names = str(value or "").split(", ")
                badges = [
                    f'<span class="badge is-{name}">{PROVENANCES.get(name, name)}</span>' for name in names if name
                ]
                html_by_value[value] = " ".join(badges)
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
    "relative": ColumnWriter.relatives,
    "rank": ColumnWriter.plain_numbers,
    "number": ColumnWriter.plain_numbers,
    "figure": ColumnWriter.figures,
    "count": ColumnWriter.counts,
    "text": ColumnWriter.texts,
    "date": ColumnWriter.texts,
}


def _title(cell: Cell) -> str:
    """Return the attribute with the text that a cell shows on hover."""
    title = cell.title
    if cell.interval is not None:
        interval_text = "95% interval {:.4f} to {:.4f}".format(*cell.interval)
        title = f"{title}; {interval_text}" if title else interval_text
    return title and f' title="{escaped(title)}"'


def _cell_suffix(cell: Cell, value: Value, digits: int, room: int, top: float) -> str:
    """Return a cell's mark, its interval on the scale of 0 to `top`, and the spread over seeds.

    Cells without a spread get an empty box of the same width, so that the means align. The interval is a thin line
    with two ends and a dot at the mean. It is hidden from screen readers, because the title has the same information.
    """
    mark = cell.mark and (
        f"<sup>{cell.mark}</sup>" if SYMBOLS.issuperset(cell.mark) else f" <i>{escape(cell.mark)}</i>"
    )
    whisker = ""
    if isinstance(value, float) and cell.interval:
        low, high, middle = (round(end * WIDTH / max(top, 1e-12)) for end in (*cell.interval, value))
        whisker = (
            f'<svg class="whisker" viewBox="0 0 {WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
            f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/><path d="M{middle} 2.5h0"/></svg>'
        )
    spread = cell.spread
    if spread and not cell.noise:  # A spread over seeds gets as many decimals as the mean.
        deviation, seeds = spread.removeprefix("± ").split(" ")
        spread = f"± {float(deviation):.{digits}f} {seeds}"
    return f"{mark}{whisker}{spread_box(room, spread)}"


def spread_widths(rows: Sequence[Row]) -> dict[str, int]:
    """Return the maximum length of spreads, for each column with a cell that has more than its text."""
    widths: dict[str, int] = {}
    for row in rows:
        for key, cell in row.cells.items():
            if cell.mark or cell.title or cell.spread or cell.interval:
                widths[key] = max(widths.get(key, 0), len(cell.spread))
    return widths


def spread_box(width: int, spread: str = "") -> str:
    """Return a box as wide as a column's spreads, empty if it has none.

    Cells without a spread get an empty box, because clients without style sheets, such as text browsers, show hidden
    text.
    """
    return f' <small class="spread s{width}">{escape(spread)}</small>' if width else ""


#: Provenance of a result, and states of a result or its system.
PROVENANCES = {
    "measured": gettext_lazy("run by Runboard"),
    "scored": gettext_lazy("uploaded"),
    "reported": gettext_lazy("reported"),
}
STATES = {
    "baseline": gettext_lazy("baseline"),
    "stale": gettext_lazy("stale"),
    "challenged": gettext_lazy("challenged"),
    "late": gettext_lazy("late"),
    "manual": gettext_lazy("manual"),
    "private": gettext_lazy("private"),
    "withdrawn": gettext_lazy("withdrawn"),
    "quarantined": gettext_lazy("quarantined"),
}
#: Separator of facts, which may end a line but not begin one.
DOT = "\u00a0· "
#: Columns whose values may be below a system's name: team, architecture, provenance, and size.
_FACT_KEYS = ("by", "architecture", "provenance", "declared-parameters")
#: Facts that are truncated or omitted on a phone, with their classes.
_SHRINKABLE = {"by": ' class="by"', "architecture": ' class="kind"'}


class RowHeads(NamedTuple):
    """Context for the row heads of a board: facts that have no column, and entries not separable from the best.

    `without_page` are slugs of systems that no longer have a page, `implied_provenance` is one that rows omit, and
    `shared_missing` is the number of missing queries that all results share. The other fields are texts looked up
    once per board: labels of buttons, with a placeholder for the name, and the notes below a rank.
    """

    fact_keys: tuple[str, ...]
    tied_entries: Collection[int]
    without_page: Collection[str]
    implied_provenance: str
    shared_missing: int
    pin: str
    unpin: str
    ties: str
    open_ranks: str

    @classmethod
    def from_board(cls, board: Board) -> RowHeads:
        """Return the context of a view."""
        visible_keys = {column.key for column in board.shown}
        if "parameters" in visible_keys:
            visible_keys.add("declared-parameters")
        if len(board.papers) == 1:  # The publication is named above the board.
            visible_keys |= {"by", "provenance"}
        tied = board.statements.tied_with_best(board.measure)
        return cls(
            tuple(key for key in _FACT_KEYS if key not in visible_keys),
            tied if len(tied) > 1 else (),
            board.without_page,
            "" if board.counted and board.counted[0]["provenance"].get(REPORTED) else SCORED,
            board.missing_from_all,
            _("Pin %s"),
            _("Unpin %s"),
            f'<small title="{_("not separable from the best when all pairs are compared")}">≈ 1</small>',
            f'<small title="{_("the ranks that the tests of all pairs leave open")}">',
        )

    def pin_button(self, row: Row) -> str:
        """Return a button of the board's form, which is shorter than a link with the whole address."""
        return (
            f'<button class="pin" type="submit" form="board-form" name="pin" value="{row.entry.slug}" '
            f'aria-label="{self.pin % escaped(row.entry.system)}"></button>'
        )

    def unpin_link(self, row: Row, href: str) -> str:
        """Return a link to the view without the pin, empty without an address."""
        label = self.unpin % escaped(row.entry.system)
        return f'<a class="pin" hx-boost="true" href="{escape(href)}" aria-label="{label}"></a>' if href else ""

    def write(self, row: Row, pin: str, *classes: str) -> str:
        """Return the start of a row: rank and name, which stay visible when the board is scrolled sideways."""
        entry = row.entry
        signs = ("‡" if entry.training == "in-domain" else "") + marks.pooled_mark(entry)
        suffix = f"<sup>{signs}</sup>" if signs else ""
        states = marks.badges(entry)
        if entry.visibility not in ("public", GONE):
            states.insert(0, entry.visibility)
        if entry.challenged:
            states.insert(0, "challenged")
        if row.ranked_in == STALE:
            states.insert(0, "stale")
        if entry.is_baseline:
            states.insert(0, "baseline")
        for state in states:
            suffix += f'&ensp;<span class="badge is-{state}">{STATES.get(state, state)}</span>'
        if row.values.get(gaps.GAP_SHOWN) == gaps.SIGNIFICANT:
            gap_label = _("significant gap")
            suffix += f'&ensp;<a class="badge is-gap" href="/docs/contamination/" title="{gaps.CLAIM}">{gap_label}</a>'
        missing_count = entry.missing_queries
        if missing_count == (self.shared_missing if row.ranked_in != STALE else 0):
            missing_count = 0
        text = ngettext("no results for %d query", "no results for %d queries", missing_count) if missing_count else ""
        facts = _facts(self.fact_keys, tuple(map(row.values.get, self.fact_keys)), self.implied_provenance)
        details = (entry.configuration, text and text % missing_count, reason_gone(entry))
        if line := DOT.join(filter(None, [facts, *map(escaped, details)])):
            suffix += f"<small>{line}</small>"
        tied = bool(self.tied_entries) and bool(row.entries) and row.entries[0] in self.tied_entries
        class_names = " ".join([*classes, *["is-tied"] * tied, *[f"is-{state}" for state in states]])
        opening = f'<tr class="{class_names}">' if class_names else "<tr>"
        # A system that has only private results may have no page.
        address = f"/systems/{entry.slug}/" if entry.slug not in self.without_page else ""
        if entry.visibility == "private":
            address = address and entry.submission and f"/submissions/{entry.submission}/"
        name = escaped(entry.system).replace(" = ", "\u00a0=\u00a0")
        if address:
            name = f'<a href="{address}">{name}</a>'
        return (
            f'{opening}<td class="rank">{pin}{self._rank(row, tied=tied)}</td><th scope="row" class="name">'
            f"{name}{suffix}</th>"
        )

    def _rank(self, row: Row, *, tied: bool) -> str:
        """Return the rank, and below it the rank range if there is one."""
        label = str(row.rank or "—") if row.ranked_in == REPORTED else row.rank_label or "—"
        certainty = row.certainty
        if certainty is None and tied:
            return label if row.rank == 1 else label + self.ties
        if certainty is None or certainty.rank_low is None or certainty.rank_low == certainty.rank_high:
            return label
        return f"{label}{self.open_ranks}{ranks_text(certainty)}</small>"


@lru_cache(4096)
def _facts(keys: tuple[str, ...], values: tuple[Value, ...], implied_provenance: str) -> str:
    """Return facts of a system in one line of HTML. They are cached because many rows and boards share them.

    Each fact is a `<span>` that includes the separator before it, so that narrow layouts can omit team and
    architecture.
    """
    facts: list[tuple[str, str]] = []
    for key, value in zip(keys, values, strict=True):
        if key == "provenance" and value == implied_provenance:
            continue
        if isinstance(value, (float, int)):
            text = _("%s M parameters") % format_quantity(value)
        elif value is not None and key == "provenance":
            text = ", ".join(str(PROVENANCES.get(provenance, provenance)) for provenance in value.split(", "))
        elif value not in (None, ARCHITECTURES["other"]):
            text = str(value)
        else:
            continue
        facts.append((_SHRINKABLE.get(key, ""), escape(text)))
    return "".join(
        f"<span{attribute}>{DOT if number else ''}{text}</span>" for number, (attribute, text) in enumerate(facts)
    )


@lru_cache(16_384)
def escaped(text: str) -> str:
    """Return escaped text, cached because boards repeat texts in thousands of cells."""
    return escape(text)
