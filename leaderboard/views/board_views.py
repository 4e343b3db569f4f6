"""Views of boards: the requested view, its page, and its citation."""

import datetime
import secrets
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


#: Placeholder of a board's rows in templates, which would copy the rows at each of their ten levels. It is random, so
#: that no other text of a page contains it.
_ROWS = secrets.token_hex()
#: Functions from a board's slug to the revision that its page depends on.
REVISIONS: Mapping[Kind, Callable[[str], str]] = {
    "dataset": entry_rows.dataset_revision,
    "benchmark": entry_rows.benchmark_revision,
}


def site_revision(**_: object) -> str:
    """Return the revision of the site, for pages with several boards; arguments are ignored."""
    return entry_rows.site_revision()


def page_variant(request: HttpRequest) -> PageVariant | None:
    """Return the view for the page cache, or None for searches and URLs with empty fields."""
    state = BoardState.from_parameters(request.GET)
    if state.text or has_empty_fields(request):
        return None
    return PageVariant(("part" if is_part(request) else "") + state.query_string(), state.is_common)


def is_part(request: HttpRequest) -> bool:
    """Return whether htmx requests only the board; when it restores history, it requests the whole page."""
    return "HTTP_HX_REQUEST" in request.META and "HTTP_HX_HISTORY_RESTORE_REQUEST" not in request.META


def has_empty_fields(request: HttpRequest) -> bool:
    """Return whether the URL contains empty fields, as after submitting a form without JavaScript."""
    return any("" in request.GET.getlist(name) for name in request.GET)


def board_page(
    request: HttpRequest,
    template: str,
    state: BoardState,
    context: Callable[[], dict[str, Any]],
    board: dict[str, Any],
) -> HttpResponse:
    """Return the page with a board or, for htmx, only the board.

    URLs with empty fields or with a page beyond the last one redirect to the canonical URL, which is shared and cached.

    Args:
        request: The request.
        template: Template of the page.
        state: View of the board.
        context: Function that builds the context around the board, called only for whole pages.
        board: Context of the board.
    """
    current_board: Board = board["board"]
    board, rows = {**board, "body": _ROWS}, board["body"]
    response: HttpResponse
    if current_board.page != state.page:
        response = redirect(request.path + state.with_values(page=current_board.page).query_string())
    elif is_part(request):
        response = render(request, "leaderboard/_board.html", {**board, "fragment": True})
    elif has_empty_fields(request):
        response = redirect(request.path + state.query_string())
    else:
        response = render(request, template, {**context(), **board})
    response.content = response.content.replace(_ROWS.encode(), rows.encode())
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response


def permalink(kind: Kind, slug: str, at: datetime.datetime | None) -> str:
    """Return the URL of the board as of `at`; empty if that is unknown."""
    return reverse(f"{kind}_at", args=[slug, at]) if at else ""


def board_citation(request: HttpRequest, kind: Kind, slug: str, title: str, at: datetime.datetime | None) -> Citation:
    """Return the citation of the requested view for exports; `at` is the time of the board's latest change."""
    query = BoardState.from_parameters(request.GET).with_values(all_rows=False).query_string()
    address = permalink(kind, slug, at) or reverse(kind, args=[slug])
    return Citation(kind, slug, title, absolute(request, address + query), at)


def export_links(path: str, state: BoardState) -> list[tuple[str, str]]:
    """Return names and URLs of the exports of the view on the page at `path`."""
    query = state.with_values(all_rows=False).query_string()
    return [(export_format.label, f"{path}board.{extension}{query}") for extension, export_format in FORMATS.items()]
