"""Rows as HTML, column by column: each cell is made as a string once, and the template puts the rows in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from django.utils.safestring import SafeString, mark_safe

from leaderboard.boards.measures import better
from leaderboard.boards.model import REPORTED, STALE, Board, Column, Row, Value

MISSING = '<td class="none">—</td>'
#: As wide as a digit, so that 0.123 and 0.1234 align at the point.
FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
MINUS = "\u2212"
#: Steps of an in-cell bar: the classes b0 to b20.
BAR_STEPS = 20


def body(board: Board) -> SafeString:
    """All rows, each `<tr>…</tr>`."""
    heads = [_head(row) for row in board.rows]
    columns = [_cells(board, place) for place in range(1, len(board.columns))]
    cells = map("".join, zip(*columns, strict=True)) if columns else [""] * len(heads)
    return mark_safe("\n".join(head + rest + "</tr>" for head, rest in zip(heads, cells, strict=True)))  # noqa: S308


def _head(row: Row) -> str:
    """The row's start: rank and name, which stay in sight when the board scrolls sideways."""
    kind = "is-baseline" if row.is_baseline else "stale" if row.ranked_in == STALE else ""
    opening = f'<tr class="{kind}">' if kind else "<tr>"
    badges = '&ensp;<span class="badge is-baseline">baseline</span>' if row.is_baseline else ""
    if row.ranked_in == STALE:
        badges += '&ensp;<span class="badge is-stale">stale</span>'
    if row.training == "in-domain":
        badges = "<sup>‡</sup>" + badges
    below = [row.configuration] if row.configuration else []
    if row.missing_queries:
        below.append(f"{row.missing_queries} judged queries missing")
    small = f"<small>{escape(' · '.join(below))}</small>" if below else ""
    return (
        f'{opening}<td class="rank">{row.rank_label or "—"}</td><th scope="row" class="name">'
        f'<a href="/systems/{row.slug}/">{escape(row.system)}</a>{badges}{small}</th>'
    )


def _cells(board: Board, place: int) -> list[str]:
    column = board.columns[place]
    first = place > 1 and board.columns[place - 1].group != column.group
    write = _WRITERS[column.kind]
    cells = write(board, place)
    if first:
        cells = [cell.replace('class="', 'class="first ', 1) for cell in cells]
    return cells


def _scores(board: Board, place: int) -> list[str]:
    rows, write = board.rows, _writers(board, "")
    bars = _bars(board, place)
    cells = []
    for row in rows:
        value = row.values[place]
        if value is None:
            cells.append(MISSING)
            continue
        text = _emphasised(board, place, row, value, write[row.decimals](value))
        bar = f" b{bars(value)}" if bars else ""
        cells.append(f'<td class="n{bar}">{text}{_mark(row, place)}</td>')
    return cells


def _writers(board: Board, sign: str) -> dict[int, Callable[[Value], str]]:
    """How a number is written, by the decimals of its row: fewer are padded, so that the points align."""
    decimals = {row.decimals for row in board.rows}
    widest = max(decimals, default=3)
    return {digits: _writer(f"{sign}.{digits}f", FIGURE_SPACE * (widest - digits)) for digits in decimals}


def _writer(pattern: str, padding: str) -> Callable[[Value], str]:
    return lambda value: format(value, pattern) + padding


def _emphasised(board: Board, place: int, row: Row, value: Value, text: str) -> str:
    key = (place, row.ranked_in)
    if value == board.best.get(key):
        return f"<b>{text}</b>"
    if value == board.second.get(key):
        return f"<u>{text}</u>"
    return text


def _mark(row: Row, place: int) -> str:
    if not row.marks:
        return ""
    mark = row.marks.get(place)
    if not mark:
        return ""
    return f"<sup>{mark}</sup>" if len(mark) == 1 else f" <i>{escape(mark)}</i>"


def _bars(board: Board, place: int) -> Callable[[Value], int] | None:
    """How long the bar of a value is, for the one column that the board is ordered by."""
    column = board.columns[place]
    if column.key != board.sort or column.kind != "score":
        return None
    values = [value for row in board.rows if isinstance(value := row.values[place], (float, int))]
    greatest = max(values, default=0.0)
    if greatest <= 0:
        return None
    return lambda value: max(0, min(BAR_STEPS, round(BAR_STEPS * float(value or 0) / greatest)))


def _deltas(board: Board, place: int) -> list[str]:
    column, write = board.columns[place], _writers(board, "+")
    return [_delta(row.values[place], write[row.decimals], column) for row in board.rows]


def _relatives(board: Board, place: int) -> list[str]:
    column = board.columns[place]
    return [_delta(row.values[place], _percent, column) for row in board.rows]


def _percent(value: Value) -> str:
    return f"{float(value or 0) * 100:+.1f}"


def _delta(value: Value, write: Callable[[Value], str], column: Column) -> str:
    """A difference with its sign, and a colour that says better or worse (the two are not the same for Hole@10)."""
    if value is None:
        return MISSING
    number = float(value)
    if number == 0:
        return f'<td class="n">{write(0.0).replace("+", "±", 1)}</td>'
    good = (number > 0) == (column.better != "lower")
    return f'<td class="n {"up" if good else "down"}">{write(number).replace("-", MINUS, 1)}</td>'


def _figures(board: Board, place: int) -> list[str]:
    printed = [row.shown.get(place, "") for row in board.rows]
    widest = max((len(text.partition(".")[2]) for text in printed), default=0)
    cells = []
    for row, text in zip(board.rows, printed, strict=True):
        if not text:
            cells.append(MISSING)
            continue
        value = row.values[place]
        whole = _padded(escape(text), widest)
        if value is not None:
            whole = _emphasised(board, place, row, value, whole)
        cells.append(f'<td class="n">{whole}{_mark(row, place)}</td>')
    return cells


def _padded(text: str, widest: int) -> str:
    _, point, decimals = text.partition(".")
    padding = FIGURE_SPACE * (widest - len(decimals))
    return text + (padding if point or not padding else POINT_SPACE + padding)


def _texts(board: Board, place: int) -> list[str]:
    key = board.columns[place].key
    write = {"provenance": _provenance, "by": _by, "submission": _submission}.get(key)
    made: dict[str, str] = {}
    cells = []
    for row in board.rows:
        value = row.values[place]
        if value is None:
            cells.append('<td class="t none">—</td>')
        elif write is not None:
            cells.append(write(row, str(value)))
        else:
            text = str(value)
            if text not in made:
                made[text] = f'<td class="t">{escape(text)}</td>'
            cells.append(made[text])
    return cells


def _provenance(row: Row, value: str) -> str:
    return f'<td class="t"><span class="badge is-{value}">{value}</span></td>'


def _by(row: Row, value: str) -> str:
    if row.ranked_in != REPORTED and row.team_slug:
        return f'<td class="t"><a href="/teams/{row.team_slug}/">{escape(value)}</a></td>'
    return f'<td class="t">{escape(value)}</td>'


def _submission(row: Row, value: str) -> str:
    return f'<td class="t"><a href="/submissions/{quote(value)}/">{escape(value)}</a></td>'


def _counts(board: Board, place: int) -> list[str]:
    cells = []
    for row in board.rows:
        text = row.shown.get(place) or ("" if row.values[place] is None else f"{row.values[place]}")
        cells.append(f'<td class="n">{escape(text)}</td>' if text else MISSING)
    return cells


_WRITERS: dict[str, Callable[[Board, int], list[str]]] = {
    "score": _scores,
    "delta": _deltas,
    "relative": _relatives,
    "figure": _figures,
    "count": _counts,
    "text": _texts,
    "date": _texts,
}


def written(value: float | None, decimals: int) -> str:
    """A value as text, a dash where there is none."""
    return "—" if value is None else f"{value:.{decimals}f}"


def signed(value: float | None, decimals: int, *, percent: bool = False) -> str:
    """A difference as text, with its sign."""
    if value is None:
        return "—"
    if value == 0:
        return f"±{0:.{decimals}f}"
    return f"{value * 100 if percent else value:+.{decimals}f}".replace("-", MINUS)


def direction(value: float | None, measure: str) -> str:
    """The class of a difference: `up` is better and `down` worse, whichever way the measure goes."""
    if not value:
        return ""
    return "up" if (value > 0) == (better(measure) == "higher") else "down"


def spans(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """The groups of neighbouring columns, each with how many it spans."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


class SummaryRow(NamedTuple):
    """A row of a board in few words, for the home page."""

    rank: str
    system: str
    slug: str
    is_baseline: bool
    value: str
    relative: str
    direction: str
    wins: str


def summary(board: Board, number: int) -> list[SummaryRow]:
    """The first rows of a benchmark's board: what it is ordered by, and how that compares with BM25."""
    keys = {column.key: place for place, column in enumerate(board.columns)}
    place, average, won = keys[board.sort], keys.get("average-relative"), keys.get("wins")
    rows = []
    for row in board.rows[:number]:
        value = row.values[place]
        found = row.values[average] if average else None
        relative = found if isinstance(found, float) else None
        rows.append(
            SummaryRow(
                rank=row.rank_label,
                system=row.system,
                slug=row.slug,
                is_baseline=row.is_baseline,
                value=written(value, row.decimals) if isinstance(value, float) else "—",
                relative=signed(relative, 1, percent=True),
                direction=direction(relative, board.measure),
                wins=row.shown.get(won, "—") if won else "—",
            )
        )
    return rows
