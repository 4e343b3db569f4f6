"""What `served_board.py` serves: the site, a bare view, and the naive templates of the same table beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")

from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

application = get_wsgi_application()

from django.template import Context, Template  # noqa: E402

from leaderboard import urls  # noqa: E402
from leaderboard.boards.pages import benchmark_page  # noqa: E402
from leaderboard.boards.state import BoardState  # noqa: E402

ROWS = """<table>{% for row in rows %}<tr{% if row.entry.is_baseline %} class="is-baseline"{% endif %}>
<td class="rank">{{ row.rank_label }}</td><th class="name">
<a href="/systems/{{ row.entry.slug }}/">{{ row.entry.system }}</a>
{% if row.entry.is_baseline %}<span class="badge is-baseline">baseline</span>{% endif %}</th>
{% for cell in row.cells %}<td class="{{ cell.column.kind }}">
{% if cell.value is None %}—{% elif cell.column.kind == "text" %}{{ cell.value }}{% elif cell.value == cell.best %}
<b>{{ cell.value|floatformat:4 }}</b>{% else %}{{ cell.value|floatformat:4 }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}</table>"""


def naive(state: BoardState) -> Callable[[HttpRequest], HttpResponse]:
    """A view that writes the table of a view's rows as most would write it; it reads nothing and ranks nothing."""
    template, prepared = Template(ROWS), list[dict[str, Any]]()

    def answer(request: HttpRequest) -> HttpResponse:
        if not prepared:
            page = benchmark_page("generated", state)
            if page is None:
                raise RuntimeError("there is no generated board")
            board = page.board
            prepared.extend(
                {
                    "entry": row.entry,
                    "rank_label": row.rank_label,
                    "cells": [
                        {
                            "value": row.value(column.key),
                            "column": column,
                            "best": board.best.get((column.key, row.ranked_in)),
                        }
                        for column in board.columns[1:]
                    ],
                }
                for row in board.rows
            )
        return HttpResponse(template.render(Context({"rows": prepared})))

    return answer


PLAIN = (
    "<table>{% for row in rows %}<tr>{% for value in row %}<td>{{ value|floatformat:4 }}</td>{% endfor %}</tr>"
    "{% endfor %}</table>"
)


def plain(state: BoardState) -> Callable[[HttpRequest], HttpResponse]:
    """A view that writes as many numbers as the table has cells, and nothing else."""
    template, prepared = Template(PLAIN), list[list[float]]()

    def answer(request: HttpRequest) -> HttpResponse:
        if not prepared:
            page = benchmark_page("generated", state)
            if page is None:
                raise RuntimeError("there is no generated board")
            prepared.extend(
                [0.1234 + number / 1e4 for number in range(len(page.board.columns))] for _ in page.board.rows
            )
        return HttpResponse(template.render(Context({"rows": prepared})))

    return answer


urls.urlpatterns[:0] = [
    path("hello", lambda request: HttpResponse("hello")),
    path("naive", naive(BoardState())),
    path("naive-all", naive(BoardState(all_rows=True))),
    path("plain-all", plain(BoardState(all_rows=True))),
]
