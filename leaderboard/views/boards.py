"""Pages with a board on them: a dataset's and a benchmark's."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from leaderboard.boards import pages
from leaderboard.boards.columns.judging import SPARSE, describe_judges
from leaderboard.boards.dataset_details import awaiting_runs, dataset_details
from leaderboard.boards.state import PARAMETERS, BoardState
from leaderboard.core.cache.pages import cache_page, own_teams, vary_on_site_address
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import absolute, site_address
from leaderboard.core.permissions import has_agreement, may_judge
from leaderboard.datasets import lists
from leaderboard.datasets.files import keeping_out, visible_files
from leaderboard.importing.benchmarks.catalogue import completeness
from leaderboard.judgements.rescoring.campaigns import under_way
from leaderboard.models import Dataset, DatasetVersion, Qrels
from leaderboard.results.board_rows import entry_rows
from leaderboard.results.protection import policy_of_columns
from leaderboard.results.values import published_statistics
from leaderboard.rounds.lifecycle import benchmark_rounds, closed_reason, dataset_rounds, governing_round
from leaderboard.views.board_context import board_context
from leaderboard.views.board_views import board_page, permalink, view_of


@require_safe
@cache_page(entry_rows.dataset_revision, vary_on_site_address(view_of))
@reads(*PARAMETERS)
def dataset(request: HttpRequest, slug: str) -> HttpResponse:
    """A dataset: what it is, what it offers, and its board."""
    state = BoardState.read(request.GET)
    page = pages.dataset_page(slug, state, own_teams(request))
    if page is None:
        raise Http404
    dataset = page.dataset
    rounds, now = dataset_rounds(dataset["pk"]), timezone.now()
    open_for_runs = dataset["state"] in Dataset.TAKES_RUNS
    has_documents = bool(dataset["current_version__corpus_sha256"]) and not dataset["runs_only"]
    board = {
        "dataset": dataset,
        "open_for_runs": open_for_runs,
        "shut": closed_reason(governing_round(rounds, now), now) if open_for_runs else "",
        "open_for_models": open_for_runs and has_documents,
        **board_context(
            page.board, state, reverse("dataset", args=[slug]), permalink("dataset", slug, page.at)
        ),
    }

    def around() -> dict[str, Any]:
        statistics = published_statistics(lists.statistics_of(dataset)._asdict(), hidden=dataset["hidden"])
        judged_by = dataset["current_qrels__judged_by"] or {}
        row = _row(dataset)
        due = keeping_out(row, request.user)
        files = [] if due else visible_files(row, request.user)
        return {
            "section": "datasets",
            "share_image": absolute(request, reverse("dataset_share", args=[slug])),
            "feed": reverse("dataset_atom", args=[slug]),
            "statistics": statistics,
            "sparse": (statistics["relevant_per_query"] or SPARSE) < SPARSE,
            "judges": describe_judges(judged_by, hidden=dataset["hidden"])[0],
            "policy": policy_of_columns(dataset),
            "tombstones": page.tombstones,
            "awaiting": awaiting_runs(dataset),
            "rounds": rounds,
            "parts": page.parts,
            "twin": page.twin,
            "remarks": page.remarks,
            "registration": has_agreement(row),
            "due": due,
            "benchmarks": lists.benchmarks_with(dataset["pk"]),
            "files": files,
            "rescore": under_way(dataset["pk"]) if may_judge(request.user) else None,
            "details": dataset_details(dataset, files, site_address(request) + "/"),
        }

    return board_page(request, "leaderboard/dataset.html", state, around, board)


def _row(dataset: dict[str, Any]) -> Dataset:
    """What decides who may have which files, of a row that was read already."""
    own = ("pk", "hidden", "documents_visibility", "queries_visibility")
    row = Dataset(**{name: dataset[name] for name in own})
    if dataset["current_version_id"] is not None:
        row.current_version = DatasetVersion(pk=dataset["current_version_id"])
    if dataset["current_qrels_id"] is not None:
        row.current_qrels = Qrels(pk=dataset["current_qrels_id"], split=dataset["current_qrels__split"])
    return row


@require_safe
@cache_page(entry_rows.benchmark_revision, vary_on_site_address(view_of))
@reads(*PARAMETERS)
def benchmark(request: HttpRequest, slug: str) -> HttpResponse:
    """A benchmark: systems × datasets for one measure."""
    state = BoardState.read(request.GET)
    page = pages.benchmark_page(slug, state, own_teams(request))
    if page is None:
        raise Http404
    counted = [member.dataset_id for member in page.members if member.counted]
    judged = [
        member.facts.hidden
        for member in page.members
        if any(facts.qrels_id is not None for facts in (member.facts, *(part.facts for part in member.parts)))
    ]
    around = {
        "section": "benchmarks",
        "share_image": absolute(request, reverse("benchmark_share", args=[slug])),
        "feed": reverse("benchmark_atom", args=[slug]),
        "rounds": benchmark_rounds(page.benchmark["pk"]),
        "benchmark": page.benchmark,
        "members": page.members,
        "printed": page.printed,
        "counted": len(counted),
        "uncounted": len(page.members) - len(counted),
        "topics": lists.count_topics(counted),
        "hidden_members": len(judged) - judged.count(False),
        "open_members": judged.count(False),
        "completeness": completeness(slug),
    }
    path = reverse("benchmark", args=[slug])
    board = board_context(page.board, state, path, permalink("benchmark", slug, page.at))
    return board_page(request, "leaderboard/benchmark.html", state, lambda: around, board)
