"""Figures: their data, a page for each, and one that explains them all."""

from functools import wraps
from typing import Any, ParamSpec

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard.core.cache.pages import PageVariant, View, cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.datasets import lists
from leaderboard.figures.model import (
    FigureRequest,
    SubjectNotFound,
    benchmarks_for,
    datasets_for,
    figure_parameters,
)
from leaderboard.figures.registry import FIGURES
from leaderboard.models import Benchmark, Dataset
from leaderboard.views.board_views import site_revision

P = ParamSpec("P")


def _variant(request: HttpRequest) -> PageVariant | None:
    """Return the view of a figure for the page cache, or None for searches."""
    figure = FIGURES.get(request.path.removesuffix("/").removesuffix(".json").rpartition("/")[2])
    if figure is None:
        return None
    try:
        figure_request = FigureRequest(figure, request.GET)
    except SubjectNotFound:
        return None
    common = figure_request.state.is_common and not figure_request.systems
    return None if figure_request.state.text else PageVariant(figure_request.query_string(), common)


def _parameters(slug: str) -> list[str]:
    figure = FIGURES.get(slug)
    return figure_parameters(figure) if figure else []


def _answering(view: View[P]) -> View[P]:
    """Answer 404 for a figure of a board that does not exist."""

    @reads(_parameters)
    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except SubjectNotFound:
            raise Http404 from None

    return answer


def _figure_request(request: HttpRequest, slug: str) -> FigureRequest:
    if slug not in FIGURES:
        raise Http404
    return FigureRequest(FIGURES[slug], request.GET)


@require_safe
@cache_page(site_revision, _variant)
@_answering
def figure_json(request: HttpRequest, slug: str) -> HttpResponse:
    """A figure as plotly's data and layout, with its caption and its table."""
    figure_request = _figure_request(request, slug)
    return JsonResponse(figure_request.figure.as_data(figure_request.plot()))


@require_safe
@cache_page(site_revision, _variant)
@_answering
def figure(request: HttpRequest, slug: str) -> HttpResponse:
    """A page for one figure: the picture, its table, and what may be chosen."""
    figure_request = _figure_request(request, slug)
    return render(
        request,
        "leaderboard/figure.html",
        {
            "section": "figures",
            "figure": figure_request.figure,
            "asked": figure_request,
            **_form(figure_request),
            "board_url": _board(figure_request),
        },
    )


def _form(figure_request: FigureRequest) -> dict[str, Any]:
    """What the page's form offers: pages that the figure can be about, its own choices, and the view it keeps."""
    choices = figure_request.figure.choices
    return {
        "benchmarks": benchmarks_for(figure_request.figure),
        "datasets": datasets_for(figure_request.figure),
        "choices": [
            (name, label, values, figure_request.choice(name)) for name, (label, values) in choices.items()
        ],
        "carried": [*(("system", slug) for slug in figure_request.systems), *figure_request.state.pairs()],
    }


def _board(figure_request: FigureRequest) -> str:
    """The board that the figure is made from, in the same view. Raises SubjectNotFound. One query."""
    if figure_request.dataset:
        kind, slug = "dataset", figure_request.dataset
        there = Dataset.objects.listed().filter(slug=slug).exists()
    elif figure_request.benchmark:
        kind, slug = "benchmark", figure_request.benchmark
        there = Benchmark.objects.filter(slug=slug).exists()
    else:
        return ""
    if not there:
        raise SubjectNotFound
    return reverse(kind, args=[slug]) + figure_request.state.query_string()


@require_safe
@cache_page(site_revision)
def figures(request: HttpRequest) -> HttpResponse:
    """What each figure shows, and where it is."""
    return render(
        request,
        "leaderboard/figures.html",
        {"section": "figures", "figures": list(FIGURES.values()), "benchmarks": lists.benchmarks()},
    )
