"""The read API: datasets and their files, benchmarks, systems, rounds, and boards in the view of a query string."""

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
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.state import FACETS, PARAMETERS, PRESETS, VIEWS, WEIGHED, BoardState
from leaderboard.boards.system import page as system_page
from leaderboard.boards.system.page import Result
from leaderboard.comparison.search import read_query, search
from leaderboard.core.cache.pages import PageVariant, cache_page, vary_on_site_address
from leaderboard.core.http.api_errors import ApiError, ErrorSerializer
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.permissions import has_agreement
from leaderboard.datasets import lists
from leaderboard.datasets.files import keeping_out, offered_files
from leaderboard.importing.benchmarks.catalogue import completeness
from leaderboard.models import Dataset, Round
from leaderboard.results.board_rows.entry_rows import QUARANTINED
from leaderboard.results.values import published_statistics
from leaderboard.rounds.lifecycle import (
    announced_rounds,
    count_runs,
    describe_round,
    listed_datasets,
    listed_rounds,
)
from leaderboard.systems.challenges import public_challenges
from leaderboard.systems.corrections import list_corrections
from leaderboard.systems.provenance import list_recipes
from leaderboard.views.board_views import REVISIONS, Kind, board_citation, site_revision
from leaderboard.views.boards import view_of_export
from leaderboard.views.datasets import visible_dataset
from leaderboard.views.home import view_of_search

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
    OpenApiParameter(
        "columns",
        str,
        many=True,
        description=f"Keys of columns, or one of {', '.join(PRESETS)}. Without it every column is given, "
        "whichever rows the view has.",
    ),
    OpenApiParameter("exact", bool, description="Of the page: an answer always has all published decimals."),
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

#: What the documentation says of both kinds of boards, with an example of a view.
_BOARD: dict[str, Any] = {
    "parameters": VIEW_PARAMETERS,
    "responses": BoardSerializer,
    "extensions": {"x-curl": "?measure=nDCG@10&architecture=dense"},
}


class DatasetsView(ReadView):
    """Every dataset."""

    @extend_schema(operation_id="datasets", responses=answers.DatasetListSerializer)
    def get(self, request: Request) -> Response:
        """Every dataset with its statistics."""
        rows = [
            {**row, "statistics": published_statistics(row["statistics"]._asdict(), hidden=row["hidden"])}
            for row in lists.datasets()
        ]
        return Response(answers.DatasetListSerializer({"datasets": rows}).data)


class DatasetView(ReadView):
    """One dataset."""

    @extend_schema(operation_id="dataset", parameters=[SLUG], responses=answers.DatasetSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """A dataset: what it is, its version, its statistics and its measures."""
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
        more = dataset_details(dataset, [], site_address(request._request) + "/")
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
            "example": more.example,
            "snippets": more.snippets,
            "judgements": more.judged,
            "part_of": more.group["slug"] if more.group else None,
            "nearest": more.neighbours,
            "remarks": page.remarks,
            "twin": page.twin and page.twin["slug"],
        }
        return Response(answers.DatasetSerializer(answer, context={"request": request}).data)


def _board(request: Request, kind: Kind, slug: str) -> Response:
    page = pages.READERS[kind](slug, BoardState.read(request.query_params).but(all_rows=True))
    if page is None:
        raise Http404
    cited = board_citation(request._request, kind, slug, page.board.title, page.at)
    return Response(exports.to_json(page.board, cited))


class DatasetBoardView(ReadView):
    """The board of one dataset."""

    @extend_schema(operation_id="dataset_board", **_BOARD)
    def get(self, request: Request, slug: str) -> Response:
        """The dataset's board in the view that the query string asks for, as on its page."""
        return _board(request, "dataset", slug)


class DatasetFilesView(ReadView):
    """The files that a dataset offers to whoever asks."""

    @extend_schema(
        parameters=[SLUG], responses={200: answers.FileSerializer(many=True), 403: ErrorSerializer}
    )
    def get(self, request: Request, slug: str) -> Response:
        """Queries, documents, ids, open judgements and example runs, as the dataset's settings allow."""
        dataset = visible_dataset(request, slug)
        if due := [each.problem() for each in keeping_out(dataset, request.user)]:
            raise ApiError(due[0].code, due[0].message, status_code=403, problems=due)
        files = [
            {"file": file, "path": reverse("dataset-file", args=[slug, file.name])}
            for file in offered_files(dataset, request.user)
        ]
        return Response(answers.FileSerializer(files, many=True, context={"request": request}).data)


@reads("q")
class SearchView(ReadView):
    """What the site has under some words."""

    @extend_schema(
        operation_id="search",
        parameters=[
            OpenApiParameter(
                "q", str, required=True, description="Words that a name has; 100 characters are read."
            )
        ],
        responses=answers.SearchSerializer,
        extensions={"x-curl": "?q=bm25"},
    )
    def get(self, request: Request) -> Response:
        """Datasets, benchmarks, systems, teams and authors with these words, at most eight of each."""
        query = read_query(request.query_params.get("q", ""))
        answer = {"query": query, "found": search(query)}
        return Response(answers.SearchSerializer(answer, context={"request": request}).data)


class BenchmarksView(ReadView):
    """Every benchmark."""

    @extend_schema(operation_id="benchmarks", responses=answers.BenchmarkListSerializer)
    def get(self, request: Request) -> Response:
        """Every benchmark."""
        found = [{**each, "completeness": completeness(each["slug"])} for each in lists.benchmarks()]
        return Response(answers.BenchmarkListSerializer({"benchmarks": found}).data)


class BenchmarkBoardView(ReadView):
    """The board of one benchmark."""

    @extend_schema(operation_id="benchmark_board", **_BOARD)
    def get(self, request: Request, slug: str) -> Response:
        """The benchmark's board in the view that the query string asks for, as on its page."""
        return _board(request, "benchmark", slug)


def _unless_token(
    variant: Callable[[HttpRequest], PageVariant | None],
) -> Callable[[HttpRequest], PageVariant | None]:
    """Return the same views, none for a request with a token, whose answer says whether the token works."""
    return lambda request: None if "Authorization" in request.headers else variant(request)


_cached_dataset = cache_page(REVISIONS["dataset"], _unless_token(view_of_export))
_cached_benchmark = cache_page(REVISIONS["benchmark"], _unless_token(view_of_export))
dataset_board = reads(*PARAMETERS)(_cached_dataset(DatasetBoardView.as_view()))
benchmark_board = reads(*PARAMETERS)(_cached_benchmark(BenchmarkBoardView.as_view()))
search_results = cache_page(site_revision, vary_on_site_address(_unless_token(view_of_search)))(
    SearchView.as_view()
)


def _system_facts(slug: str) -> dict[str, Any]:
    facts = system_page.system_facts(slug)
    if facts is None:
        raise Http404
    return facts


class SystemView(ReadView):
    """One system."""

    @extend_schema(operation_id="system", parameters=[SLUG], responses=answers.SystemSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """A system with all its public results."""
        facts = _system_facts(slug)
        key = facts["pk"]
        answer = {
            **{name.replace("__", "_"): value for name, value in facts.items()},
            "results": [_result(result) for result in system_page.system_results(key)],
            "quarantined": system_page.quarantined_results(key),
            "challenges": public_challenges(key),
            "corrections": list_corrections(key),
        }
        return Response(answers.SystemSerializer(answer).data)


class RecipesView(ReadView):
    """How a system's results are made again."""

    @extend_schema(operation_id="recipes", parameters=[SLUG], responses=answers.RecipeSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """For each public result what made it of what, or why nobody else can make it again."""
        recipes = list_recipes(_system_facts(slug)["pk"])
        return Response(answers.RecipeSerializer(recipes, many=True).data)


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


class RoundSerializer(Answer):
    """A round. All times are UTC."""

    slug = text_field()
    name = text_field()
    phase = serializers.ChoiceField(choices=["before opening", "open", "closed", "revealed"])
    next = text_field("What happens next, and in how long, in words.")
    dataset = text_field("Slug; null for a round of a benchmark.", allow_null=True)
    benchmark = text_field("Slug; null for a round of one dataset.", allow_null=True)
    datasets = texts("All that it takes runs for.")
    opens_at = serializers.DateTimeField()
    closes_at = serializers.DateTimeField()
    reveals_at = serializers.DateTimeField(help_text="From then on its curator may reveal the results.")
    revealed_at = serializers.DateTimeField(allow_null=True)
    runs_per_team = integer_field()
    visible_per_team = integer_field("Of a competition: results of a team on the board.")
    takes_late = flag_field()
    per_topic_at_reveal = flag_field()
    runs = integer_field("Submissions that came in time and passed.")
    teams = integer_field()
    late = integer_field("Submissions that came late.")
    description = text_field("The rules, as Markdown.")
    url = AddressField()


class RoundListSerializer(Answer):
    """Every round."""

    rounds = RoundSerializer(many=True)


def _round_answers(rows: Iterable[Round], request: Request) -> list[dict[str, Any]]:
    came, now = count_runs(rows), timezone.now()
    answers = [
        {
            **vars(row),
            **asdict(came[row.pk]),
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
    """Every round."""

    @extend_schema(operation_id="rounds", responses=RoundListSerializer)
    def get(self, request: Request) -> Response:
        """Every round with its phase, the latest to open first."""
        return Response({"rounds": _round_answers(listed_rounds(), request)})


class RoundView(ReadView):
    """One round."""

    @extend_schema(
        operation_id="round",
        parameters=[OpenApiParameter("slug", str, OpenApiParameter.PATH, description="As in its address.")],
        responses=RoundSerializer,
    )
    def get(self, request: Request, slug: str) -> Response:
        """A round: its phase and times, what it asks, and how many runs have come."""
        rows = _round_answers(listed_rounds().filter(slug=slug), request)
        if not rows:
            raise Http404
        return Response(rows[0])
