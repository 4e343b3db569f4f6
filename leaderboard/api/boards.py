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
from leaderboard.boards.model import Board
from leaderboard.boards.state import FACETS, VIEWS, WEIGHED, BoardState
from leaderboard.boards.system import page as system_page
from leaderboard.core.cache.pages import Asked, kept_page
from leaderboard.core.http.api_errors import ApiError, unknown_choice
from leaderboard.core.http.choices import UnknownChoice
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


def _state(request: Request) -> BoardState:
    try:
        return BoardState.read(request.query_params)
    except UnknownChoice as error:
        raise _refused(error) from error


def _refused(error: UnknownChoice) -> ApiError:
    body = unknown_choice(error)
    return ApiError(body["code"], body["detail"], problems=body["problems"])


class DatasetsView(APIView):
    """Every dataset."""

    required_scope = "read"

    @extend_schema(operation_id="datasets", responses=answers.DatasetListSerializer)
    def get(self, request: Request) -> Response:
        """Every dataset with its statistics."""
        return Response({"datasets": [_listed(dataset) for dataset in lists.datasets()]})


def _listed(dataset: dict[str, Any]) -> dict[str, Any]:
    names = (
        "slug",
        "name",
        "task",
        "domain",
        "language",
        "licence",
        "state",
        "hidden",
        "runs_only",
        "primary_measure",
    )
    return {
        **{name: dataset[name] for name in names},
        "entries": dataset["number"],
        "statistics": published_statistics(dataset["statistics"]._asdict(), hidden=dataset["hidden"]),
    }


class DatasetView(APIView):
    """One dataset."""

    required_scope = "read"

    @extend_schema(operation_id="dataset", parameters=[SLUG], responses=answers.DatasetSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """A dataset: what it is, its version, its statistics and its measures."""
        page = pages.dataset_page(slug, BoardState())
        if page is None:
            raise Http404
        hidden_fields = {"pk", "current_version_id", "current_qrels_id", "part_of_id"}
        facts = {
            name: value
            for name, value in page.dataset.items()
            if name not in hidden_fields and "__" not in name
        }
        statistics = lists.statistics_of(page.dataset)._asdict()
        version = {
            name: page.dataset[f"current_version__{name}"]
            for name in ("number", "label", "content_sha256", "statistics")
            if name != "content_sha256" or page.dataset["current_version__content_sha256"]
        }
        return Response(
            {
                **facts,
                "version": version if page.dataset["current_version_id"] else None,
                "statistics": published_statistics(statistics, hidden=page.dataset["hidden"]),
                "entries": page.board.total,
                "awaiting_judgements": [run._asdict() for run in awaiting(page.dataset)],
                "rounds": [row.slug for row in announced([page.dataset["pk"]])],
                "withdrawn": [tombstone._asdict() for tombstone in page.tombstones],
                "quarantined": _quarantined(page.board),
                "benchmarks": lists.benchmarks_with(page.dataset["pk"]),
                "parts": [part.slug for part in page.parts],
                **_more(request, page.dataset),
            }
        )


def _quarantined(board: Board) -> list[dict[str, str]]:
    return [
        {"system": row.entry.system, "slug": row.entry.slug, "reason": row.entry.moderation_reason}
        for row in board.rows
        if row.ranked_in == QUARANTINED
    ]


def _more(request: Request, dataset: dict[str, Any]) -> dict[str, Any]:
    """What the page says beside: an example, how to load it, its judgements' versions, its neighbours."""
    more = details(dataset, [], site_address(request._request) + "/")
    return {
        "example": more.example._asdict() if more.example else None,
        "snippets": [snippet._asdict() for snippet in more.snippets],
        "judgements": [version._asdict() for version in more.judged],
        "part_of": more.group.slug if more.group else None,
        "nearest": [near._asdict() for near in more.neighbours],
    }


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
        try:
            page = pages.dataset_page(slug, _state(request).but(all_rows=True))
        except UnknownChoice as error:
            raise _refused(error) from error
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
        return Response({"benchmarks": lists.benchmarks()})


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
        try:
            page = pages.benchmark_page(slug, _state(request).but(all_rows=True))
        except UnknownChoice as error:
            raise _refused(error) from error
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
        results = [
            {
                **result._asdict(),
                "scores": dict([(result.measure, result.value), *result.scores]),
                "measured": [one.as_data() for one in result.measured],
                "deviations": dict(result.deviations),
                "certainty": result.certainty._asdict() if result.certainty else None,
                "seeds": [
                    {
                        "label": seed.label,
                        "scores": dict([(result.measure, seed.value), *seed.scores]),
                    }
                    for seed in result.seeds
                ],
            }
            for result in system_page.results_of(facts["pk"])
        ]
        shown = {
            name.replace("__", "_"): value for name, value in facts.items() if name not in ("pk", "shown")
        }
        quarantined = system_page.quarantined_of(facts["pk"])
        record = _record(facts["pk"])
        return Response({**shown, "results": results, "quarantined": quarantined, **record})


def _record(system_id: int) -> dict[str, Any]:
    """What is doubted of the system, and what it corrected."""
    return {
        "challenges": [challenge._asdict() for challenge in challenges_of(system_id)],
        "corrections": [correction.as_data() for correction in corrections_of(system_id)],
    }
