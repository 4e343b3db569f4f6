"""The read API: datasets, benchmarks, systems, and boards in the view that the page's own query string asks for."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from leaderboard.api import answers
from leaderboard.boards import exports, pages
from leaderboard.boards.awaiting import awaiting
from leaderboard.boards.dataset_details import details
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.state import FACETS, VIEWS, WEIGHED, BoardState
from leaderboard.boards.system import page as system_page
from leaderboard.boards.system.result import Result
from leaderboard.core.cache.pages import Asked, kept_page
from leaderboard.core.http.site_url import site_address
from leaderboard.datasets import lists
from leaderboard.results.history import entry_rows
from leaderboard.results.kinds import QUARANTINED
from leaderboard.results.publishing import published_statistics
from leaderboard.rounds.lifecycle import announced
from leaderboard.systems.challenges import challenges_of
from leaderboard.systems.corrections import corrections_of
from leaderboard.views.board_views import cited
from leaderboard.views.exports import export_asked

#: The part of a path that names a dataset, benchmark or system.
SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="As in the address of its page.")
VIEW_PARAMETERS = [
    SLUG,
    OpenApiParameter("measure", str, description="The measure in focus: differences and ranks follow it."),
    OpenApiParameter("view", str, enum=VIEWS, description="What the cells of a benchmark's datasets show."),
    OpenApiParameter(
        "sort",
        str,
        many=True,
        description="The key of a column to sort by, `key:asc` or `key:desc`; the first decides, others among equals. "
        "Missing values are last both ways.",
    ),
    *(
        OpenApiParameter(
            name,
            str,
            enum=known or None,
            many=True,
            description=f"Only {'datasets' if name in OF_DATASETS else 'rows'} with these values.",
        )
        for name, known in FACETS.items()
    ),
    OpenApiParameter(
        "min-mean", float, description="So for every numeric column: `min-` or `max-` and its key, included."
    ),
    OpenApiParameter("zero-shot", bool, description="`1`: only what is zero-shot."),
    OpenApiParameter("cpu-only", bool, description="`1`: only rows measured on hardware without a GPU."),
    OpenApiParameter("corpus", int, description="Documents of a corpus whose index size is then estimated."),
    OpenApiParameter("hide", str, many=True, description="Groups of columns that are left out."),
    OpenApiParameter("pin", str, many=True, description="Slugs of systems that stand on top."),
    *(OpenApiParameter(f"weight-{name}", float, description="Of the weighted score.") for name in WEIGHED),
    OpenApiParameter("rows", str, enum=["all"], description="Of the page: an answer always has all rows."),
    OpenApiParameter("page", int, description="Of the page: an answer always has all rows."),
    OpenApiParameter("q", str, description="Text in the name of a system, team or source."),
    OpenApiParameter(
        "hardware",
        str,
        description="The hardware class whose measurements are shown, one of `hardware_choices`.",
    ),
]

#: The example of a view in the documentation.
_CURL = {"x-curl": "?measure=nDCG@10&architecture=dense"}


class DatasetsView(APIView):
    """Every dataset."""

    required_scope = "read"

    @extend_schema(operation_id="datasets", responses=answers.DatasetListSerializer)
    def get(self, request: Request) -> Response:
        """Every dataset with its statistics."""
        rows = [
            {**row, "statistics": published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])}
            for row in lists.datasets()
        ]
        return Response(answers.DatasetListSerializer({"datasets": rows}).data)


class DatasetView(APIView):
    """One dataset."""

    required_scope = "read"

    @extend_schema(operation_id="dataset", parameters=[SLUG], responses=answers.DatasetSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """A dataset: what it is, its version, its statistics and its measures."""
        page = pages.dataset_page(slug, BoardState())
        if page is None:
            raise Http404
        dataset = page.dataset
        statistics = lists.statistics_of(dataset)._asdict()
        version = {
            name: dataset[f"current_version__{name}"]
            for name in ("number", "label", "content_sha256", "statistics")
            if name != "content_sha256" or dataset["current_version__content_sha256"]
        }
        more = details(dataset, [], site_address(request._request) + "/")
        told = {
            **dataset,
            "version": version if dataset["current_version_id"] else None,
            "statistics": published_statistics(statistics, hidden=dataset["hidden"]),
            "number": page.board.total,
            "awaiting_judgements": awaiting(dataset),
            "rounds": [row.slug for row in announced([dataset["pk"]])],
            "withdrawn": page.tombstones,
            "quarantined": [row.entry for row in page.board.rows if row.ranked_in == QUARANTINED],
            "benchmarks": lists.benchmarks_with(dataset["pk"]),
            "parts": [part.slug for part in page.parts],
            "example": more.example,
            "snippets": more.snippets,
            "judgements": more.judged,
            "part_of": more.group.slug if more.group else None,
            "nearest": more.neighbours,
        }
        return Response(answers.DatasetSerializer(told).data)


class DatasetBoardView(APIView):
    """The board of one dataset."""

    required_scope = "read"

    @extend_schema(
        operation_id="dataset_board",
        parameters=VIEW_PARAMETERS,
        responses=answers.BoardSerializer,
        extensions=_CURL,
    )
    def get(self, request: Request, slug: str) -> Response:
        """The dataset's board in the view that the query string asks for, as on its page."""
        page = pages.dataset_page(slug, BoardState.read(request.query_params).but(all_rows=True))
        if page is None:
            raise Http404
        return Response(
            exports.to_json(page.board, cited(request._request, "dataset", slug, page.board.title, page.at))
        )


class BenchmarksView(APIView):
    """Every benchmark."""

    required_scope = "read"

    @extend_schema(operation_id="benchmarks", responses=answers.BenchmarkListSerializer)
    def get(self, request: Request) -> Response:
        """Every benchmark."""
        return Response(answers.BenchmarkListSerializer({"benchmarks": lists.benchmarks()}).data)


class BenchmarkBoardView(APIView):
    """The board of one benchmark."""

    required_scope = "read"

    @extend_schema(
        operation_id="benchmark_board",
        parameters=VIEW_PARAMETERS,
        responses=answers.BoardSerializer,
        extensions=_CURL,
    )
    def get(self, request: Request, slug: str) -> Response:
        """The benchmark's board in the view that the query string asks for, as on its page."""
        page = pages.benchmark_page(slug, BoardState.read(request.query_params).but(all_rows=True))
        if page is None:
            raise Http404
        return Response(
            exports.to_json(page.board, cited(request._request, "benchmark", slug, page.board.title, page.at))
        )


def _asked(request: HttpRequest) -> Asked | None:
    """As for exports. Whoever sends a token is told whether it works."""
    return None if "Authorization" in request.headers else export_asked(request)


dataset_board = kept_page(entry_rows.dataset_revision, _asked)(DatasetBoardView.as_view())
benchmark_board = kept_page(entry_rows.benchmark_revision, _asked)(BenchmarkBoardView.as_view())


class SystemView(APIView):
    """One system."""

    required_scope = "read"

    @extend_schema(operation_id="system", parameters=[SLUG], responses=answers.SystemSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """A system with all its public results."""
        facts = system_page.system_facts(slug)
        if facts is None:
            raise Http404
        key = facts["pk"]
        told = {
            **{name.replace("__", "_"): value for name, value in facts.items()},
            "results": [_result(result) for result in system_page.results_of(key)],
            "quarantined": system_page.quarantined_of(key),
            "challenges": challenges_of(key),
            "corrections": corrections_of(key),
        }
        return Response(answers.SystemSerializer(told).data)


def _result(result: Result) -> dict[str, Any]:
    """A result with its scores by measure, the one in focus first."""
    seeds = [
        {"label": seed.label, "scores": {result.measure: seed.value, **dict(seed.scores)}}
        for seed in result.seeds
    ]
    return {
        **result._asdict(),
        "scores": {result.measure: result.value, **dict(result.scores)},
        "measured": [one.as_data() for one in result.measured],
        "seeds": seeds,
    }
