"""What `served_board.py` serves: the site, a bare view, and the naive templates of the same table beside it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from leaderboard import wsgi

application = wsgi.application

from django.http import HttpRequest, HttpResponse  # noqa: E402  after Django is set up
from django.template import Context, Template  # noqa: E402
from django.urls import path  # noqa: E402

from leaderboard import urls  # noqa: E402
from leaderboard.boards.model import Board, Row  # noqa: E402
from leaderboard.boards.pages import benchmark_page  # noqa: E402
from leaderboard.boards.state import BoardState  # noqa: E402

#: One thread prepares a table: of several each would add all of its rows.
_preparing = Lock()

ROWS = """<table>{% for row in rows %}<tr{% if row.entry.is_baseline %} class="is-baseline"{% endif %}>
<td class="rank">{{ row.rank_label }}</td><th class="name">
<a href="/systems/{{ row.entry.slug }}/">{{ row.entry.system }}</a>
{% if row.entry.is_baseline %}<span class="badge is-baseline">baseline</span>{% endif %}</th>
{% for cell in row.cells %}<td class="{{ cell.column.kind }}">
{% if cell.value is None %}—{% elif cell.column.kind == "text" %}{{ cell.value }}{% elif cell.value == cell.best %}
<b>{{ cell.value|floatformat:4 }}</b>{% else %}{{ cell.value|floatformat:4 }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}</table>"""


def rows_of(state: BoardState, prepared: list[Any], make: Callable[[Board, Row], Any]) -> list[Any]:
    """The rows of a view as a template gets them, made once."""
    with _preparing:
        if not prepared:
            page = benchmark_page("generated", state)
            if page is None:
                raise RuntimeError("there is no generated board")
            prepared.extend(make(page.board, row) for row in page.board.rows)
    return prepared


def naive(state: BoardState) -> Callable[[HttpRequest], HttpResponse]:
    """A view that writes the table of a view's rows as most would write it; it reads nothing and ranks nothing."""
    template, prepared = Template(ROWS), list[dict[str, Any]]()

    def made(board: Board, row: Row) -> dict[str, Any]:
        cells = [
            {
                "value": row.value(column.key),
                "column": column,
                "best": board.best.get((column.key, row.ranked_in)),
            }
            for column in board.columns[1:]
        ]
        return {"entry": row.entry, "rank_label": row.rank_label, "cells": cells}

    return lambda _: HttpResponse(template.render(Context({"rows": rows_of(state, prepared, made)})))


PLAIN = (
    "<table>{% for row in rows %}<tr>{% for value in row %}<td>{{ value|floatformat:4 }}</td>{% endfor %}</tr>"
    "{% endfor %}</table>"
)


def plain(state: BoardState) -> Callable[[HttpRequest], HttpResponse]:
    """A view that writes as many numbers as the table has cells, and nothing else."""
    template, prepared = Template(PLAIN), list[list[float]]()

    def made(board: Board, _: Row) -> list[float]:
        return [0.1234 + number / 1e4 for number in range(len(board.columns))]

    return lambda _: HttpResponse(template.render(Context({"rows": rows_of(state, prepared, made)})))


urls.urlpatterns[:0] = [
    path("hello", lambda request: HttpResponse("hello")),
    path("naive", naive(BoardState())),
    path("naive-all", naive(BoardState(all_rows=True))),
    path("plain-all", plain(BoardState(all_rows=True))),
]
