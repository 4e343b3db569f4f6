"""What the board's template needs: heads with links, filters, and the rows as ready HTML."""

from __future__ import annotations

from typing import Any, NamedTuple

from leaderboard.boards import rendering, wording
from leaderboard.boards.model import Board, Column
from leaderboard.boards.state import BoardState
from leaderboard.models import Architecture, Entry


class Head(NamedTuple):
    """The head of a column. `sorted` is the value of aria-sort, empty but for the one column it is sorted by."""

    column: Column
    href: str
    sorted: str
    first: bool


class Option(NamedTuple):
    """A choice of a filter."""

    value: str
    label: str
    chosen: bool


class Chip(NamedTuple):
    """A filter in force, and the view without it."""

    label: str
    href: str


def board_context(board: Board, state: BoardState, path: str) -> dict[str, Any]:
    """The context of `leaderboard/_board.html`; `path` is the page's address."""
    system_head, *heads = _heads(board, state)
    return {
        "board": board,
        "state": state,
        "board_path": path,
        "body": rendering.body(board),
        "system_head": system_head,
        "heads": heads,
        "groups": wording.spans(board.columns[1:]),
        "architectures": _options(Architecture.choices, state.architectures),
        "provenances": _options(Entry.Provenance.choices, state.provenances),
        "measures": [Option(name, name, name == board.measure) for name in board.measures],
        "chips": _chips(state, path),
        "csv_url": f"{path}board.csv{state.query_string()}",
        "json_url": f"{path}board.json{state.query_string()}",
    }


def _heads(board: Board, state: BoardState) -> list[Head]:
    heads: list[Head] = []
    for place, column in enumerate(board.columns):
        first = place > 1 and board.columns[place - 1].group != column.group
        if column.key == board.sort:
            turned = "asc" if board.order == "desc" else "desc"
            link = state.but(sort=column.key, order=turned)
            heads.append(Head(column, link.query_string(), f"{board.order}ending", first))
        else:
            heads.append(Head(column, state.but(sort=column.key, order="").query_string(), "", first))
    return heads


def _options(choices: list[tuple[str, Any]], chosen: tuple[str, ...]) -> list[Option]:
    return [Option(value, str(label), value in chosen) for value, label in choices]


def _chips(state: BoardState, path: str) -> list[Chip]:
    def without(**changes: object) -> str:
        return path + state.but(**changes).query_string()

    chips = [
        Chip(
            Architecture(value).label,
            without(architectures=tuple(v for v in state.architectures if v != value)),
        )
        for value in state.architectures
    ]
    chips += [
        Chip(value, without(provenances=tuple(v for v in state.provenances if v != value)))
        for value in state.provenances
    ]
    if state.text:
        chips.append(Chip(f"“{state.text}”", without(text="")))
    return chips
