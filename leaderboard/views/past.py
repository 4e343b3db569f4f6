"""Exports of boards, and past boards as of a second: pages whose figures and order never change."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.exports import FORMATS
from leaderboard.boards.exports.cells import MOMENT
from leaderboard.boards.state import PARAMETERS, BoardState
from leaderboard.core.cache.pages import PageVariant, cache_page, is_anonymous_visit, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.results.board_rows.past import end_of
from leaderboard.views.board_context import board_context
from leaderboard.views.board_views import REVISIONS, Kind, board_citation, board_page, permalink, view_of

#: Seconds for which browsers and proxies may keep a past board without asking: only the reason why a row was taken off
#: since can be added to it.
KEPT_FOR = 3600
#: A second is over when every transaction that began in it has surely ended.
SETTLED = datetime.timedelta(seconds=60)


class MomentConverter:
    """`2026-11-21T17:05:09Z` in an address."""

    # `\d` would take the digits of every script, and give a page as many addresses.
    regex = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"

    def to_python(self, value: str) -> datetime.datetime:
        """The second. Raises ValueError for the 30th of February, which is no address then."""
        return datetime.datetime.strptime(value, MOMENT).replace(tzinfo=datetime.UTC)

    def to_url(self, value: datetime.datetime) -> str:
        """Its text."""
        return value.astimezone(datetime.UTC).strftime(MOMENT)


def _long_kept(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Let browsers and proxies cache a past board, once nothing can change within its second.

    There are no boards of a future time.
    """

    @wraps(view)
    def answer(
        request: HttpRequest, slug: str, kind: Kind, at: datetime.datetime | None = None, **others: Any
    ) -> HttpResponse:
        if at is not None and at > timezone.now():
            return _no_board(request, slug, at, kind)
        response = view(request, slug=slug, kind=kind, at=at, **others)
        settled = at is not None and end_of(at) + SETTLED < timezone.now()
        if settled and response.status_code in (200, 304) and is_anonymous_visit(request):
            response.headers["Cache-Control"] = f"public, max-age={KEPT_FOR}"
        return response

    return answer


def _revision(slug: str, kind: Kind, at: datetime.datetime | None, **_: object) -> str:
    return REVISIONS[kind](slug) if at is None else pages.key_of(kind, slug, at)


@require_safe
@_long_kept
@cache_page(_revision, view_of)
@reads(*PARAMETERS)
def board(request: HttpRequest, slug: str, at: datetime.datetime, kind: Kind) -> HttpResponse:
    """The board as of `at`, in the view of the query string."""
    state = BoardState.read(request.GET)
    page = pages.READERS[kind](slug, state, at=at)
    if page is None:
        return _no_board(request, slug, at, kind)
    path = permalink(kind, slug, at)
    around = {
        "section": f"{kind}s",
        "kind": kind,
        "at": at,
        "since": page.at,
        "present": reverse(kind, args=[slug]) + state.query_string(),
        "tombstones": page.tombstones,
    }
    shown = board_context(page.board, state, path, path)
    return board_page(request, "leaderboard/board_at.html", state, lambda: around, shown)


def _view_of_export(request: HttpRequest) -> PageVariant | None:
    state = _all_rows(request)
    return None if state.text else PageVariant(state.query_string(), state.is_common)


#: The view of an export for the page cache. Exports name their own address.
view_of_export = vary_on_site_address(_view_of_export)


def _all_rows(request: HttpRequest) -> BoardState:
    """Return the view with all of its rows. Raises UnknownChoice."""
    return BoardState.read(request.GET).but(all_rows=True)


@require_safe
@_long_kept
@cache_page(_revision, view_of_export)
@reads(*PARAMETERS)
def export(
    request: HttpRequest, slug: str, kind: Kind, ending: str, at: datetime.datetime | None = None
) -> HttpResponse:
    """The present or a past board as one of FORMATS, with all rows of its view."""
    page = pages.READERS[kind](slug, _all_rows(request), at=at)
    if page is None:
        if at is None:
            raise Http404
        return _no_board(request, slug, at, kind)
    cited = board_citation(request, kind, slug, page.board.title, at or page.at)
    chosen = FORMATS[ending]
    text = chosen.write(page.board, replace(cited, bibtex=pages.bibtex_of(page.rows)))
    response = HttpResponse(text, content_type=chosen.content_type)
    disposition = "attachment" if chosen.saved else "inline"
    response.headers["Content-Disposition"] = f'{disposition}; filename="{slug}.{ending}"'
    return response


def _no_board(request: HttpRequest, slug: str, at: datetime.datetime, kind: Kind) -> HttpResponse:
    """404, with the time at which the board begins; the same for what is not public, and for what is nowhere."""
    first, to_come = pages.first_published(kind, slug), at > timezone.now()
    context = {
        "at": at,
        "to_come": to_come,
        "first": first,
        "first_page": permalink(kind, slug, first),
        "present": reverse(kind, args=[slug]) if first else "",
    }
    if not request.path.endswith("/"):
        begins = f" It begins at {first.strftime(MOMENT)}." if first else ""
        text = f"There {'is' if to_come else 'was'} no such board at {at.strftime(MOMENT)}.{begins}\n"
        return HttpResponse(text, status=404, content_type="text/plain; charset=utf-8")
    return render(request, "leaderboard/no_board_then.html", context, status=404)
