"""Rows as HTML, column by column: each cell is written as a string once, and the template puts the rows in their place.

Ten thousand cells are written on a miss, so what all cells of a column have in common is found out once for a column.
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

#: As wide as a digit and as a point, so that 0.123, 0.1234 and 12 align.
FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
#: Marks of one character, which stand raised.
SYMBOLS = frozenset(f"‡?{SEPARATED}")
#: Units of the width of a drawn interval; a cell is some eighty pixels wide.
WIDTH = 400
#: The heads of a board's blocks.
BLOCKS = {
    Block.SCORED: gettext_lazy("Scored here"),
    Block.REPORTED: gettext_lazy("Reported by papers: not scored here, ranked separately"),
    Block.INCOMPLETE: ngettext_lazy(
        "%d incomplete row: no result on some of the datasets",
        "%d incomplete rows: no result on some of the datasets",
    ),
    Block.NOT_RANKED: gettext_lazy("Not ranked"),
}
#: Steps of an in-cell bar: its classes are the digits of the step, such as b8 c5 d3 for 0.853 of the longest bar.
BAR_STEPS = 1000

#: Of a column of which a row has a value at most.
EMPTY = Cell()

Cells = Sequence[Cell]


def render_rows(
    board: Board,
    rooms: Mapping[str, int],
    unpin: Mapping[str, str] | None = None,
    *,
    may_pin: bool = False,
    exact: bool = False,
) -> SafeString:
    """All rows, a `<tbody>` for each block; `unpin` has, by slug, the view without a pinned system's pin.

    `rooms` are those of `spread_widths` the rows. Scores have three decimals, unless `exact` ones are asked for.
    """
    if not board.rows:
        return SafeString("")
    keys = [column.key for column in board.shown]
    of_columns = zip(*(map(row.values.get, keys[1:]) for row in board.rows), strict=True)
    with_more = {key for row in board.rows for key in row.cells}
    decimals = [row.decimals if exact else min(row.decimals, DECIMALS) for row in board.rows]
    kinds = {row.ranked_in for row in board.rows}
    columns = []
    for (before, column), values in zip(pairwise(board.shown), of_columns, strict=True):
        cells: Cells = [EMPTY] * len(values)
        if column.key in with_more:
            cells = [row.cells.get(column.key, EMPTY) for row in board.rows]
        begins_group = before.key != SYSTEM and before.group != column.group
        writer = ColumnWriter(board, decimals, kinds, column, values, cells)
        columns.append(writer.write(rooms.get(column.key), begins_group=begins_group))
    heads = RowHeads.of(board)
    pinned, others = board.rows[: board.pinned], board.rows[board.pinned :]
    first_cells = [
        heads.write(row, heads.unpin_link(row, (unpin or {}).get(row.entry.slug, "")), "is-pinned")
        for row in pinned
    ]
    first_cells += [heads.write(row, heads.pin_button(row) if may_pin else "") for row in others]
    rows = list(map("".join, zip(first_cells, *columns, strict=True)))
    return mark_safe("".join(_blocks(board, rows)))  # noqa: S308


def _blocks(board: Board, rows: Sequence[str]) -> Iterator[str]:
    """The rows by blocks: the pinned ones, then each block under a head of its own, where there are several."""
    if board.pinned:
        yield f"<tbody>{_joined(rows[: board.pinned])}</tbody>"
    others = list(zip(board.rows[board.pinned :], rows[board.pinned :], strict=True))
    blocks = [
        (block, [row for _, row in of_block])
        for block, of_block in groupby(others, lambda pair: board.block_of(pair[0]))
    ]
    alone = len(blocks) == 1 and blocks[0][0] in (Block.SCORED, Block.REPORTED)
    for block, of_block in blocks:
        if alone or block is Block.SCORED:
            yield f"<tbody>{_joined(of_block)}</tbody>"
            continue
        label = BLOCKS[block] if block is not Block.INCOMPLETE else BLOCKS[block] % len(of_block)
        if block is Block.INCOMPLETE:
            checked = " checked" if board.found < board.total else ""
            label = f'<label><input type="checkbox" id="show-incomplete"{checked}> {label}</label>'
        head = f'<th colspan="{len(board.shown) + 1}" scope="rowgroup"><span>{label}</span></th>'
        yield f'<tbody class="block"><tr>{head}</tr></tbody>'
        name = block.name.lower().replace("_", "-")
        yield f'<tbody class="is-{name}">{_joined(of_block)}</tbody>'


def _joined(rows: Sequence[str]) -> str:
    return "</tr>\n".join(rows) + "</tr>"


class ColumnHtml(NamedTuple):
    """The cells of a column: their texts as HTML, "" where missing, their attributes, and their padding."""

    texts: list[str]
    attributes: Iterable[str] = repeat("")
    paddings: Iterable[str] = repeat("")


@dataclass(frozen=True, slots=True)
class ColumnWriter:
    """Writer of one column of a board.

    `decimals` are those of the rows, and `kinds` the groups that they are ranked in. `cells` are empty where a row has
    only a value.
    """

    board: Board
    decimals: Sequence[int]
    kinds: Collection[str]
    column: Column
    values: Sequence[Value]
    cells: Cells

    def write(self, room: int | None, *, begins_group: bool) -> list[str]:
        """Return the cells as HTML, one for each row.

        `room` is the width of spreads, None if no cell has more than its text. Texts that begin a group have a class,
        because its head is wider.
        """
        key, values = self.column.key, self.values
        kind = "" if self.column.numeric else "first t " if begins_group else "t "
        texts, attributes, paddings = _WRITERS[self.column.kind](self)
        if kind:
            attributes = repeat(f' class="{kind.rstrip()}"')
        for ranked_in in self.kinds:
            for marked, tag in ((self.board.best, "b"), (self.board.second, "u")):
                value, place = marked.get((key, ranked_in)), -1
                with suppress(ValueError):  # once there are no more
                    while value is not None:
                        place = values.index(value, place + 1)
                        if self.board.rows[place].ranked_in == ranked_in:
                            texts[place] = f"<{tag}>{texts[place]}</{tag}>"
        if "" in texts:
            missing = "", f' class="{kind}none"', "—"
            found = zip(paddings, attributes, texts, strict=False)
            paddings, attributes, texts = map(
                list, zip(*(one if one[2] else missing for one in found), strict=True)
            )
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
        written = zip(attributes, texts, paddings, strict=False)
        return [f"<td{attribute}>{text}{padding}</td>" for attribute, text, padding in written]

    def _scale_maximum(self) -> float:
        """Return the greatest of the values and of the ends of intervals."""
        ends = [cell.interval[1] for cell in self.cells if cell.interval is not None]
        return max([value for value in self.values if isinstance(value, (float, int))] + ends, default=0.0)

    def scores(self) -> ColumnHtml:
        """Return scores, with bars in the column that the board is sorted by."""
        texts, paddings = self._numbers("")
        if self.column.key != self.board.sort or not any(self.values):
            return ColumnHtml(texts, paddings=paddings)
        scale = BAR_STEPS / max(self._scale_maximum(), 1e-12)
        numbers = [value if isinstance(value, (float, int)) else 0.0 for value in self.values]
        bars = [min(BAR_STEPS, max(0, round(number * scale))) for number in numbers]
        digits = [(bar // 100, bar // 10 % 10, bar % 10) for bar in bars]
        return ColumnHtml(texts, [f' class="b{one} c{two} d{three}"' for one, two, three in digits], paddings)

    def _numbers(self, sign: str) -> tuple[list[str], Iterable[str]]:
        """Return the numbers as text with the decimals of their rows, and padding that aligns their points."""
        decimals, values, widest = self.decimals, self.values, max(self.decimals)
        if min(decimals) == widest:
            pattern = f"%{sign}.{widest}f"
            if None not in values:
                # One formatting operation for the whole column: half the time of one for each value.
                return ((pattern + "\n") * len(values) % tuple(values)).split("\n")[:-1], repeat("")
            return ["" if value is None else pattern % value for value in values], repeat("")
        texts = [
            "" if value is None else f"%{sign}.{digits}f" % value
            for digits, value in zip(decimals, values, strict=True)
        ]
        return texts, [FIGURE_SPACE * (widest - digits) for digits in decimals]

    def deltas(self) -> ColumnHtml:
        """Return differences from the baseline, with stars and, if they have no column, the relative differences."""
        made, board = self._differences(*self._numbers("+")), self.board
        if self.column.key != DELTA:
            return made
        stars = [f"<sup>{SEPARATED}</sup>" if board.separates(row) else "" for row in board.rows]
        below: Iterable[str] = repeat("")
        if not any(each.key == RELATIVE for each in board.shown):
            ratios = [row.values.get(RELATIVE) for row in board.rows]
            below = [
                f"<small>{signed_percent(one)}</small>" if isinstance(one, float) else "" for one in ratios
            ]
        together = zip(made.texts, made.paddings, stars, below, strict=False)
        return made._replace(texts=["".join(one) if one[0] else "" for one in together], paddings=repeat(""))

    def relatives(self) -> ColumnHtml:
        """Return relative differences in percent."""
        texts = [f"{value * 100:+.1f}" if isinstance(value, (float, int)) else "" for value in self.values]
        return self._differences(texts, repeat(""))

    def _differences(self, texts: list[str], paddings: Iterable[str]) -> ColumnHtml:
        """Return differences with sign. Significant ones have a class that says better or worse, others are gray.

        The two are not the same as plus and minus for Hole@10. Worse scores on hidden judgments are not tested, and
        not gray.
        """
        higher, grey = self.column.better != "lower", ' class="ns"'
        plus, minus = (' class="up"', ' class="down"') if higher else (' class="down"', ' class="up"')
        signed = [
            text.replace("-", MINUS) if value else text.replace("+", "±")
            for value, text in zip(self.values, texts, strict=True)
        ]
        board, untested = self.board, grey
        if self.column.key in (DELTA, RELATIVE):
            significant = [row.differs for row in board.rows]
            untested = (
                grey if board.statements.least_difference(board.measure) is None else ' class="untested"'
            )
        else:
            significant = [differs(cell.certainty) for cell in self.cells]
        attributes = [
            grey
            if not value or isinstance(value, str)
            else (plus if value > 0 else minus)
            if known
            else untested
            if (value < 0) == higher
            else grey
            for value, known in zip(self.values, significant, strict=True)
        ]
        return ColumnHtml(signed, attributes, paddings)

    def plain_numbers(self) -> ColumnHtml:
        """Return numbers with the column's decimals, or as many as they need, four at most."""
        numbers = [value if isinstance(value, (float, int)) else None for value in self.values]
        known, decimals = [number for number in numbers if number is not None], self.column.decimals
        if decimals is None:
            decimals = next((n for n in range(4) if all(abs(round(v, n) - v) < 5e-6 for v in known)), 4)
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
        widest = max(len(decimals) for point, decimals in parts)
        for point, decimals in parts:
            padding = FIGURE_SPACE * (widest - len(decimals))
            paddings.append(padding if point or not padding else POINT_SPACE + padding)
        return ColumnHtml(list(map(escape, texts)), paddings=paddings)

    def counts(self) -> ColumnHtml:
        """Return texts that stand for a number, such as 18/18."""
        return ColumnHtml(["" if cell.value is None else escape(cell.text) for cell in self.cells])

    def texts(self) -> ColumnHtml:
        """Return texts, with links to teams and submissions."""
        key, made = self.column.key, {value: escape(str(value or "")) for value in set(self.values)}
        if key == "provenance":
            for value in made:
                names = str(value or "").split(", ")
                badges = [f'<span class="badge is-{name}">{name}</span>' for name in names if name]
                made[value] = " ".join(badges)
        elif key == "submission":
            made = {
                value: text and f'<a href="/submissions/{text}/">{text}</a>' for value, text in made.items()
            }
        texts = [made[value] for value in self.values]
        for place, row in enumerate(self.board.rows if key == "by" else ()):
            if texts[place] and row.ranked_in != REPORTED and row.entry.team_slug:
                texts[place] = f'<a href="/teams/{row.entry.team_slug}/">{texts[place]}</a>'
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
        drawn = "95% interval {:.4f} to {:.4f}".format(*cell.interval)
        title = f"{title}; {drawn}" if title else drawn
    return title and f' title="{escaped(title)}"'


def _cell_suffix(cell: Cell, value: Value, digits: int, room: int, top: float) -> str:
    """Return a cell's mark, its interval on the scale of 0 to `top`, and the spread over seeds.

    The cells of a column without a spread have an empty box as wide, so that the means align. The interval is a thin
    line with two ends and a dot at the mean. It is hidden from screen readers, because the title says the same.
    """
    mark = cell.mark and (
        f"<sup>{cell.mark}</sup>" if SYMBOLS.issuperset(cell.mark) else f" <i>{escape(cell.mark)}</i>"
    )
    drawn = ""
    if isinstance(value, float) and cell.interval:
        low, high, middle = (round(end * WIDTH / max(top, 1e-12)) for end in (*cell.interval, value))
        drawn = (
            f'<svg class="whisker" viewBox="0 0 {WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
            f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/><path d="M{middle} 2.5h0"/></svg>'
        )
    spread = cell.spread
    if spread and not cell.noise:  # over seeds: with as many decimals as the mean
        deviation, seeds = spread.removeprefix("± ").split(" ")
        spread = f"± {float(deviation):.{digits}f} {seeds}"
    return f"{mark}{drawn}{spread_box(room, spread)}"


def spread_widths(rows: Sequence[Row]) -> dict[str, int]:
    """By column of which a cell has more than its text, how many letters the longest spread has."""
    found: dict[str, int] = {}
    for row in rows:
        for key, cell in row.cells.items():
            if cell.mark or cell.title or cell.spread or cell.interval:
                found[key] = max(found.get(key, 0), len(cell.spread))
    return found


def spread_box(width: int, spread: str = "") -> str:
    """A box that keeps the room of a column's spreads, in cells and in the head; "" where it has none.

    Empty in cells without a spread, because hidden text is read all the same by what takes no style sheet: text
    browsers, readers of tables.
    """
    return f' <small class="spread s{width}">{escape(spread)}</small>' if width else ""


#: How a result was obtained, and what state it or its system is in, in few words.
PROVENANCES = {
    "measured": gettext_lazy("run here"),
    "scored": gettext_lazy("scored here"),
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
#: Between facts; it ends a line and begins none.
DOT = "\u00a0· "
#: What may stand under a system's name: its team, what it is, how it was scored, how large it is.
_BELOW = ("by", "architecture", "provenance", "declared-parameters")
#: Those that a phone cuts short or leaves out, with their classes.
_GIVES_WAY = {"by": ' class="by"', "architecture": ' class="kind"'}


class RowHeads(NamedTuple):
    """Context for the row heads of a board: facts that no column shows, and the entries not separable from the best.

    `without_page` are slugs of systems that no longer have a page, `implied` is a provenance that rows omit, and
    `missing` is the number of missing queries that all results share. The other fields are texts that are looked up
    once for a board: labels of buttons, with a placeholder for the name, and the notes below a rank.
    """

    below: tuple[str, ...]
    tied: Collection[int]
    without_page: Collection[str]
    implied: str
    missing: int
    pin: str
    unpin: str
    ties: str
    open_ranks: str

    @classmethod
    def of(cls, board: Board) -> RowHeads:
        """Those of the view."""
        shown = {column.key for column in board.shown}
        if "parameters" in shown:
            shown.add("declared-parameters")
        if len(board.papers) == 1:  # named above the board
            shown |= {"by", "provenance"}
        tied = board.statements.tied_with_best(board.measure)
        return cls(
            tuple(key for key in _BELOW if key not in shown),
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
        """A button of the board's form, so that no row repeats the whole address."""
        return (
            f'<button class="pin" type="submit" form="board-form" name="pin" value="{row.entry.slug}" '
            f'aria-label="{self.pin % escaped(row.entry.system)}"></button>'
        )

    def unpin_link(self, row: Row, href: str) -> str:
        """The way back; empty without an address."""
        label = self.unpin % escaped(row.entry.system)
        return (
            f'<a class="pin" hx-boost="true" href="{escape(href)}" aria-label="{label}"></a>' if href else ""
        )

    def write(self, row: Row, pin: str, *classes: str) -> str:
        """Return the row's start: rank and name, which stay in sight when the board scrolls sideways."""
        entry = row.entry
        signs = ("‡" if entry.training == "in-domain" else "") + marks.pooled_mark(entry)
        after = f"<sup>{signs}</sup>" if signs else ""
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
            after += f'&ensp;<span class="badge is-{state}">{STATES.get(state, state)}</span>'
        if row.values.get(gaps.GAP_SHOWN) == gaps.SIGNIFICANT:
            told = _("significant gap")
            after += (
                f'&ensp;<a class="badge is-gap" href="/docs/contamination/" title="{gaps.CLAIM}">{told}</a>'
            )
        lacking = entry.missing_queries
        if lacking == (self.missing if row.ranked_in != STALE else 0):
            lacking = 0
        text = ngettext("%d judged query missing", "%d judged queries missing", lacking) if lacking else ""
        facts = _facts(self.below, tuple(map(row.values.get, self.below)), self.implied)
        further = (entry.configuration, text and text % lacking, reason_gone(entry))
        if below := DOT.join(filter(None, [facts, *map(escaped, further)])):
            after += f"<small>{below}</small>"
        tied = bool(self.tied) and bool(row.entries) and row.entries[0] in self.tied
        named = " ".join([*classes, *["is-tied"] * tied, *[f"is-{state}" for state in states]])
        opening = f'<tr class="{named}">' if named else "<tr>"
        # A system that has only private results may have no page.
        address = f"/systems/{entry.slug}/" if entry.slug not in self.without_page else ""
        if entry.visibility == "private":
            address = address and entry.submission and f"/submissions/{entry.submission}/"
        name = escaped(entry.system).replace(" = ", "\u00a0=\u00a0")
        if address:
            name = f'<a href="{address}">{name}</a>'
        return (
            f'{opening}<td class="rank">{pin}{self._rank(row, tied=tied)}</td><th scope="row" class="name">'
            f"{name}{after}</th>"
        )

    def _rank(self, row: Row, *, tied: bool) -> str:
        """Return the rank, and below it the ranks that tests leave open, if there are several."""
        label = str(row.rank or "—") if row.ranked_in == REPORTED else row.rank_label or "—"
        found = row.certainty
        if found is None and tied:
            return label if row.rank == 1 else label + self.ties
        if found is None or found.rank_low is None or found.rank_low == found.rank_high:
            return label
        return f"{label}{self.open_ranks}{ranks_text(found)}</small>"


@lru_cache(4096)
def _facts(keys: tuple[str, ...], values: tuple[Value, ...], implied: str) -> str:
    """Facts of a system in one line, as HTML; rows share them, board after board.

    Each has a `<span>` with the sign before it: where there is little room team and architecture give way.
    """
    said: list[tuple[str, str]] = []
    for key, value in zip(keys, values, strict=True):
        if key == "provenance" and value == implied:
            continue
        if isinstance(value, (float, int)):
            text = _("%s M parameters") % format_quantity(value)
        elif value is not None and key == "provenance":
            text = ", ".join(str(PROVENANCES.get(one, one)) for one in value.split(", "))
        elif value not in (None, ARCHITECTURES["other"]):
            text = str(value)
        else:
            continue
        said.append((_GIVES_WAY.get(key, ""), escape(text)))
    return "".join(
        f"<span{named}>{DOT if number else ''}{text}</span>" for number, (named, text) in enumerate(said)
    )


@lru_cache(16_384)
def escaped(text: str) -> str:
    """Boards say the same in thousands of cells, again and again."""
    return escape(text)
