"""Template tags for figures, such as `{% figure "wins" benchmark=benchmark.slug %}`. See `leaderboard.figures`."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import QueryDict

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
    """Render the frame of a figure in the page's view.

    Raises KeyError for an unknown figure and, with `table`, exceptions of building it.

    Args:
        context: Context of the page.
        slug: Slug of the figure.
        benchmark: Slug of its benchmark.
        dataset: Slug of its dataset.
        system: Slug or slugs of its systems.
        table: Whether to build the figure immediately, so that the page contains its table.
        level: Level of its heading.
    """
    definition = FIGURES[slug]
    parameters = [("benchmark", benchmark), ("dataset", dataset)]
    parameters += [("system", name) for name in ([system] if isinstance(system, str) else system)]
    own_query = urlencode([pair for pair in parameters if pair[1]])
    state = context.get("state")
    view = state.query_string()[1:] if isinstance(state, BoardState) else ""
    query = "?" + "&".join(part for part in (own_query, view) if part)
    figure_request = FigureRequest(definition, QueryDict(query[1:])) if table else None
    baseline = getattr(context.get("board"), "baseline", "") or str(context.get("baseline", ""))
    # On boards a script adds the page's view, which htmx changes; other pages may have parameters of their
    # own.
    data_query = own_query if "board" in context else query[1:]
    return frame(definition, data_query, query, figure_request.plot() if figure_request else None, level, baseline)


def frame(
    figure: Figure, data_query: str, query: str, plot: Plot | None, level: int, baseline: str = ""
) -> dict[str, Any]:
    """Return the context of `leaderboard/_figure.html`; without `plot`, the frame has the figure's general caption.

    `data_query` is the query string of the figure's data, and `query` that of its page.
    """
    address = f"/figures/{figure.slug}.json"
    query_values = QueryDict(query[1:] if figure.choices else "")
    return {
        "figure": figure,
        "title": figure.get_title(plot.baseline if plot else baseline),
        "plot": plot,
        "caption": (plot and plot.full_caption) or figure.caption,
        "notes": plot.notes if plot else (),
        "level": level,
        "data_url": f"{address}?{data_query}" if data_query else address,
        "json_url": address + query.removesuffix("?"),
        "page_url": f"/figures/{figure.slug}/{query.removesuffix('?')}",
        "carried": [
            (name, value) for name in query_values for value in query_values.getlist(name) if name not in figure.choices
        ],
        "choices": [
            (name, label, values, query_values.get(name, "")) for name, (label, values) in figure.choices.items()
        ],
    }


@register.inclusion_tag("leaderboard/_figure.html")
def figure_page(figure_request: FigureRequest, plot: Plot) -> dict[str, Any]:
    """Render the figure of its own page, with its table; its choices are in the form of the page."""
    query = figure_request.query_string()
    context = frame(figure_request.figure, query[1:], query, plot, 2)
    return {**context, "choices": [], "page_url": ""}


@register.inclusion_tag("leaderboard/_figure_assets.html")
def figure_assets() -> dict[str, Any]:
    """Render the style sheet and script of figures, once per page."""
    return {}


@register.simple_tag(takes_context=True)
def figures_on(context: template.Context, subject: Subject, dataset: Mapping[str, Any] | str = "") -> dict[str, Any]:
    """Return the `shown` figures of a page about a subject, and those `omitted` with the reasons.

    Filtered views show all figures, because the user may change the view without reloading the page.
    """
    facts = dataset if isinstance(dataset, Mapping) else None
    board, state, candidates = context["board"], context["state"], figures_about(subject, facts)
    if state.filtered or state.hidden or state.columns or state.measure or board.pages > 1:
        return {"shown": candidates}
    datasets = counted_datasets(context["members"]) if facts is None else [facts["pk"]]
    reasons = [(figure, figure.omission_reason(facts, board, datasets)) for figure in figures_about(subject)]
    shown = [figure for figure, reason in reasons if not reason]
    return {"shown": shown, "omitted": [(figure, reason) for figure, reason in reasons if reason]}
