"""Pages and files of datasets: queries with open judgments, each query, changed judgments, and downloads."""

from dataclasses import replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from leaderboard.boards.topic_sources import rolling_benchmark_page
from leaderboard.comparison.queries.collection import (
    COLUMNS,
    LIST_PARAMETERS,
    ListState,
    OpenCollection,
    open_collection,
    present_baseline_label,
    query_list,
    query_url,
)
from leaderboard.comparison.queries.detail import MAX_SYSTEMS, QUERY_PARAMETERS, QueryState, query_page
from leaderboard.core import audit
from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.downloads import send_stored, send_text, send_unless_unchanged
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.measures import canonical_name
from leaderboard.core.permissions import may_see_dataset
from leaderboard.core.storage.store import Area
from leaderboard.datasets.files import blocking_agreements, find_file, is_sealed
from leaderboard.judgements.rescoring.switch import restrict_comparison
from leaderboard.judgements.rescoring.switched import switched_rescores
from leaderboard.judgements.rescoring.table import as_csv, comparison_table, unmoved_results
from leaderboard.models import Dataset, Entry, Rescore, TopicSource, User
from leaderboard.results.board_rows import entry_rows


def _revision(slug: str, **_: str) -> str:
    return entry_rows.dataset_revision(slug)


def _list_variant(request: HttpRequest) -> PageVariant | None:
    if "id" in request.GET:
        return None
    state = ListState.from_parameters(request.GET)
    return None if state.text else PageVariant(state.query_string())


def _query_variant(request: HttpRequest) -> PageVariant | None:
    state = QueryState.from_parameters(request.GET)
    return PageVariant(state.query_string(), common=not state.systems)


def _open_collection(slug: str) -> OpenCollection:
    collection = open_collection(slug)
    if collection is None:
        raise Http404
    return collection


@require_safe
@cache_page(_revision, _list_variant)
@reads(*LIST_PARAMETERS, "id", *QUERY_PARAMETERS)
def queries(request: HttpRequest, slug: str) -> HttpResponse:
    """List the judged queries of an open dataset with their difficulty, or show the query of the parameter `id`."""
    if "id" in request.GET:  # An id that cannot be the end of a URL.
        return _query(request, slug, request.GET["id"])
    collection = _open_collection(slug)
    path = reverse("queries", args=[slug])
    state = ListState.from_parameters(request.GET)
    listing = query_list(collection, state)
    heads = []
    labels = {"baseline": present_baseline_label(collection.dataset)}
    for key, (default_label, first_order, note) in COLUMNS.items():
        label = labels.get(key) or default_label
        sorted_by = key == listing.sort
        order = ("desc" if listing.order == "asc" else "asc") if sorted_by else first_order
        href = path + state.with_values(sort=key, order=order).query_string()
        heads.append((key, label, note, href, f"{listing.order}ending" if sorted_by else ""))
    context = {
        "section": "leaderboards",
        "dataset": collection.dataset,
        "list": listing,
        "text": state.text,
        "heads": heads,
        "measures": collection.measures,
        "before": path + state.with_values(page=listing.page - 1).query_string() if listing.page > 1 else "",
        "after": path + state.with_values(page=listing.page + 1).query_string() if listing.page < listing.pages else "",
    }
    return render(request, "leaderboard/queries.html", context)


@require_safe
@cache_page(_revision, _query_variant)
@reads(*QUERY_PARAMETERS)
def query(request: HttpRequest, slug: str, query_id: str) -> HttpResponse:
    """Show a query with its judgments and the top documents of each system."""
    return _query(request, slug, query_id)


def _query(request: HttpRequest, slug: str, query_id: str) -> HttpResponse:
    """Show a query of an open dataset. Raises Http404 if it does not exist."""
    collection = _open_collection(slug)
    state = QueryState.from_parameters(request.GET)
    page = query_page(collection, query_id, state)
    if page is None:
        raise Http404
    context = {
        "section": "leaderboards",
        "dataset": collection.dataset,
        "page": page,
        "state": state,
        "address": query_url(slug, query_id),
        "here": state.query_string(),
        "all_judged": f"{query_url(slug, query_id)}{replace(state, all_judged=True).query_string()}",
        "most": MAX_SYSTEMS,
        "measures": collection.measures,
    }
    return render(request, "leaderboard/query.html", context)


@require_safe
@reads("measure", "sort")
def rescore(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Show all public results before and after the dataset's change of judgments with this number."""
    row, comparison = _switched_rescore(slug, number)
    dataset, public = row.dataset, Entry.Visibility.PUBLIC
    # Reasons of quarantines are public.
    moved_ids = [move["entry"] for move in row.comparison["rows"] if move["visibility"] == public]
    quarantined = Entry.objects.filter(pk__in=moved_ids, visibility=Entry.Visibility.QUARANTINED)
    table = comparison_table(
        comparison,
        measure=canonical_name(request.GET.get("measure", "")),
        sort=request.GET.get("sort", ""),
        hidden=dataset.hidden,
        public=True,
    )
    context = {
        "section": "leaderboards", "dataset": dataset, "rescore": row, "number": number, "table": table,
        "stays": unmoved_results(comparison, public=True),
        "quarantined": quarantined.select_related("system").order_by("system__name", "pk"),
    }  # fmt: skip
    return render(request, "leaderboard/rescore.html", context)


@require_safe
def rescore_csv(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Send the results before and after a change of judgments as CSV, for all measures."""
    row, comparison = _switched_rescore(slug, number)
    text = as_csv(comparison, hidden=row.dataset.hidden, public=True)
    return send_text(text, f"{slug}-rescore-{number}.csv", "text/csv; charset=utf-8")


def _switched_rescore(slug: str, number: int) -> tuple[Rescore, dict[str, Any]]:
    """Return the dataset's change of judgments with this number, from 1, and its comparison.

    Results that are no longer public are omitted. Raises Http404 if there is no such change.
    """
    dataset = get_object_or_404(Dataset.objects.listed(), slug=slug)
    rescores = list(switched_rescores(dataset.pk))
    if not 1 <= number <= len(rescores):
        raise Http404
    row = rescores[number - 1]
    public = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.PUBLIC)
    return row, restrict_comparison(row.comparison, set(public.values_list("pk", flat=True)))


def visible_dataset(request: HttpRequest, slug: str) -> Dataset:
    """Return the dataset with this slug. Raises Http404 if the visitor may not see it, or it does not exist."""
    dataset = get_object_or_404(Dataset.objects.select_related("current_version", "current_qrels"), slug=slug)
    if not may_see_dataset(request.user, dataset):
        raise Http404
    return dataset


@require_safe
def dataset_file(request: HttpRequest, slug: str, name: str) -> HttpResponseBase:
    """Send a file of a dataset; 404 if it is not offered to this visitor, whether or not it exists.

    Visitors who have yet to accept the dataset's agreement get 403 for every name.
    """
    dataset = visible_dataset(request, slug)
    if agreements := blocking_agreements(dataset, request.user):
        return render(request, "leaderboard/agreement_required.html", {"due": agreements[0]}, status=403)
    file = find_file(dataset, request.user, name)
    if file is None:
        raise Http404
    if is_sealed(dataset, file) and isinstance(request.user, User):
        with audit.acting(request.user):
            audit.record("read hidden queries", f"{dataset.slug}: {file.name}", dataset=dataset)
    kind = "application/gzip" if name.endswith(".gz") else "application/octet-stream"

    def send() -> HttpResponseBase:
        return send_stored(Area.FILES, file.sha256, file.name, kind)

    return send_unless_unchanged(request, file.sha256, send, public=dataset.has_public_texts)


@require_safe
@never_cache
def rolling_benchmark(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a rolling benchmark with its batches and the gap of each system over time."""
    context = {"section": "leaderboards", **rolling_benchmark_page(get_object_or_404(TopicSource, slug=slug))}
    return render(request, "leaderboard/rolling_benchmark.html", context)
