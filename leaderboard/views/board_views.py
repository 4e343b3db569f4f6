"""The requested view of a board, its page, and its citation."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers

from leaderboard.boards.exports import FORMATS, Citation
from leaderboard.boards.model import Board
from leaderboard.boards.state import BoardState
from leaderboard.core.cache.pages import PageVariant
from leaderboard.core.http.site_url import absolute
from leaderboard.results.board_rows import entry_rows

Kind = Literal["dataset", "benchmark"]


#: The revisions that the page of a board changes with, by its slug.
REVISIONS: Mapping[Kind, Callable[[str], str]] = {
    "dataset": entry_rows.dataset_revision,
    "benchmark": entry_rows.benchmark_revision,
}


def site_revision(**_: object) -> str:
    """The revision of the whole site, for pages that show more than one board, whatever their arguments."""
    return entry_rows.site_revision()


def view_of(request: HttpRequest) -> PageVariant | None:
    """Return the view for the page cache, or None for searches and addresses with empty fields."""
    state = BoardState.read(request.GET)
    if state.text or has_empty_fields(request):
        return None
    return PageVariant(("part" if is_part(request) else "") + state.query_string(), state.is_common)


def is_part(request: HttpRequest) -> bool:
    """Whether htmx asks, which wants the board alone; to go back in history it asks for the whole page."""
    return "HTTP_HX_REQUEST" in request.META and "HTTP_HX_HISTORY_RESTORE_REQUEST" not in request.META


def has_empty_fields(request: HttpRequest) -> bool:
    """Whether a form without JavaScript has put fields into the address that say nothing."""
    return any("" in request.GET.getlist(name) for name in request.GET)


def board_page(
    request: HttpRequest,
    template: str,
    state: BoardState,
    context: Callable[[], dict[str, Any]],
    board: dict[str, Any],
) -> HttpResponse:
    """The page with a board on it, or the board alone for htmx; `context` makes what stands around the board.

    An address with empty fields leads to the one without, and one behind the last page to that page: these are the
    ones that are shared and kept.
    """
    shown: Board = board["board"]
    response: HttpResponse
    if shown.page != state.page:
        response = redirect(request.path + state.but(page=shown.page).query_string())
    elif is_part(request):
        response = render(request, "leaderboard/_board.html", {**board, "fragment": True})
    elif has_empty_fields(request):
        response = redirect(request.path + state.query_string())
    else:
        response = render(request, template, {**context(), **board})
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response


def permalink(kind: Kind, slug: str, at: datetime.datetime | None) -> str:
    """The address of the board as it is since `at`, empty where that is not known."""
    return reverse(f"{kind}_at", args=[slug, at]) if at else ""


def board_citation(
    request: HttpRequest, kind: Kind, slug: str, title: str, at: datetime.datetime | None
) -> Citation:
    """How exports name the view that is asked for; `at` is since when the board is so."""
    query = BoardState.read(request.GET).but(all_rows=False).query_string()
    address = permalink(kind, slug, at) or reverse(kind, args=[slug])
    return Citation(kind, slug, title, absolute(request, address + query), at)


def export_links(path: str, state: BoardState) -> list[tuple[str, str]]:
    """What the view may be had as: name and address; `path` is the page's."""
    query = state.but(all_rows=False).query_string()
    return [(chosen.label, f"{path}board.{ending}{query}") for ending, chosen in FORMATS.items()]
