"""Pages and data of figures."""

from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.datasets import lists
from leaderboard.figures.model import (
    FigureRequest,
    SubjectNotFound,
    benchmarks_with_figure,
    datasets_with_figure,
    figure_parameters,
)
from leaderboard.figures.registry import FIGURES
from leaderboard.models import Benchmark, Dataset
from leaderboard.views.board_views import site_revision


def _variant(request: HttpRequest) -> PageVariant | None:
    """Return the view of a figure for the page cache, or None for searches and unknown figures."""
    figure = FIGURES.get(request.path.removesuffix("/").removesuffix(".json").rpartition("/")[2])
    if figure is None:
        return None
    try:
        figure_request = FigureRequest(figure, request.GET)
    except SubjectNotFound:
        return None
    is_common = figure_request.state.is_common and not figure_request.systems
    return None if figure_request.state.text else PageVariant(figure_request.query_string(), is_common)


def _figure_view(view: Callable[[HttpRequest, FigureRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Return a view of a figure, which responds 404 for unknown figures and subjects."""

    @require_safe
    @cache_page(site_revision, _variant)
    @reads(lambda slug: figure_parameters(FIGURES[slug]) if slug in FIGURES else [])
    @wraps(view)
    def answer(request: HttpRequest, slug: str) -> HttpResponse:
        if slug not in FIGURES:
            raise Http404
        try:
            return view(request, FigureRequest(FIGURES[slug], request.GET))
        except SubjectNotFound:
            raise Http404 from None

    return answer


@_figure_view
def figure_json(request: HttpRequest, figure_request: FigureRequest) -> HttpResponse:
    """Return a figure as plotly data and layout, with caption and table."""
    return JsonResponse(figure_request.figure.as_data(figure_request.plot()))


@_figure_view
def figure(request: HttpRequest, figure_request: FigureRequest) -> HttpResponse:
    """Show a figure with its table and choices."""
    plot, (board_name, board_url) = figure_request.plot(), _board_link(figure_request)
    context = {
        "section": "leaderboards",
        "figure": figure_request.figure,
        "asked": figure_request,
        "plot": plot,
        "benchmarks": benchmarks_with_figure(figure_request.figure),
        "datasets": datasets_with_figure(figure_request.figure),
        "choices": [
            (name, label, values, plot.chosen.get(name, figure_request.choice(name)))
            for name, (label, values) in figure_request.figure.choices.items()
        ],
        # The view, which the form keeps.
        "carried": [*(("system", slug) for slug in figure_request.systems), *figure_request.state.pairs()],
        "board_name": board_name,
        "board_url": board_url,
    }
    return render(request, "leaderboard/figure.html", context)


def _board_link(figure_request: FigureRequest) -> tuple[str, str]:
    """Return name and URL of the figure's board in the same view, in one query; empty if the figure has no board.

    Raises SubjectNotFound if the board does not exist.
    """
    dataset, benchmark = figure_request.dataset, figure_request.benchmark
    if not dataset and not benchmark:
        return "", ""
    kind, slug = ("dataset", dataset) if dataset else ("benchmark", benchmark)
    boards = Dataset.objects.listed() if dataset else Benchmark.objects
    name = boards.filter(slug=slug).values_list("name", flat=True).first()
    if name is None:
        raise SubjectNotFound
    return name, reverse(kind, args=[slug]) + figure_request.state.query_string()


@require_safe
@cache_page(site_revision)
def figures(request: HttpRequest) -> HttpResponse:
    """List all figures with explanations."""
    return render(
        request,
        "leaderboard/figures.html",
        {"section": "docs", "figures": list(FIGURES.values()), "benchmarks": lists.benchmarks()},
    )
