"""How hard each query of a dataset with open judgements is: what the systems on the board reach on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.comparison.queries.collection import OpenCollection, open_collection
from leaderboard.comparison.queries.difficulty import Difficulty, difficulty
from leaderboard.core.measures import better
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Cell, Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import BLUE, INK, ORANGE

#: So many queries are drawn and told; of more, evenly spaced ones by difficulty.
MOST_QUERIES = 500


def has_open_judgements(dataset: Mapping[str, Any]) -> bool:
    """Whether a dataset's judgements are everyone's."""
    return not dataset["hidden"] and bool(dataset["current_qrels_id"])


def build(request: FigureRequest) -> Plot:
    """Queries from the hardest to the easiest: the mean, the range over systems, and the baseline's own value."""
    page = request.dataset_page
    name, measure = page.dataset["name"], page.board.measure
    collection = open_collection(request.dataset)
    if collection is None:
        return Plot.empty(f"The judgements of {name} are not open: nothing is shown query by query.")
    queries = len(collection.judgements.query_ids)
    found = difficulty(collection.dataset, measure, queries)
    if found is None:
        return Plot.empty(f"No system has values of {measure} for the queries of {name} yet.")
    order = _order(found, collection, measure)
    places = np.unique(np.linspace(0, queries - 1, min(queries, MOST_QUERIES)).round().astype(int))
    rows = order[places]
    left_out = f"{len(rows):,} of {queries:,} queries, evenly spaced from the hardest to the easiest."
    return Plot(
        data=_traces(
            found,
            rows,
            places + 1,
            [collection.judgements.query_ids[row] for row in rows],
            page.board.baseline,
        ),
        layout=go.Layout(
            height=400,
            xaxis={"title_text": "queries, the hardest first", "range": [0.5, queries + 0.5]},
            yaxis={"title_text": measure, "rangemode": "tozero"},
            hovermode="closest",
        ),
        table=_table(found, rows, places + 1, collection, page.board.baseline),
        caption=f"{measure} of each judged query of {name} over {found.systems} "
        f"{'system' if found.systems == 1 else 'systems'}: the mean, from the lowest to the highest as a band, and "
        f"{page.board.baseline} as points. The same systems throughout, whichever the board’s filters leave.",
        subtitle=f"{name}, {measure}",
        notes=[left_out] if len(rows) < queries else [],
    )


def _order(found: Difficulty, collection: OpenCollection, measure: str) -> NDArray[np.intp]:
    """The queries from the hardest; of equally hard ones in the order in which people count them."""
    counted = np.empty(len(found.mean), np.int64)
    counted[list(collection.order)] = np.arange(len(found.mean))
    sign = -1.0 if better(measure) == "lower" else 1.0
    return np.lexsort((counted, sign * found.highest, sign * found.mean))


def _traces(
    found: Difficulty, rows: NDArray[np.intp], places: NDArray[np.int_], names: list[str], baseline: str
) -> list[go.Scatter]:
    across = places.tolist()
    lowest, highest = found.lowest[rows], found.highest[rows]
    band = go.Scatter(
        mode="lines",
        name="lowest to highest",
        x=[*across, *reversed(across)],
        y=[*highest.tolist(), *reversed(lowest.tolist())],
        fill="toself",
        fillcolor=BLUE,
        opacity=0.22,
        line={"width": 0, "color": BLUE},
        hoverinfo="skip",
    )
    mean = go.Scatter(
        mode="lines",
        name="mean",
        x=across,
        y=found.mean[rows].tolist(),
        customdata=names,
        line={"color": INK, "width": 2},
        hovertemplate="query %{customdata}<br>mean %{y:.3f}<extra></extra>",
    )
    traces = [band, mean] if found.systems > 1 else [mean]
    if found.baseline is not None and found.systems > 1:
        traces.append(
            go.Scatter(
                mode="markers",
                name=baseline,
                x=across,
                y=found.baseline[rows].tolist(),
                customdata=names,
                marker={"color": ORANGE, "size": 4, "symbol": "diamond"},
                hovertemplate="query %{customdata}<br>%{fullData.name} %{y:.3f}<extra></extra>",
            )
        )
    return traces


def _table(
    found: Difficulty,
    rows: NDArray[np.intp],
    places: NDArray[np.int_],
    collection: OpenCollection,
    baseline: str,
) -> Table:
    heads: list[str] = ["", "Query", "Mean", "Deviation", "Lowest", "Highest"]
    columns = [found.mean, found.deviation, found.lowest, found.highest]
    if found.baseline is not None:
        heads.append(baseline)
        columns.append(found.baseline)
    lines: list[tuple[Cell, ...]] = [
        (int(place), collection.judgements.query_ids[row], *(float(column[row]) for column in columns))
        for place, row in zip(places.tolist(), rows.tolist(), strict=True)
    ]
    heads[0] = "Place"
    return Table(heads, lines, (",d", "", *(".4f" for _ in columns)))


FIGURES = (
    Figure(
        slug="difficulty",
        title="Difficulty of queries",
        caption="What the systems on a board reach on each query, from the hardest query to the easiest.",
        subjects=("dataset",),
        build=build,
        fits=has_open_judgements,
    ),
)
