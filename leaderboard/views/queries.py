"""Pages of queries, of datasets with open judgements alone: the list, and each query's own."""

from __future__ import annotations

from dataclasses import replace

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard.comparison.queries.collection import OpenCollection, baseline_of, open_collection, query_url
from leaderboard.comparison.queries.detail import MOST_SYSTEMS, QUERY_PARAMETERS, QueryState, query_page
from leaderboard.comparison.queries.listing import COLUMNS, LIST_PARAMETERS, ListState, query_list
from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.results.board_rows import entry_rows


def _revision(slug: str, **_: str) -> str:
    return entry_rows.dataset_revision(slug)


def _view_of_list(request: HttpRequest) -> PageVariant | None:
    if "id" in request.GET:
        return None
    state = ListState.read(request.GET)
    return None if state.text else PageVariant(state.query_string())


def _view_of_query(request: HttpRequest) -> PageVariant | None:
    state = QueryState.read(request.GET)
    return PageVariant(state.query_string(), common=not state.systems)


def _open(slug: str) -> OpenCollection:
    collection = open_collection(slug)
    if collection is None:
        raise Http404
    return collection


@require_safe
@cache_page(_revision, _view_of_list)
@reads(*LIST_PARAMETERS, "id", *QUERY_PARAMETERS)
def queries(request: HttpRequest, slug: str) -> HttpResponse:
    """The judged queries of an open dataset, with how hard each is."""
    if "id" in request.GET:  # an id that no address can end in
        return _query(request, slug, request.GET["id"])
    collection = _open(slug)
    path = reverse("queries", args=[slug])
    state = ListState.read(request.GET)
    listing = query_list(collection, state)
    heads = []
    labels = {"baseline": baseline_of(collection.dataset)}
    for key, (usual, first, note) in COLUMNS.items():
        label = labels.get(key) or usual
        sorted_by = key == listing.sort
        order = ("desc" if listing.order == "asc" else "asc") if sorted_by else first
        href = path + state.but(sort=key, order=order).query_string()
        heads.append((key, label, note, href, f"{listing.order}ending" if sorted_by else ""))
    context = {
        "section": "datasets",
        "dataset": collection.dataset,
        "list": listing,
        "text": state.text,
        "heads": heads,
        "measures": collection.measures,
        "before": path + state.but(page=listing.page - 1).query_string() if listing.page > 1 else "",
        "after": path + state.but(page=listing.page + 1).query_string()
        if listing.page < listing.pages
        else "",
    }
    return render(request, "leaderboard/queries.html", context)


@require_safe
@cache_page(_revision, _view_of_query)
@reads(*QUERY_PARAMETERS)
def query(request: HttpRequest, slug: str, query_id: str) -> HttpResponse:
    """One query: what was judged for it, and the first documents of each system."""
    return _query(request, slug, query_id)


def _query(request: HttpRequest, slug: str, query_id: str) -> HttpResponse:
    collection = _open(slug)
    state = QueryState.read(request.GET)
    page = query_page(collection, query_id, state)
    if page is None:
        raise Http404
    context = {
        "section": "datasets",
        "dataset": collection.dataset,
        "page": page,
        "state": state,
        "address": query_url(slug, query_id),
        "here": state.query_string(),
        "all_judged": f"{query_url(slug, query_id)}{replace(state, all_judged=True).query_string()}",
        "most": MOST_SYSTEMS,
        "measures": collection.measures,
    }
    return render(request, "leaderboard/query.html", context)
