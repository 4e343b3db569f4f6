"""What the board's template needs: heads with links, filters, and the rows as ready HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from leaderboard.boards import formatting, rendering
from leaderboard.boards.model import Board, Column
from leaderboard.boards.state import BoardState, Sort
from leaderboard.views.board_controls import controls, may_pin, unpin_links
from leaderboard.views.board_views import export_links


def board_context(board: Board, state: BoardState, path: str, permalink: str = "") -> dict[str, Any]:
    """The context of `leaderboard/_board.html`; `path` is the page's address, `permalink` the one that stays."""
    rooms = rendering.rooms_of(board.rows)
    return {
        "board": board,
        "state": state,
        "board_path": path,
        "body": rendering.body(board, rooms, unpin_links(board, state, path), may_pin=may_pin(state)),
        "heads": _heads(board, state, path, rooms),
        "groups": _groups(board),
        "exports": export_links(path, state),
        "permalink": permalink and permalink + state.query_string(),
        **controls(board, state, path),
    }


def _heads(board: Board, state: BoardState, path: str, rooms: Mapping[str, int]) -> SafeString:
    """The heads of the columns. Each is a link that sorts by its column; the sorted one says so and turns around."""
    heads = (_head(board, state, path, place, rooms) for place in range(len(board.columns)))
    return mark_safe("".join(heads))  # noqa: S308


def _head(board: Board, state: BoardState, path: str, place: int, rooms: Mapping[str, int]) -> str:
    column = board.columns[place]
    sort = Sort(column.key)
    sorting = ""
    if column.key == board.sort:
        sort = Sort(column.key, "asc" if board.order == "desc" else "desc")
        sorting = f' aria-sort="{board.order}ending"'
    href = escape(path + state.but(sorts=(sort,)).query_string())
    note = f' title="{escape(column.note)}"' if column.note else ""
    classes = "name" if place == 0 else "n" if column.numeric else "t"
    if place > 1 and board.columns[place - 1].group != column.group:
        classes += " first"
    room = rendering.spread_box(rooms.get(column.key, 0))
    unit = f'<span class="unit">{escape(column.unit)}</span>' if column.unit else ""
    label = f"{escape(column.label)}{_arrow(column)}"
    return (
        f'<th scope="col" class="{classes}"{sorting}>'
        f'<a href="{href}" id="by-{escape(column.key)}"{note}>{label}</a>{room}{unit}</th>'
    )


def _arrow(column: Column) -> str:
    if not column.better or not column.arrow:
        return ""
    arrow = "↓" if column.better == "lower" else "↑"
    return (
        f'&nbsp;<span class="better" aria-hidden="true">{arrow}</span>'
        f'<span class="visually-hidden">, {column.better} is better</span>'
    )


def _groups(board: Board) -> SafeString:
    """The heads of the groups of columns."""
    cells = []
    for number, (label, span) in enumerate(formatting.spans(board.columns[1:])):
        first = ' class="first"' if number else ""
        text = escape(label)
        if label and label == board.cost_group:
            text = f'<a href="{reverse("efficiency")}">{text}</a>'
        cells.append(f'<th scope="colgroup" colspan="{span}"{first}><span><em>{text}</em></span></th>')
    return mark_safe("".join(cells))  # noqa: S308
