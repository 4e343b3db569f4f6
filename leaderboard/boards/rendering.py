"""Rows as HTML, column by column: each cell is made as a string once, and the template puts the rows in their place.

Ten thousand cells are made on a miss, so the common case of each kind of column is one comprehension; what is rare
(the best value, a mark, a missing value) is put in afterwards, where it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from html import escape
from operator import attrgetter

from django.utils.safestring import SafeString, mark_safe

from leaderboard.boards.columns import round_marks
from leaderboard.boards.columns.intervals import add_whiskers, top_of
from leaderboard.boards.model import SEPARATED, Board, Identified, Row, Value, reason_gone
from leaderboard.core.text.numbers import MINUS, significant
from leaderboard.results.kinds import GONE, REPORTED, STALE

MISSING = '<td class="none">—</td>'
MISSING_TEXT = '<td class="t none">—</td>'
#: As wide as a digit and as a point, so that 0.123, 0.1234 and 12 align.
FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
#: Marks of one character, which stand raised.
SYMBOLS = frozenset(f"‡?{SEPARATED}")
#: Steps of an in-cell bar: the classes b0 to b20.
BAR_STEPS = 20

Cells = list[str]
Values = Sequence[Value]


def body(board: Board, unpin: Mapping[str, str] | None = None, *, may_pin: bool = False) -> SafeString:
    """All rows, each `<tr>…</tr>`; `unpin` has, by slug, the view without a pinned system's pin."""
    if not board.rows:
        return SafeString("")
    values = list(zip(*(row.values for row in board.rows), strict=True))
    cells = [_cells(board, place, values[place]) for place in range(1, len(board.columns))]
    marked = {place for row in board.rows if row.marks for place in row.marks}
    for place in marked:
        _add_marks(board.rows, place, cells[place - 1])
    for place in {place for row in board.rows for place in row.intervals}:
        add_whiskers(board.rows, place, cells[place - 1], top_of(board, place))
    if any(map(attrgetter("titles"), board.rows)):
        _add_titles(board.rows, cells)
    for place in {place for row in board.rows if row.spreads for place in row.spreads}:
        _add_spreads(board.rows, place, cells[place - 1])
    pinned, others = board.rows[: board.pinned], board.rows[board.pinned :]
    heads = [
        _head(board, row, _unpin(row, (unpin or {}).get(row.entry.slug, "")), "is-pinned") for row in pinned
    ]
    heads += [_head(board, row, _pin(row) if may_pin else "") for row in others]
    return mark_safe("</tr>\n".join(map("".join, zip(heads, *cells, strict=True))) + "</tr>")  # noqa: S308


def _pin(row: Row) -> str:
    """A button of the board's form, so that no row repeats the whole address."""
    return (
        f'<button class="pin" type="submit" form="board-form" name="pin" value="{row.entry.slug}" '
        f'aria-label="Pin {escape(row.entry.system)}"></button>'
    )


def _unpin(row: Row, href: str) -> str:
    if not href:
        return ""
    return f'<a class="pin" hx-boost="true" href="{escape(href)}" aria-label="Unpin {escape(row.entry.system)}"></a>'


def _head(board: Board, row: Row, pin: str, *classes: str) -> str:
    """The row's start: rank and name, which stay in sight when the board scrolls sideways."""
    entry = row.entry
    signs = ("‡" if entry.training == "in-domain" else "") + round_marks.mark(entry)
    after = f"<sup>{signs}</sup>" if signs else ""
    states = []
    if entry.is_baseline:
        states.append("baseline")
    if row.ranked_in == STALE:
        states.append("stale")
    if entry.challenged:
        states.append("challenged")
    if entry.visibility not in ("public", GONE):
        states.append(entry.visibility)
    states += round_marks.badges(entry)
    after += "".join(f'&ensp;<span class="badge is-{state}">{state}</span>' for state in states)
    missing = f"{entry.missing_queries} judged queries missing" if entry.missing_queries else ""
    reason = reason_gone(entry)
    if below := " · ".join(part for part in (entry.configuration, missing, reason) if part):
        after += f"<small>{escape(below)}</small>"
    named = " ".join([*classes, *(f"is-{state}" for state in states)])
    opening = f'<tr class="{named}">' if named else "<tr>"
    return (
        f'{opening}<td class="rank">{pin}{row.rank_label or "—"}</td><th scope="row" class="name">'
        f"{_named(entry, board.without_page)}{after}</th>"
    )


def _named(entry: Identified, without_page: Collection[str]) -> str:
    """The system's name, as a link to its page; one that has only private results may have none."""
    name, address = escape(entry.system), f"/systems/{entry.slug}/"
    if entry.visibility == "private":
        address = f"/submissions/{entry.submission}/" if entry.submission else ""
    return f'<a href="{address}">{name}</a>' if address and entry.slug not in without_page else name


def _cells(board: Board, place: int, values: Values) -> Cells:
    column = board.columns[place]
    cells = _WRITERS[column.kind](board, place, values)
    if column.numeric or place == 1 or board.columns[place - 1].group == column.group:
        return cells
    # The head of a group's first column is wider. Numbers keep to the right of it; text must be moved.
    return [cell.replace('class="', 'class="first ', 1) for cell in cells]


def _scores(board: Board, place: int, values: Values) -> Cells:
    cells = _numbers(board.rows, values, "<td>%", "f</td>")
    if board.columns[place].key == board.sort and any(values):
        top = top_of(board, place)
        cells = [f'<td class="b{bar}"{cell[3:]}' for bar, cell in zip(_bars(values, top), cells, strict=True)]
    _emphasise(board, place, values, cells)
    _put_missing(values, cells)
    return cells


def _numbers(rows: Sequence[Row], values: Values, before: str, after: str) -> list[str]:
    """The numbers as text, by the decimals of their rows: fewer are padded, so that the points align."""
    decimals = set(map(attrgetter("decimals"), rows))
    widest = max(decimals)
    patterns = {
        digits: f"{before}.{digits}{after[:1]}{FIGURE_SPACE * (widest - digits)}{after[1:]}"
        for digits in decimals
    }
    if len(decimals) == 1:
        pattern = patterns[widest]
        if None not in values:
            # One formatting operation for the whole column: half the time of one for each value.
            return ((pattern + "\n") * len(values) % tuple(values)).split("\n")[:-1]
        return [pattern % value if value is not None else "" for value in values]
    return [
        patterns[row.decimals] % value if value is not None else ""
        for row, value in zip(rows, values, strict=True)
    ]


def _bars(values: Values, top: float) -> list[int]:
    """How long the bar of each value is, in twentieths of `top`."""
    numbers = [value if isinstance(value, (float, int)) else 0.0 for value in values]
    scale = BAR_STEPS / max(top, 1e-12)
    return [min(BAR_STEPS, max(0, round(number * scale))) for number in numbers]


def _put_missing(values: Values, cells: Cells, cell: str = MISSING) -> None:
    if None in values:
        for number, value in enumerate(values):
            if value is None:
                cells[number] = cell


def _emphasise(board: Board, place: int, values: Values, cells: Cells) -> None:
    """Best bold, second underlined, each among the rows of its kind."""
    for found, tag in ((board.best, "b"), (board.second, "u")):
        for (column, kind), value in found.items():
            if column != place:
                continue
            for number in _places(values, value):
                if board.rows[number].ranked_in == kind:
                    cells[number] = _tagged(cells[number], tag)


def _tagged(cell: str, tag: str) -> str:
    """The cell with its digits in a tag; what pads them stays outside, so that no line is drawn under it."""
    start, _, content = cell.removesuffix("</td>").partition(">")
    digits = content.rstrip(FIGURE_SPACE + POINT_SPACE)
    return f"{start}><{tag}>{digits}</{tag}>{content[len(digits) :]}</td>"


def _places(values: Values, value: Value) -> Iterator[int]:
    """Where a value is."""
    place = -1
    with suppress(ValueError):
        while True:
            place = values.index(value, place + 1)
            yield place


def _add_marks(rows: Sequence[Row], place: int, cells: Cells) -> None:
    for number, row in enumerate(rows):
        mark = row.marks.get(place)
        if mark:
            written = f"<sup>{mark}</sup>" if SYMBOLS.issuperset(mark) else f" <i>{escape(mark)}</i>"
            cells[number] = cells[number].replace("</td>", f"{written}</td>", 1)


def _add_spreads(rows: Sequence[Row], place: int, cells: Cells) -> None:
    """How a seed set spreads, after its mean; the other rows have an empty box as wide, so that the means align."""
    box = spread_box(rows, place)
    for number, row in enumerate(rows):
        written = box.replace("><", f">{escape(row.spreads.get(place, ''))}<", 1)
        cells[number] = cells[number].replace("</td>", f"{written}</td>", 1)


def spread_box(rows: Sequence[Row], place: int) -> str:
    """The empty box that keeps the room of a column's spreads, in cells and in the head; "" where it has none.

    Empty, because hidden text is read all the same by what takes no style sheet: text browsers, readers of tables.
    """
    widest = max((len(row.spreads.get(place, "")) for row in rows), default=0)
    return f' <small class="spread s{widest}"></small>' if widest else ""


def _add_titles(rows: Sequence[Row], cells: list[Cells]) -> None:
    """What cells say on hover."""
    for number, row in enumerate(rows):
        for place, title in row.titles.items():
            column = cells[place - 1]
            column[number] = f'<td title="{_escaped(title)}"{column[number][3:]}'


@lru_cache(16_384)
def _escaped(title: str) -> str:
    """Boards say the same in thousands of cells, again and again."""
    return escape(title)


def _deltas(board: Board, place: int, values: Values) -> Cells:
    return _differences(board, place, values, _numbers(board.rows, values, "%+", "f"))


def _relatives(board: Board, place: int, values: Values) -> Cells:
    written = [f"{value * 100:+.1f}" if isinstance(value, (float, int)) else "" for value in values]
    return _differences(board, place, values, written)


def _differences(board: Board, place: int, values: Values, written: Sequence[str]) -> Cells:
    """Differences with sign, and a class that says better or worse (the two are not the same for Hole@10)."""
    plus, minus = ("down", "up") if board.columns[place].better == "lower" else ("up", "down")
    cells = []
    for value, text in zip(values, written, strict=True):
        if not value or isinstance(value, str):
            cells.append(f"<td>{text.replace('+', '±', 1)}</td>")
        elif value > 0:
            cells.append(f'<td class="{plus}">{text}</td>')
        else:
            cells.append(f'<td class="{minus}">{text.replace("-", MINUS, 1)}</td>')
    _emphasise(board, place, values, cells)
    _put_missing(values, cells)
    return cells


def _plain_numbers(board: Board, place: int, values: Values) -> Cells:
    """Numbers that are no shares, with the column's decimals, or as many as they need, four at most."""
    numbers = [value for value in values if isinstance(value, (float, int))]
    decimals = board.columns[place].decimals
    if decimals is None:
        decimals = next((n for n in range(4) if all(abs(round(v, n) - v) < 5e-6 for v in numbers)), 4)
    cells = [
        f"<td>{value:.{decimals}f}</td>".replace("-", MINUS) if isinstance(value, (float, int)) else ""
        for value in values
    ]
    _emphasise(board, place, values, cells)
    _put_missing(values, cells)
    return cells


def _figures(board: Board, place: int, values: Values) -> Cells:
    printed = [
        row.shown.get(place) or (significant(value) if isinstance(value, (float, int)) else "")
        for row, value in zip(board.rows, values, strict=True)
    ]
    widest = max(len(text.partition(".")[2]) for text in printed)
    cells = [f"<td>{_padded(escape(text), widest)}</td>" if text else MISSING for text in printed]
    _emphasise(board, place, values, cells)
    return cells


def _padded(text: str, widest: int) -> str:
    _, point, decimals = text.partition(".")
    padding = FIGURE_SPACE * (widest - len(decimals))
    return text + (padding if point or not padding else POINT_SPACE + padding)


def _counts(board: Board, place: int, values: Values) -> Cells:
    cells = [f"<td>{escape(row.shown.get(place, ''))}</td>" for row in board.rows]
    _put_missing(values, cells)
    return cells


def _texts(board: Board, place: int, values: Values) -> Cells:
    key = board.columns[place].key
    if key == "by":
        cells = [_by(row, str(value)) for row, value in zip(board.rows, values, strict=True)]
    elif key == "submission":
        cells = [f'<td class="t"><a href="/submissions/{value}/">{value}</a></td>' for value in values]
    else:
        made = {value: _text(key, str(value)) for value in set(values)}
        cells = [made[value] for value in values]
    _put_missing(values, cells, MISSING_TEXT)
    return cells


def _text(key: str, value: str) -> str:
    if key == "provenance":
        badges = (f'<span class="badge is-{name}">{name}</span>' for name in value.split(", "))
        return f'<td class="t">{" ".join(badges)}</td>'
    return f'<td class="t">{escape(value)}</td>'


def _by(row: Row, value: str) -> str:
    if row.ranked_in != REPORTED and row.entry.team_slug:
        return f'<td class="t"><a href="/teams/{row.entry.team_slug}/">{escape(value)}</a></td>'
    return f'<td class="t">{escape(value)}</td>'


_WRITERS: dict[str, Callable[[Board, int, Values], Cells]] = {
    "score": _scores,
    "delta": _deltas,
    "relative": _relatives,
    "rank": _plain_numbers,
    "number": _plain_numbers,
    "figure": _figures,
    "count": _counts,
    "text": _texts,
    "date": _texts,
}
