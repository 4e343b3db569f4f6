"""Rows as HTML, column by column: each cell is written as a string once, and the template puts the rows in their place.

Ten thousand cells are written on a miss, so what all cells of a column have in common is found out once for a column.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import groupby, pairwise, repeat
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy, ngettext_lazy

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
)
from leaderboard.boards.row_heads import Names, escaped, row_head
from leaderboard.core.text.numbers import DECIMALS, MINUS, format_quantity, signed_percent
from leaderboard.results.board_rows.entry_rows import REPORTED
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
Values = Sequence[Value]


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
    shown = Shown(board, decimals, {row.ranked_in for row in board.rows})
    cells = [
        _cells(
            shown,
            column,
            values,
            rooms.get(column.key),
            with_more=column.key in with_more,
            first=before.key != SYSTEM and before.group != column.group,
        )
        for (before, column), values in zip(pairwise(board.shown), of_columns, strict=True)
    ]
    names = Names.of(board)
    pinned, others = board.rows[: board.pinned], board.rows[board.pinned :]
    heads = [
        row_head(names, row, names.unpin_link(row, (unpin or {}).get(row.entry.slug, "")), "is-pinned")
        for row in pinned
    ]
    heads += [row_head(names, row, names.pin_button(row) if may_pin else "") for row in others]
    rows = list(map("".join, zip(heads, *cells, strict=True)))
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


class Shown(NamedTuple):
    """The rows that are written, with what all columns ask of them: their decimals, and the kinds that they are of."""

    board: Board
    decimals: list[int]
    kinds: set[str]


class ColumnHtml(NamedTuple):
    """A column's cells: the text of each as HTML, "" where it is missing, its attributes, and what pads it."""

    texts: list[str]
    attributes: Iterable[str] = repeat("")
    paddings: Iterable[str] = repeat("")


def _cells(
    shown: Shown, column: Column, values: Values, room: int | None, *, with_more: bool, first: bool
) -> list[str]:
    """The cells of a column, one for each row. `first`: texts that begin a group, whose head is wider.

    `room` is that of spreads, None where no cell has more than its text, which it has `with_more` than a value.
    """
    key = column.key
    rows = shown.board.rows
    cells = [row.cells.get(key, EMPTY) for row in rows] if with_more else [EMPTY] * len(values)
    kind = "" if column.numeric else "first t " if first else "t "
    texts, attributes, paddings = _WRITERS[column.kind](shown, column, cells, values)
    if kind:
        attributes = repeat(f' class="{kind.rstrip()}"')
    for number, tag in _emphasis_tags(shown, key, values):
        texts[number] = f"<{tag}>{texts[number]}</{tag}>"
    if "" in texts:
        missing = "", f' class="{kind}none"', "—"
        found = zip(paddings, attributes, texts, strict=False)
        paddings, attributes, texts = map(
            list, zip(*(one if one[2] else missing for one in found), strict=True)
        )
    if room is not None:
        top = _scale_maximum(cells, values)
        return [
            f"<td{_title(cell)}{attribute}>{text}{padding}{_cell_suffix(cell, value, digits, room, top)}</td>"
            for cell, value, digits, attribute, text, padding in zip(
                cells, values, shown.decimals, attributes, texts, paddings, strict=False
            )
        ]
    if isinstance(attributes, repeat) and isinstance(paddings, repeat):
        opening = f"<td{next(attributes)}>"
        return [f"{opening}{text}</td>" for text in texts]
    written = zip(attributes, texts, paddings, strict=False)
    return [f"<td{attribute}>{text}{padding}</td>" for attribute, text, padding in written]


def _emphasis_tags(shown: Shown, key: str, values: Values) -> Iterator[tuple[int, str]]:
    """Which cells are the best and the second among the rows of their kind, with the tag for their text."""
    board = shown.board
    for kind in shown.kinds:
        for found, tag in ((board.best, "b"), (board.second, "u")):
            value, place = found.get((key, kind)), -1
            with suppress(ValueError):  # once there are no more
                while value is not None:
                    place = values.index(value, place + 1)
                    if board.rows[place].ranked_in == kind:
                        yield place, tag


def _title(cell: Cell) -> str:
    """What the cell says on hover."""
    if cell.interval is not None:
        drawn = "95% interval {:.4f} to {:.4f}".format(*cell.interval)
        return f' title="{escaped(f"{cell.title}; {drawn}" if cell.title else drawn)}"'
    return f' title="{escaped(cell.title)}"' if cell.title else ""


def _cell_suffix(cell: Cell, value: Value, digits: int, room: int, top: float) -> str:
    """What follows the text: a mark, an interval on the scale of 0 to `top`, and how seeds spread.

    The cells of a column without a spread have an empty box as wide, so that the means align.
    """
    mark = cell.mark and (
        f"<sup>{cell.mark}</sup>" if SYMBOLS.issuperset(cell.mark) else f" <i>{escape(cell.mark)}</i>"
    )
    drawn = _interval_bar(cell.interval, value, top) if isinstance(value, float) and cell.interval else ""
    return f"{mark}{drawn}{spread_box(room, _spread(cell, digits))}"


def _spread(cell: Cell, digits: int) -> str:
    """How seeds spread, with as many decimals as their mean has; how far a cost may be off as it is."""
    if not cell.spread or cell.noise:
        return cell.spread
    deviation, seeds = cell.spread.removeprefix("± ").split(" ")
    return f"± {float(deviation):.{digits}f} {seeds}"


def _interval_bar(ends: tuple[float, float], mean: float, top: float) -> str:
    """An interval drawn into a cell whose width stands for 0 to `top`: a thin line with two ends, a dot at the mean.

    It says nothing that the title and the column of intervals do not, so that it is hidden from screen readers.
    """
    low, high, middle = (round(end * WIDTH / max(top, 1e-12)) for end in (*ends, mean))
    return (
        f'<svg class="whisker" viewBox="0 0 {WIDTH} 5" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M{low} 0v5m0-2.5H{high}m0-2.5v5"/><path d="M{middle} 2.5h0"/></svg>'
    )


def _scale_maximum(cells: Cells, values: Values) -> float:
    """The greatest of the values and of the ends of intervals."""
    ends = [cell.interval[1] for cell in cells if cell.interval is not None]
    return max([value for value in values if isinstance(value, (float, int))] + ends, default=0.0)


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


def _scores(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    texts, paddings = _numbers(shown.decimals, values, "")
    if column.key != shown.board.sort or not any(values):
        return ColumnHtml(texts, paddings=paddings)
    scale = BAR_STEPS / max(_scale_maximum(cells, values), 1e-12)
    numbers = [value if isinstance(value, (float, int)) else 0.0 for value in values]
    bars = [min(BAR_STEPS, max(0, round(number * scale))) for number in numbers]
    digits = [(bar // 100, bar // 10 % 10, bar % 10) for bar in bars]
    return ColumnHtml(texts, [f' class="b{one} c{two} d{three}"' for one, two, three in digits], paddings)


def _numbers(decimals: Sequence[int], values: Values, sign: str) -> tuple[list[str], Iterable[str]]:
    """The numbers as text, by the decimals of their rows, and what pads these, so that the points align."""
    widest = max(decimals)
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


def _deltas(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    made = _differences(shown, column, cells, values, *_numbers(shown.decimals, values, "+"))
    if column.key != DELTA:
        return made
    board = shown.board
    stars = [f"<sup>{SEPARATED}</sup>" if board.separates(row) else "" for row in board.rows]
    below: Iterable[str] = repeat("")
    if not any(each.key == RELATIVE for each in board.shown):
        ratios = [row.values.get(RELATIVE) for row in board.rows]
        below = [f"<small>{signed_percent(one)}</small>" if isinstance(one, float) else "" for one in ratios]
    together = zip(made.texts, made.paddings, stars, below, strict=False)
    return made._replace(texts=["".join(one) if one[0] else "" for one in together], paddings=repeat(""))


def _relatives(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    texts = [f"{value * 100:+.1f}" if isinstance(value, (float, int)) else "" for value in values]
    return _differences(shown, column, cells, values, texts, repeat(""))


def _differences(
    shown: Shown, column: Column, cells: Cells, values: Values, texts: list[str], paddings: Iterable[str]
) -> ColumnHtml:
    """Return differences with sign. Significant ones have a class that says better or worse, others are grey.

    The two are not the same as plus and minus for Hole@10. Worse scores on hidden judgments are not tested, and
    not grey.
    """
    higher, grey = column.better != "lower", ' class="ns"'
    plus, minus = (' class="up"', ' class="down"') if higher else (' class="down"', ' class="up"')
    signed = [
        text.replace("-", MINUS) if value else text.replace("+", "±")
        for value, text in zip(values, texts, strict=True)
    ]
    board, untested = shown.board, grey
    if column.key in (DELTA, RELATIVE):
        sure = [row.differs for row in board.rows]
        untested = grey if board.statements.least_difference(board.measure) is None else ' class="untested"'
    else:
        sure = [differs(cell.certainty) for cell in cells]
    attributes = [
        grey
        if not value or isinstance(value, str)
        else (plus if value > 0 else minus)
        if known
        else untested
        if (value < 0) == higher
        else grey
        for value, known in zip(values, sure, strict=True)
    ]
    return ColumnHtml(signed, attributes, paddings)


def _plain_numbers(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    """Numbers that are no shares, with the column's decimals, or as many as they need, four at most."""
    numbers = [value for value in values if isinstance(value, (float, int))]
    decimals = column.decimals
    if decimals is None:
        decimals = next((n for n in range(4) if all(abs(round(v, n) - v) < 5e-6 for v in numbers)), 4)
    return ColumnHtml(
        [
            f"{value:.{decimals}f}".replace("-", MINUS) if isinstance(value, (float, int)) else ""
            for value in values
        ]
    )


def _figures(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    printed = [
        cell.text or (format_quantity(value) if isinstance(value, (float, int)) else "")
        for cell, value in zip(cells, values, strict=True)
    ]
    widest = max(len(text.partition(".")[2]) for text in printed)
    return ColumnHtml(
        [escape(text) for text in printed], paddings=[_padding(text, widest) for text in printed]
    )


def _padding(text: str, widest: int) -> str:
    _, point, decimals = text.partition(".")
    padding = FIGURE_SPACE * (widest - len(decimals))
    return padding if point or not padding else POINT_SPACE + padding


def _texts(shown: Shown, column: Column, cells: Cells, values: Values) -> ColumnHtml:
    if column.key == "by":
        return ColumnHtml([_by(row, value) for row, value in zip(shown.board.rows, values, strict=True)])
    made = {value: "" if value is None else _text(column.key, str(value)) for value in set(values)}
    return ColumnHtml([made[value] for value in values])


def _text(key: str, value: str) -> str:
    if key == "provenance":
        return " ".join(f'<span class="badge is-{name}">{name}</span>' for name in value.split(", "))
    return f'<a href="/submissions/{value}/">{value}</a>' if key == "submission" else escape(value)


def _by(row: Row, value: Value) -> str:
    if value is None:
        return ""
    if row.ranked_in != REPORTED and row.entry.team_slug:
        return f'<a href="/teams/{row.entry.team_slug}/">{escaped(str(value))}</a>'
    return escape(str(value))


_WRITERS: dict[str, Callable[[Shown, Column, Cells, Values], ColumnHtml]] = {
    "score": _scores,
    "delta": _deltas,
    "relative": _relatives,
    "rank": _plain_numbers,
    "number": _plain_numbers,
    "figure": _figures,
    "count": lambda shown, column, cells, values: ColumnHtml(
        ["" if cell.value is None else escape(cell.text) for cell in cells]
    ),
    "text": _texts,
    "date": _texts,
}
