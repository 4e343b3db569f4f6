"""Which view of a board is asked for, what is answered where there is none, and how a view is cited."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from leaderboard.api.errors import unknown_choice
from leaderboard.boards.exports import FORMATS, Cited
from leaderboard.boards.state import BoardState, UnknownChoice


def view_of(request: HttpRequest) -> str | None:
    """The view, for the page cache; searches and mistakes are not worth keeping."""
    try:
        state = BoardState.read(request.GET)
    except UnknownChoice:
        return None
    return None if state.text else state.query_string()


def refused(request: HttpRequest, error: UnknownChoice) -> HttpResponse:
    """400, saying what the board has instead, in the kind of answer that was asked for."""
    if request.path.endswith(".json"):
        return JsonResponse(unknown_choice(error), status=400)
    if not request.path.endswith("/"):
        return HttpResponse(f"{error}\n", content_type="text/plain; charset=utf-8", status=400)
    return render(
        request, "leaderboard/unknown_choice.html", {"error": error, "path": request.path}, status=400
    )


def cited(request: HttpRequest, kind: Literal["dataset", "benchmark"], slug: str, title: str) -> Cited:
    """How exports name the view that is asked for."""
    state = BoardState.read(request.GET).but(all_rows=False)
    address = f"/{kind}s/{slug}/{state.query_string()}"
    return Cited(kind, slug, title, request.build_absolute_uri(address))


def export_links(path: str, state: BoardState) -> list[tuple[str, str]]:
    """What the view may be had as: name and address; `path` is the page's."""
    query = state.but(all_rows=False).query_string()
    return [(chosen.label, f"{path}board.{ending}{query}") for ending, chosen in FORMATS.items()]
