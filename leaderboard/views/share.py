"""The picture of a board for previews of links: its name, its verdict, the best three. Drawn once for each revision."""

from __future__ import annotations

import io

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.pages import BenchmarkPage, DatasetPage
from leaderboard.boards.state import BoardState
from leaderboard.core.cache.pages import cache_page
from leaderboard.results.board_rows import entry_rows
from leaderboard.views.public import shown_elsewhere


@require_safe
@shown_elsewhere
@cache_page(entry_rows.dataset_revision)
def dataset_share(request: HttpRequest, slug: str) -> HttpResponse:
    """The picture of a dataset's board."""
    return _answer(pages.dataset_page(slug, BoardState()))


@require_safe
@shown_elsewhere
@cache_page(entry_rows.benchmark_revision)
def benchmark_share(request: HttpRequest, slug: str) -> HttpResponse:
    """The picture of a benchmark's board."""
    return _answer(pages.benchmark_page(slug, BoardState()))


def _answer(page: DatasetPage | BenchmarkPage | None) -> HttpResponse:
    if page is None:
        raise Http404
    from leaderboard.views.share_image import draw_board  # which loads Pillow: few ask

    content = io.BytesIO()
    draw_board(page.board).save(content, "PNG", optimize=True)
    return HttpResponse(content.getvalue(), content_type="image/png")
