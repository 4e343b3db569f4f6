"""Read API of datasets and their files, benchmarks, systems, rounds, and boards with view parameters."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from leaderboard.api import answers
from leaderboard.api.board_answers import BoardSerializer
from leaderboard.api.fields import (
    AddressField,
    Answer,
    ReadView,
    flag_field,
    integer_field,
    text_field,
    texts,
)
from leaderboard.boards import exports, pages
from leaderboard.boards.dataset_details import awaiting_runs, dataset_details
from leaderboard.boards.facets import DATASET_FACETS
from leaderboard.boards.state import FACETS, PARAMETERS, PRESETS, VIEWS, WEIGHT_NAMES, BoardState
from leaderboard.boards.system import page as system_page
from leaderboard.comparison.search import read_query, search
from leaderboard.core.cache.pages import PageVariant, cache_page, vary_on_site_address
from leaderboard.core.http.api_errors import ApiError, ErrorSerializer
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.permissions import has_agreement
from leaderboard.datasets import lists
from leaderboard.datasets.files import blocking_agreements, offered_files
from leaderboard.importing.benchmarks.catalogue import completeness
from leaderboard.models import Dataset, Round
from leaderboard.results.board_rows.entry_rows import QUARANTINED
from leaderboard.results.values import published_statistics
from leaderboard.rounds.lifecycle import (
    announced_rounds,
    count_runs,
    describe_round,
    listed_datasets,
)
from leaderboard.systems.challenges import public_challenges
from leaderboard.systems.corrections import list_corrections
from leaderboard.systems.provenance import list_recipes
from leaderboard.views.board_views import REVISIONS, Kind, board_citation, site_revision
from leaderboard.views.boards import export_variant
from leaderboard.views.datasets import visible_dataset
from leaderboard.views.home import search_variant

#: Path parameter that identifies a dataset, benchmark or system.
SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="Slug in the URL of its page.")
VIEW_PARAMETERS = [
    SLUG,
    OpenApiParameter("measure", str, description="Selected measure, which determines differences and ranks."),
    OpenApiParameter(
        "slice",
        str,
        description="Slice of the queries, one of `slice_choices`, for example `length:short`. Only for datasets with "
        "open judgments.",
    ),
    OpenApiParameter("view", str, enum=VIEWS, description="Values in the dataset cells of a benchmark."),
    OpenApiParameter(
        "sort",
        str,
        many=True,
        description="Key of a column to sort by, `key:asc` or `key:desc`; further ones break ties. "
        "Missing values always come last.",
    ),
    *(
        OpenApiParameter(
            name,
            str,
            enum=facet or None,
            many=True,
            description=f"Only {'datasets' if name in DATASET_FACETS else 'rows'} with these values.",
        )
        for name, facet in FACETS.items()
    ),
    OpenApiParameter(
        "min-mean",
        float,
        description="Inclusive bound. Every numeric column has the parameters `min-KEY` and `max-KEY`.",
    ),
    OpenApiParameter("zero-shot", bool, description="`1` to show only zero-shot results."),
    OpenApiParameter("cpu-only", bool, description="`1` to show only rows measured on hardware without a GPU."),
    OpenApiParameter("corpus", int, description="Number of documents for which to estimate the index size."),
    OpenApiParameter("hide", str, many=True, description="Groups of columns to omit."),
    OpenApiParameter(
        "columns",
        str,
        many=True,
        description=f"Keys of columns, or one of {', '.join(PRESETS)}. Default: all columns, "
        "independent of the view's rows.",
    ),
    OpenApiParameter("exact", bool, description="Pages only: responses always have all published decimals."),
    OpenApiParameter("pin", str, many=True, description="Slugs of systems to show at the top."),
    *(OpenApiParameter(f"weight-{name}", float, description="Weight in the weighted score.") for name in WEIGHT_NAMES),
    OpenApiParameter("rows", str, enum=["all"], description="Pages only: responses always have all rows."),
    OpenApiParameter("page", int, description="Pages only: responses always have all rows."),
    OpenApiParameter("q", str, description="Text in the name of a system, team or source."),
    OpenApiParameter(
        "hardware", str, description="Hardware class of the measurements to show, one of `hardware_choices`."
    ),
]

#: Documentation of both kinds of boards, with an example of a view.
_BOARD: dict[str, Any] = {
    "parameters": VIEW_PARAMETERS,
    "responses": BoardSerializer,
    "extensions": {"x-curl": "?measure=nDCG@10&architecture=dense"},
}


class DatasetsView(ReadView):
    """View of all datasets."""

    @extend_schema(operation_id="datasets", responses=answers.DatasetListSerializer)
    def get(self, request: Request) -> Response:
        """List all datasets with their statistics."""
        rows = [
            {**row, "statistics": published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])}
            for row in lists.datasets()
        ]
        return Response(answers.DatasetListSerializer({"datasets": rows}).data)


class DatasetView(ReadView):
    """View of a dataset."""

    @extend_schema(operation_id="dataset", parameters=[SLUG], responses=answers.DatasetSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Get a dataset with its description, version, statistics and measures."""
        page = pages.dataset_page(slug, BoardState())
        if page is None:
            raise Http404
        dataset = page.dataset
        statistics = lists.get_statistics(dataset)._asdict()
        version = {
            name: dataset[f"current_version__{name}"]
            for name in ("number", "label", "content_sha256", "statistics")
            if name != "content_sha256" or dataset["current_version__content_sha256"]
        }
        details = dataset_details(dataset, [], site_address(request._request) + "/")
        row = Dataset(pk=dataset["pk"], queries_visibility=dataset["queries_visibility"])
        answer = {
            **dataset,
            "version": version if dataset["current_version_id"] else None,
            "statistics": published_statistics(statistics, hidden=dataset["hidden"]),
            "number": page.board.total,
            "awaiting_judgements": awaiting_runs(dataset),
            "agreement": reverse("dataset-agreement", args=[slug]) if has_agreement(row) else None,
            "rounds": [row.slug for row in announced_rounds([dataset["pk"]])],
            "withdrawn": page.tombstones,
            "quarantined": [row.entry for row in page.board.rows if row.ranked_in == QUARANTINED],
            "benchmarks": lists.benchmarks_with(dataset["pk"]),
            "parts": [part.slug for part in page.parts],
            "example": details.example,
            "snippets": details.snippets,
            "judgements": details.judged,
            "part_of": details.group["slug"] if details.group else None,
            "nearest": details.neighbours,
            "remarks": page.remarks,
            "twin": page.twin and page.twin["slug"],
        }
        return Response(answers.DatasetSerializer(answer, context={"request": request}).data)


def _board(request: Request, kind: Kind, slug: str) -> Response:
    """Return all rows of a board, in the view of the query string. Raises Http404 if there is no such board."""
    page = pages.READERS[kind](slug, BoardState.from_parameters(request.query_params).with_values(all_rows=True))
    if page is None:
        raise Http404
    citation = board_citation(request._request, kind, slug, page.board.title, page.at)
    return Response(exports.to_json(page.board, citation))


class DatasetBoardView(ReadView):
    """View of a dataset's board."""

    @extend_schema(operation_id="dataset_board", **_BOARD)
    def get(self, request: Request, slug: str) -> Response:
        """Get a dataset's board in the view of the query string, as on its page."""
        return _board(request, "dataset", slug)


class DatasetFilesView(ReadView):
    """View of the files that a dataset offers."""

    @extend_schema(parameters=[SLUG], responses={200: answers.FileSerializer(many=True), 403: ErrorSerializer})
    def get(self, request: Request, slug: str) -> Response:
        """List the queries, documents, ids, open judgments and example runs that the dataset's settings allow."""
        dataset = visible_dataset(request, slug)
        if problems := [agreement.problem() for agreement in blocking_agreements(dataset, request.user)]:
            raise ApiError(problems[0].code, problems[0].message, status_code=403, problems=problems)
        files = [
            {"file": file, "path": reverse("dataset-file", args=[slug, file.name])}
            for file in offered_files(dataset, request.user)
        ]
        return Response(answers.FileSerializer(files, many=True, context={"request": request}).data)


@reads("q")
class SearchView(ReadView):
    """View of search results."""

    @extend_schema(
        operation_id="search",
        parameters=[
            OpenApiParameter(
                "q",
                str,
                required=True,
                description="Words to search; only the first 100 characters are used.",
            )
        ],
        responses=answers.SearchSerializer,
        extensions={"x-curl": "?q=bm25"},
    )
    def get(self, request: Request) -> Response:
        """Search boards, systems, people, rounds, measures, and documentation, with up to eight results per kind."""
        query = read_query(request.query_params.get("q", ""))
        answer = {"query": query, "found": search(query)}
        return Response(answers.SearchSerializer(answer, context={"request": request}).data)


class BenchmarksView(ReadView):
    """View of all benchmarks."""

    @extend_schema(operation_id="benchmarks", responses=answers.BenchmarkListSerializer)
    def get(self, request: Request) -> Response:
        """List all benchmarks."""
        benchmarks = [{**row, "completeness": completeness(row["slug"])} for row in lists.benchmarks()]
        return Response(answers.BenchmarkListSerializer({"benchmarks": benchmarks}).data)


class BenchmarkBoardView(ReadView):
    """View of a benchmark's board."""

    @extend_schema(operation_id="benchmark_board", **_BOARD)
    def get(self, request: Request, slug: str) -> Response:
        """Get a benchmark's board in the view of the query string, as on its page."""
        return _board(request, "benchmark", slug)


def _unless_token(
    variant: Callable[[HttpRequest], PageVariant | None],
) -> Callable[[HttpRequest], PageVariant | None]:
    """Return a variant that is None for requests with a token, because their response depends on its validity."""
    return lambda request: None if "Authorization" in request.headers else variant(request)


_cached_dataset = cache_page(REVISIONS["dataset"], _unless_token(export_variant))
_cached_benchmark = cache_page(REVISIONS["benchmark"], _unless_token(export_variant))
dataset_board = reads(*PARAMETERS)(_cached_dataset(DatasetBoardView.as_view()))
benchmark_board = reads(*PARAMETERS)(_cached_benchmark(BenchmarkBoardView.as_view()))
search_results = cache_page(site_revision, vary_on_site_address(_unless_token(search_variant)))(SearchView.as_view())


def _system_facts(slug: str) -> dict[str, Any]:
    facts = system_page.system_facts(slug)
    if facts is None:
        raise Http404
    return facts


class SystemView(ReadView):
    """View of a system."""

    @extend_schema(operation_id="system", parameters=[SLUG], responses=answers.SystemSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Get a system with all its public results."""
        facts = _system_facts(slug)
        key = facts["pk"]
        results = [
            {
                **result._asdict(),
                "scores": {result.measure: result.value, **dict(result.scores)},
                "measured": [cost.as_data() for cost in result.measured],
                "seeds": [
                    {"label": seed.label, "scores": {result.measure: seed.value, **dict(seed.scores)}}
                    for seed in result.seeds
                ],
            }
            for result in system_page.system_results(key)
        ]
        answer = {
            **{name.replace("__", "_"): value for name, value in facts.items()},
            "results": results,
            "quarantined": system_page.quarantined_results(key),
            "challenges": public_challenges(key),
            "corrections": list_corrections(key),
        }
        return Response(answers.SystemSerializer(answer).data)


class RecipesView(ReadView):
    """View of the recipes of a system's results."""

    @extend_schema(operation_id="recipes", parameters=[SLUG], responses=answers.RecipeSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """Get the recipe of each public result, or the reason why others cannot reproduce it."""
        recipes = list_recipes(_system_facts(slug)["pk"])
        return Response(answers.RecipeSerializer(recipes, many=True).data)


class RoundSerializer(Answer):
    """A round. All times are in UTC."""

    slug = text_field()
    name = text_field()
    phase = serializers.ChoiceField(choices=["before opening", "open", "closed", "revealed"])
    next = text_field("Description of the next event and the time until then.")
    dataset = text_field("Slug; null for a round of a benchmark.", allow_null=True)
    benchmark = text_field("Slug; null for a round of one dataset.", allow_null=True)
    datasets = texts("Slugs of all datasets for which it accepts runs.")
    opens_at = serializers.DateTimeField()
    closes_at = serializers.DateTimeField()
    reveals_at = serializers.DateTimeField(help_text="Earliest time at which a curator may reveal the results.")
    revealed_at = serializers.DateTimeField(allow_null=True)
    runs_per_team = integer_field()
    visible_per_team = integer_field("Number of results per team on the board of a competition.")
    takes_late = flag_field()
    per_topic_at_reveal = flag_field()
    runs = integer_field("Number of valid submissions in time.")
    teams = integer_field()
    late = integer_field("Number of late submissions.")
    description = text_field("Rules in Markdown.")
    url = AddressField()


class RoundListSerializer(Answer):
    """All rounds."""

    rounds = RoundSerializer(many=True)


def _round_answers(rows: Iterable[Round], request: Request) -> list[dict[str, Any]]:
    """Return the rounds as API data, with their phases and numbers of runs."""
    counts, now = count_runs(rows), timezone.now()
    answers = [
        {
            **vars(row),
            **asdict(counts[row.pk]),
            "phase": description.phase.value,
            "next": description.next,
            "dataset": row.dataset.slug if row.dataset else None,
            "benchmark": row.benchmark.slug if row.benchmark else None,
            "datasets": [dataset.slug for dataset in listed_datasets(row)],
            "url": row.get_absolute_url(),
        }
        for row in rows
        for description in [describe_round(row, now)]
    ]
    return list(RoundSerializer(answers, many=True, context={"request": request}).data)


class RoundsView(ReadView):
    """View of all rounds."""

    @extend_schema(operation_id="rounds", responses=RoundListSerializer)
    def get(self, request: Request) -> Response:
        """List all rounds with their phases, ordered by opening time, latest first."""
        return Response({"rounds": _round_answers(Round.objects.listed(), request)})


class RoundView(ReadView):
    """View of a round."""

    @extend_schema(operation_id="round", parameters=[SLUG], responses=RoundSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Get a round with its phase, times, rules, and number of runs."""
        rows = _round_answers(Round.objects.listed().filter(slug=slug), request)
        if not rows:
            raise Http404
        return Response(rows[0])
