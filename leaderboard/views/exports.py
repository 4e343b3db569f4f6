"""Boards to take away, in the view that the query string asks for: all of its rows, whichever page of them is shown."""

from __future__ import annotations

from dataclasses import replace

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.exports import FORMATS, Citation
from leaderboard.boards.model import Board
from leaderboard.boards.state import PARAMETERS, BoardState
from leaderboard.core.cache.pages import PageVariant, cache_page, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.results.board_rows import entry_rows
from leaderboard.views.board_views import Kind, board_citation

_REVISIONS = {"dataset": entry_rows.dataset_revision, "benchmark": entry_rows.benchmark_revision}


def _revision(slug: str, kind: Kind, **_: object) -> str:
    return _REVISIONS[kind](slug)


def _view_of_export(request: HttpRequest) -> PageVariant | None:
    """The view, whose pages are all the same here."""
    state = whole(request)
    return None if state.text else PageVariant(state.query_string(), state.is_common)


#: Which export is meant: they name their own address.
export_asked = vary_on_site_address(_view_of_export)


@require_safe
@cache_page(_revision, export_asked)
@reads(*PARAMETERS)
def export(request: HttpRequest, slug: str, kind: Kind, ending: str) -> HttpResponse:
    """The board of a dataset or benchmark as one of FORMATS."""
    state = whole(request)
    page = pages.dataset_page(slug, state) if kind == "dataset" else pages.benchmark_page(slug, state)
    if page is None:
        raise Http404
    about = board_citation(request, kind, slug, page.board.title, page.at)
    return exported(page.board, replace(about, bibtex=pages.bibtex_of(page.rows)), ending)


def whole(request: HttpRequest) -> BoardState:
    """The view with all its rows. Raises UnknownChoice."""
    return BoardState.read(request.GET).but(all_rows=True)


def exported(board: Board, about: Citation, ending: str) -> HttpResponse:
    """The board as one of FORMATS, under a name of its own."""
    chosen = FORMATS[ending]
    response = HttpResponse(chosen.write(board, about), content_type=chosen.content_type)
    disposition = "attachment" if chosen.saved else "inline"
    response.headers["Content-Disposition"] = f'{disposition}; filename="{about.slug}.{ending}"'
    return response
