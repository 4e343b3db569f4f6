"""Boards to take away, in the view that the query string asks for: all of its rows, whichever page of them is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import pages, reading, references
from leaderboard.boards.exports import FORMATS
from leaderboard.boards.state import BoardState, UnknownChoice
from leaderboard.page_cache import kept_page
from leaderboard.views.board_views import cited, refused, view_of


def _dataset_revision(slug: str, **_: object) -> str:
    return reading.dataset_revision(slug)


def _benchmark_revision(slug: str, **_: object) -> str:
    return reading.benchmark_revision(slug)


def _variant(request: HttpRequest) -> str | None:
    """The view, and the host: exports name their own address."""
    view = view_of(request)
    return None if view is None else f"{request.get_host()} {view}"


@require_safe
@kept_page(_dataset_revision, _variant)
def dataset(request: HttpRequest, slug: str, ending: str) -> HttpResponse:
    """The dataset's board as one of FORMATS."""
    return _exported(request, "dataset", slug, ending)


@require_safe
@kept_page(_benchmark_revision, _variant)
def benchmark(request: HttpRequest, slug: str, ending: str) -> HttpResponse:
    """The benchmark's board as one of FORMATS."""
    return _exported(request, "benchmark", slug, ending)


def _exported(
    request: HttpRequest, kind: Literal["dataset", "benchmark"], slug: str, ending: str
) -> HttpResponse:
    try:
        state = BoardState.read(request.GET).but(all_rows=True)
        page = pages.dataset_page(slug, state) if kind == "dataset" else pages.benchmark_page(slug, state)
    except UnknownChoice as error:
        return refused(request, error)
    if page is None:
        raise Http404
    chosen, about = FORMATS[ending], cited(request, kind, slug, page.board.title)
    if ending == "bib":
        about = replace(about, bibtex=references.bibtex_of(row.entry.slug for row in page.board.rows))
    response = HttpResponse(chosen.write(page.board, about), content_type=chosen.content_type)
    disposition = "attachment" if chosen.saved else "inline"
    response.headers["Content-Disposition"] = f'{disposition}; filename="{slug}.{ending}"'
    return response
