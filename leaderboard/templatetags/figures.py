"""Frames of figures in templates: `{% figure "wins" benchmark=benchmark.slug %}`. See `leaderboard.figures`."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import QueryDict
from django.urls import reverse

from leaderboard.boards.state import BoardState
from leaderboard.figures.drawing import counted_datasets
from leaderboard.figures.model import Figure, FigureRequest, Plot, Subject
from leaderboard.figures.registry import FIGURES, figures_about

register = template.Library()


@register.inclusion_tag("leaderboard/_figure.html", takes_context=True)
def figure(
    context: template.Context,
    slug: str,
    *,
    benchmark: str = "",
    dataset: str = "",
    system: str | Iterable[str] = (),
    table: bool = False,
    level: int = 3,
) -> dict[str, Any]:
    """The frame of a figure in the page's view; `table` builds it at once, so that the page has its table.

    `level` is that of its heading. Raises KeyError for a figure that there is not; with `table` what `build` raises.
    """
    found = FIGURES[slug]
    own = [("benchmark", benchmark), ("dataset", dataset)]
    own += [("system", name) for name in ([system] if isinstance(system, str) else system)]
    own_query = urlencode([pair for pair in own if pair[1]])
    state = context.get("state")
    view = state.query_string()[1:] if isinstance(state, BoardState) else ""
    query = "?" + "&".join(part for part in (own_query, view) if part)
    asked = FigureRequest(found, QueryDict(query[1:])) if table else None
    baseline = getattr(context.get("board"), "baseline", "") or str(context.get("baseline", ""))
    # On a board the script adds the page's view, which htmx changes; other pages may have parameters of their own.
    data_query = own_query if "board" in context else query[1:]
    return frame(found, data_query, query, asked.plot() if asked else None, level, baseline)


def frame(
    found: Figure, data_query: str, query: str, plot: Plot | None, level: int, baseline: str = ""
) -> dict[str, Any]:
    """Return the context of `leaderboard/_figure.html`. `data_query` is the query string for the figure's data."""
    address = reverse("figure_json", args=[found.slug])
    chosen = QueryDict(query[1:] if found.choices else "")
    return {
        "figure": found,
        "title": found.get_title(plot.baseline if plot else baseline),
        "plot": plot,
        "caption": (plot and plot.caption) or found.caption,
        "notes": plot.notes if plot else (),
        "level": level,
        "data_url": f"{address}?{data_query}" if data_query else address,
        "json_url": address + query.removesuffix("?"),
        "page_url": reverse("figure", args=[found.slug]) + query.removesuffix("?"),
        "carried": [
            (name, value) for name in chosen for value in chosen.getlist(name) if name not in found.choices
        ],
        "choices": [
            (name, label, values, chosen.get(name, "")) for name, (label, values) in found.choices.items()
        ],
    }


@register.inclusion_tag("leaderboard/_figure.html")
def figure_page(asked: FigureRequest) -> dict[str, Any]:
    """The figure of a page that is about it alone, with its table; the page's own form has its choices."""
    query = asked.query_string()
    shown = frame(asked.figure, query[1:], query, asked.plot(), 2)
    return {**shown, "choices": [], "page_url": ""}


@register.inclusion_tag("leaderboard/_figure_assets.html")
def figure_assets() -> dict[str, Any]:
    """The style sheet and the script that frames need, once a page."""
    return {}


@register.simple_tag(takes_context=True)
def figures_on(
    context: template.Context, subject: Subject, dataset: Mapping[str, Any] | str = ""
) -> list[Figure]:
    """The figures that a page of this kind shows: of a dataset's page those that fit it, and what its board can draw.

    A view that leaves out rows or columns decides nothing: the page may be led to another without being built anew.
    """
    about = figures_about(subject, dataset if isinstance(dataset, Mapping) else None)
    board, state = context["board"], context["state"]
    if state.filtered or state.hidden or state.columns or state.measure or board.pages > 1:
        return about
    datasets = [dataset["pk"]] if isinstance(dataset, Mapping) else counted_datasets(context["members"])
    return [figure for figure in about if figure.drawable(board) and figure.has_data(board, datasets)]
