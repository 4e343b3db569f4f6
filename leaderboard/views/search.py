"""The site's search: a page, and its list alone for htmx as one types."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from leaderboard.boards.state import choice
from leaderboard.comparison.search import KINDS, read_query, search
from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.views.board_views import is_part, site_revision


def asked(request: HttpRequest) -> PageVariant:
    """The words, which nobody else may ask for, the kind, and whether htmx asks."""
    query = read_query(request.GET.get("q", ""))
    return PageVariant(f"{is_part(request)} {_kind(request)} {query}", common=False)


def _kind(request: HttpRequest) -> str:
    return choice(request.GET, "kind", KINDS)


@require_safe
@cache_page(site_revision, asked)
@reads("q", "kind")
def search_page(request: HttpRequest) -> HttpResponse:
    """What there is under `q`, by kind; of one `kind` alone more."""
    query = read_query(request.GET.get("q", ""))
    kinds = [
        (kind, list(found)) for kind, found in groupby(search(query, _kind(request)), attrgetter("kind"))
    ]
    template = "leaderboard/_found.html" if is_part(request) else "leaderboard/search.html"
    response = render(request, template, {"section": "search", "query": query, "kinds": kinds})
    patch_vary_headers(response, ["HX-Request", "HX-History-Restore-Request"])
    return response
