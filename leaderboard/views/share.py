"""The picture of a board for previews of links: its name, its verdict, the best three. Drawn once for each revision."""

from __future__ import annotations

import io

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.state import BoardState
from leaderboard.core.cache.pages import cache_page
from leaderboard.views.board_views import REVISIONS, Kind
from leaderboard.views.public import shown_elsewhere


@require_safe
@shown_elsewhere
@cache_page(lambda slug, kind: REVISIONS[kind](slug))
def board_share(request: HttpRequest, slug: str, kind: Kind) -> HttpResponse:
    """The picture of a board."""
    page = pages.READERS[kind](slug, BoardState())
    if page is None:
        raise Http404
    from leaderboard.views.share_image import draw_board  # which loads Pillow, for few requests

    content = io.BytesIO()
    draw_board(page.board).save(content, "PNG", optimize=True)
    return HttpResponse(content.getvalue(), content_type="image/png")
