"""Boards to take away, in the view that the query string asks for: all of its rows, whichever page of them is shown."""

from __future__ import annotations

from dataclasses import replace

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import pages, reading, references
from leaderboard.boards.exports import FORMATS, Cited
from leaderboard.boards.model import Board
from leaderboard.boards.state import BoardState, UnknownChoice
from leaderboard.page_cache import kept_page
from leaderboard.views.board_views import Kind, cited, refused, view_of


def _dataset_revision(slug: str, **_: object) -> str:
    return reading.dataset_revision(slug)


def _benchmark_revision(slug: str, **_: object) -> str:
    return reading.benchmark_revision(slug)


def host_and_view(request: HttpRequest) -> str | None:
    """The view, and the host: exports name their own address."""
    view = view_of(request)
    return None if view is None else f"{request.get_host()} {view}"


@require_safe
@kept_page(_dataset_revision, host_and_view)
def dataset(request: HttpRequest, slug: str, ending: str) -> HttpResponse:
    """The dataset's board as one of FORMATS."""
    return _exported(request, "dataset", slug, ending)


@require_safe
@kept_page(_benchmark_revision, host_and_view)
def benchmark(request: HttpRequest, slug: str, ending: str) -> HttpResponse:
    """The benchmark's board as one of FORMATS."""
    return _exported(request, "benchmark", slug, ending)


def _exported(request: HttpRequest, kind: Kind, slug: str, ending: str) -> HttpResponse:
    try:
        state = whole(request)
        page = pages.dataset_page(slug, state) if kind == "dataset" else pages.benchmark_page(slug, state)
    except UnknownChoice as error:
        return refused(request, error)
    if page is None:
        raise Http404
    about = cited(request, kind, slug, page.board.title, page.at)
    if ending == "bib":
        about = replace(about, bibtex=references.bibtex_of(row.entry.slug for row in page.board.rows))
    return exported(page.board, about, ending)


def whole(request: HttpRequest) -> BoardState:
    """The view with all its rows. Raises UnknownChoice."""
    return BoardState.read(request.GET).but(all_rows=True)


def exported(board: Board, about: Cited, ending: str) -> HttpResponse:
    """The board as one of FORMATS, under a name of its own."""
    chosen = FORMATS[ending]
    response = HttpResponse(chosen.write(board, about), content_type=chosen.content_type)
    disposition = "attachment" if chosen.saved else "inline"
    response.headers["Content-Disposition"] = f'{disposition}; filename="{about.slug}.{ending}"'
    return response
