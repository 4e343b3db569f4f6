"""Pages of current and past boards, and their exports."""

import datetime
import re
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
from leaderboard.boards.columns.judging import SPARSE, describe_judges
from leaderboard.boards.dataset_details import awaiting_runs, dataset_details
from leaderboard.boards.exports import FORMATS
from leaderboard.boards.exports.texts import MOMENT
from leaderboard.boards.state import PARAMETERS, BoardState
from leaderboard.core.cache.pages import (
    PageVariant,
    cache_page,
    is_anonymous_visit,
    own_teams,
    vary_on_site_address,
)
from leaderboard.core.http.downloads import send_text
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import absolute, site_address
from leaderboard.core.permissions import has_agreement, may_judge
from leaderboard.datasets import lists
from leaderboard.datasets.files import blocking_agreements, visible_files
from leaderboard.importing.benchmarks.catalogue import completeness, find_importable
from leaderboard.judgements.rescoring.campaigns import get_pending_rescore
from leaderboard.models import Dataset
from leaderboard.results.board_rows.past import next_second
from leaderboard.results.protection import policy_from_columns
from leaderboard.results.values import published_statistics
from leaderboard.rounds.lifecycle import benchmark_rounds, closed_reason, dataset_rounds, governing_round
from leaderboard.views.board_context import board_context
from leaderboard.views.board_views import REVISIONS, Kind, board_citation, board_page, page_variant, permalink


@require_safe
@cache_page(REVISIONS["dataset"], vary_on_site_address(page_variant))
@reads(*PARAMETERS)
def dataset(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a dataset with its description, files, and board."""
    state = BoardState.from_parameters(request.GET)
    page = pages.dataset_page(slug, state, own_teams(request))
    if page is None:
        raise Http404
    dataset = page.dataset
    rounds, now = dataset_rounds(dataset["pk"]) if dataset["has_rounds"] else [], timezone.now()
    open_for_runs = dataset["state"] in Dataset.TAKES_RUNS
    has_documents = bool(dataset["current_version__corpus_sha256"]) and not dataset["runs_only"]
    board = {
        "dataset": dataset,
        "open_for_runs": open_for_runs,
        "shut": closed_reason(governing_round(rounds, now), now) if open_for_runs else "",
        "open_for_models": open_for_runs and has_documents,
        **board_context(page.board, state, reverse("dataset", args=[slug]), permalink("dataset", slug, page.at)),
    }

    def build_context() -> dict[str, Any]:
        """Return the part of the context that only whole pages need."""
        statistics = published_statistics(lists.get_statistics(dataset)._asdict(), hidden=dataset["hidden"])
        judged_by = dataset["current_qrels__judged_by"] or {}
        row = pages.partial_dataset(dataset)
        needs_registration = has_agreement(row)
        agreements = blocking_agreements(row, request.user) if needs_registration else []
        files = [] if agreements else visible_files(row, request.user)
        return {
            "section": "leaderboards", "share_image": absolute(request, reverse("dataset_share", args=[slug])),
            "feed": reverse("dataset_atom", args=[slug]), "statistics": statistics,
            "sparse": (statistics["relevant_per_query"] or SPARSE) < SPARSE,
            "judges": describe_judges(judged_by, hidden=dataset["hidden"])[0], "policy": policy_from_columns(dataset),
            "tombstones": page.tombstones, "awaiting": awaiting_runs(dataset), "rounds": rounds, "parts": page.parts,
            "twin": page.twin, "remarks": page.remarks, "registration": needs_registration, "due": agreements,
            "benchmarks": lists.benchmarks_with(dataset["pk"]),
            "importable": find_importable(slug) if dataset["state"] == Dataset.State.REPORTED else None, "files": files,
            "rescore": get_pending_rescore(dataset["pk"]) if may_judge(request.user) else None,
            "details": dataset_details(dataset, files, site_address(request) + "/"),
        }  # fmt: skip

    return board_page(request, "leaderboard/dataset.html", state, build_context, board)


@require_safe
@cache_page(REVISIONS["benchmark"], vary_on_site_address(page_variant))
@reads(*PARAMETERS)
def benchmark(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a benchmark: systems × datasets for one measure."""
    state = BoardState.from_parameters(request.GET)
    page = pages.benchmark_page(slug, state, own_teams(request))
    if page is None:
        raise Http404
    counted_ids = [member.dataset_id for member in page.members if member.counted]
    scored_members = [
        member.facts
        for member in page.members
        if any(facts.qrels_id is not None for facts in (member.facts, *(part.facts for part in member.parts)))
    ]
    context = {
        "section": "leaderboards",
        "share_image": absolute(request, reverse("benchmark_share", args=[slug])),
        "feed": reverse("benchmark_atom", args=[slug]),
        "rounds": benchmark_rounds(page.benchmark["pk"]) if page.benchmark["has_rounds"] else [],
        "benchmark": page.benchmark,
        "members": page.members,
        "printed": page.printed,
        "counted": len(counted_ids),
        "uncounted": [member.facts.name for member in page.members if not member.counted],
        "total": len(page.members),
        "topics": lists.count_topics(counted_ids),
        "hidden_members": [facts.name for facts in scored_members if facts.hidden],
        "open_members": [facts.name for facts in scored_members if not facts.hidden],
        "completeness": completeness(slug),
    }
    path = reverse("benchmark", args=[slug])
    board = board_context(page.board, state, path, permalink("benchmark", slug, page.at))
    return board_page(request, "leaderboard/benchmark.html", state, lambda: context, board)


#: Seconds for which browsers and proxies may cache a past board. A past board changes only if one of its rows is
#: removed, and then shows the reason.
CACHE_SECONDS = 3600
#: Duration after which all transactions that began in a given second have certainly ended.
SETTLING_TIME = datetime.timedelta(seconds=60)


class MomentConverter:
    """URL converter for times such as `2026-11-21T17:05:09Z`."""

    # `\d` would match digits of all scripts, and so give a page several URLs.
    regex = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"

    def to_python(self, value: str) -> datetime.datetime:
        """Parse the time. Raises ValueError for invalid dates such as February 30."""
        return datetime.datetime.strptime(value, MOMENT).replace(tzinfo=datetime.UTC)

    def to_url(self, value: datetime.datetime) -> str:
        return value.astimezone(datetime.UTC).strftime(MOMENT)


def _cache_past_boards(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return the view with a `Cache-Control` header for past boards whose time is at least `SETTLING_TIME` ago.

    All transactions that began in the board's second have ended by then. Times in the future lead to 404.
    """

    @wraps(view)
    def answer(
        request: HttpRequest, slug: str, kind: Kind, at: datetime.datetime | None = None, **options: Any
    ) -> HttpResponse:
        if at is not None and at > timezone.now():
            return _no_board(request, slug, at, kind)
        response = view(request, slug=slug, kind=kind, at=at, **options)
        is_settled = at is not None and next_second(at) + SETTLING_TIME < timezone.now()
        if is_settled and response.status_code in (200, 304) and is_anonymous_visit(request):
            response.headers["Cache-Control"] = f"public, max-age={CACHE_SECONDS}"
        return response

    return answer


def _revision(slug: str, kind: Kind, at: datetime.datetime | None, **_: object) -> str:
    return REVISIONS[kind](slug) if at is None else pages.past_board_key(kind, slug, at)


@require_safe
@_cache_past_boards
@cache_page(_revision, page_variant)
@reads(*PARAMETERS)
def past_board(request: HttpRequest, slug: str, at: datetime.datetime, kind: Kind) -> HttpResponse:
    """Show the board as of `at`, in the view of the query string, or 404 if it did not exist yet."""
    state = BoardState.from_parameters(request.GET)
    page = pages.READERS[kind](slug, state, at=at)
    if page is None:
        return _no_board(request, slug, at, kind)
    path = permalink(kind, slug, at)
    context = {
        "section": "leaderboards",
        "kind": kind,
        "at": at,
        "since": page.at,
        "present": reverse(kind, args=[slug]) + state.query_string(),
        "tombstones": page.tombstones,
    }
    board = board_context(page.board, state, path, path)
    return board_page(request, "leaderboard/board_at.html", state, lambda: context, board)


@vary_on_site_address
def export_variant(request: HttpRequest) -> PageVariant | None:
    """Return the view of an export for the page cache. Exports contain their own URL."""
    state = _all_rows(request)
    return None if state.text else PageVariant(state.query_string(), state.is_common)


def _all_rows(request: HttpRequest) -> BoardState:
    return BoardState.from_parameters(request.GET).with_values(all_rows=True)


@require_safe
@_cache_past_boards
@cache_page(_revision, export_variant)
@reads(*PARAMETERS)
def export(
    request: HttpRequest, slug: str, kind: Kind, ending: str, at: datetime.datetime | None = None
) -> HttpResponse:
    """Export the current or a past board in the format `ending` of FORMATS, with all rows of the view."""
    page = pages.READERS[kind](slug, _all_rows(request), at=at)
    if page is None:
        if at is None:
            raise Http404
        return _no_board(request, slug, at, kind)
    citation = board_citation(request, kind, slug, page.board.title, at or page.at)
    export_format = FORMATS[ending]
    text = export_format.write(page.board, replace(citation, bibtex=pages.collect_bibtex(page.rows)))
    file_name = "-".join([slug, *re.findall(r"[\w.+-]+", page.board.slice.name if page.board.slice else "")])
    return send_text(text, f"{file_name}.{ending}", export_format.content_type, saved=export_format.is_download)


def _no_board(request: HttpRequest, slug: str, at: datetime.datetime, kind: Kind) -> HttpResponse:
    """Return 404 for a time without a board, with the start of the board's history.

    The response is the same for nonpublic and unknown boards. URLs of exports get plain text.
    """
    first_time, to_come = pages.first_publication_time(kind, slug), at > timezone.now()
    context = {
        "at": at,
        "to_come": to_come,
        "first": first_time,
        "first_page": permalink(kind, slug, first_time),
        "present": reverse(kind, args=[slug]) if first_time else "",
    }
    if not request.path.endswith("/"):
        begins = f" It begins at {first_time.strftime(MOMENT)}." if first_time else ""
        text = f"There {'is' if to_come else 'was'} no such board at {at.strftime(MOMENT)}.{begins}\n"
        return HttpResponse(text, status=404, content_type="text/plain; charset=utf-8")
    return render(request, "leaderboard/no_board_then.html", context, status=404)
