"""Figures by query of open judgements: difficulty, two systems compared, and a run beside its round's median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.comparison.pairs import by_query
from leaderboard.comparison.queries.collection import (
    QUANTILES,
    Difficulty,
    OpenCollection,
    difficulty,
    open_collection,
)
from leaderboard.core.measures import better
from leaderboard.figures.drawing import BETTER, BLUE, INK, ORANGE, WORSE, area_trace, go, line_trace
from leaderboard.figures.model import Figure, FigureRequest, Plot, SubjectNotFound, Table
from leaderboard.models import Dataset, Entry, Visibility
from leaderboard.results.records import entries_with_values
from leaderboard.rounds.topics import LEAST_OTHERS, Topic

#: So many queries are in the table of difficulty; of more, evenly spaced ones.
MOST_QUERIES = 500
#: So many points make its lines: each is the mean over as many neighbouring queries as that needs.
MOST_POINTS = 50
#: More upright bars than that are thinner than a line.
MOST_UPRIGHT = 400


def has_open_judgements(dataset: Mapping[str, Any]) -> bool:
    """Whether a dataset's judgements are everyone's."""
    closed = Visibility.ACCEPTED in (dataset.get("queries_visibility"), dataset.get("documents_visibility"))
    return not dataset["hidden"] and not closed and bool(dataset["current_qrels_id"])


def build_difficulty(request: FigureRequest) -> Plot:
    """Queries from the hardest to the easiest: the median, most systems as a band, and the baseline's own value."""
    page = request.dataset_page
    name, measure, baseline = page.dataset["name"], page.board.measure, page.board.baseline
    collection = open_collection(request.dataset)
    if collection is None:
        return Plot.empty(f"The judgements of {name} are not open: nothing is shown query by query.")
    query_ids = collection.judgements.query_ids
    queries = len(query_ids)
    values = difficulty(collection.dataset, measure, queries)
    if values is None:
        return Plot.empty(f"No system has values of {measure} for the queries of {name} yet.")
    places = np.unique(np.linspace(0, queries - 1, min(queries, MOST_QUERIES)).round().astype(int))
    order = _hardest_first(values, collection, measure)
    rows = order[places]
    together = -(-queries // MOST_POINTS)
    columns = {
        "Mean": values.mean,
        "Deviation": values.deviation,
        **{f"{share:.0%}": row for share, row in zip(QUANTILES, values.quantiles, strict=True)},
        "Lowest": values.lowest,
        "Highest": values.highest,
    }
    if values.baseline is not None:
        columns[baseline] = values.baseline
    left_out = (
        f"The table has {len(rows):,} of {queries:,} queries, evenly spaced from the hardest to the easiest."
    )
    return Plot(
        data=_difficulty_traces(values, order, together, baseline),
        layout=go.Layout(
            height=400,
            xaxis={"title_text": "queries, the hardest first", "range": [0.5, queries + 0.5]},
            yaxis={"title_text": measure, "rangemode": "tozero"},
            hovermode="closest",
        ),
        table=Table.of(
            ("Place", (places + 1).tolist(), ",d"),
            ("Query", [query_ids[row] for row in rows]),
            *((head, column[rows].tolist(), ".4f") for head, column in columns.items()),
        ),
        caption=f"{measure} by query of {name}, the hardest first: the median of {values.systems} "
        f"{'system' if values.systems == 1 else 'systems'}, the band from 10% to 90% of them, and {baseline}."
        + (f" Each point is the mean over {together} neighbouring queries." if together > 1 else ""),
        subtitle=f"{name}, {measure}",
        notes=[left_out] if len(rows) < queries else [],
    )


def _hardest_first(values: Difficulty, collection: OpenCollection, measure: str) -> NDArray[np.intp]:
    """The queries from the hardest; equally hard ones in the order in which people count them."""
    counted = np.empty(len(values.mean), np.int64)
    counted[list(collection.order)] = np.arange(len(values.mean))
    sign = -1.0 if better(measure) == "lower" else 1.0
    return np.lexsort((counted, sign * values.highest, sign * values.mean, sign * values.quantiles[1]))


def _difficulty_traces(
    values: Difficulty, order: NDArray[np.intp], together: int, baseline: str
) -> list[go.Scatter]:
    starts = np.arange(0, len(order), together)
    number = np.diff([*starts, len(order)])
    ranks = (starts + (number + 1) / 2).tolist()

    def smooth(of_queries: NDArray[np.float64]) -> list[float]:
        sums: NDArray[np.float64] = np.add.reduceat(of_queries[order], starts)
        return [round(value, 6) for value in (sums / number).tolist()]

    low, middle, high = (smooth(row) for row in values.quantiles)
    hover = "query %{x}<br>median %{y:.3f}<extra></extra>"
    median = line_trace("median", ranks, middle, {"color": INK, "width": 2}, hovertemplate=hover)
    if values.systems == 1:
        return [median]
    outline = list(zip([*ranks, *reversed(ranks)], [*high, *reversed(low)], strict=True))
    traces = [area_trace("10% to 90% of systems", outline, BLUE, 0.22), median]
    if values.baseline is not None:
        points = go.Scatter(
            mode="markers",
            name=baseline,
            x=ranks,
            y=smooth(values.baseline),
            marker={"color": ORANGE, "size": 7, "symbol": "diamond"},
            hovertemplate="query %{x}<br>%{fullData.name} %{y:.3f}<extra></extra>",
        )
        traces.append(points)
    return traces


def build_differences(request: FigureRequest) -> Plot:
    """The second system's value less the first's, from the largest on; of more systems the first two are taken."""
    collection = open_collection(request.dataset)
    if collection is None:
        if not Dataset.objects.listed().filter(slug=request.dataset).exists():
            raise SubjectNotFound
        return Plot.empty("Values by query are shown of open judgements alone.")
    dataset = collection.dataset
    measure = collection.measure(request.state.measure)
    entries = _pair(collection, request.systems, measure)
    if entries is None:
        return Plot.empty("Two systems with results on the dataset's present judgements are compared.")
    pair = by_query(collection, entries, measure)
    if pair is None:
        return Plot.empty(f"One of the two systems has no {measure} by query.")
    first, second = (entry.system.name for entry in entries)
    ordered = np.argsort(-pair.differences, kind="stable")
    places, notes = _evenly_spaced(len(ordered))
    rows = ordered[places].tolist()
    names = [collection.judgements.query_ids[row] for row in rows]
    differences, ranks = pair.differences[rows].tolist(), [place + 1 for place in places]
    result = pair.result
    bars = _upright_bars(
        ranks,
        differences,
        measure,
        customdata=[collection.text(name)[:80] or name for name in names],
        hovertemplate="%{customdata}<br>%{y:+.4f}<extra></extra>",
    )
    return Plot(
        data=[bars],
        layout=_upright_layout(len(rows), f"Δ {measure}", showlegend=False),
        table=Table.of(("Place", ranks, "d"), ("Query", names), (f"Δ {measure}", differences, "+.4f")),
        caption=f"{measure} of {second} less that of {first} on each of the {len(ordered):,} judged queries of "
        f"{dataset.name}: {result.wins:,} won by {second}, {result.ties:,} tied, {result.losses:,} lost.",
        subtitle=f"{dataset.name}, {measure}: {second} less {first}",
        notes=notes,
    )


def _pair(collection: OpenCollection, systems: tuple[str, ...], measure: str) -> list[Entry] | None:
    """The best entries of the first two systems; without systems those of BM25 and of the best."""
    best = collection.best_entries(measure)
    wanted = [best[slug].pk for slug in (systems or best) if slug in best][:2]
    if len(wanted) < 2:
        return None
    entries = entries_with_values(wanted)
    return [entries[pk] for pk in wanted]


def plot_round_topics(topics: Sequence[Topic], run: str, measure: str, of_round: str) -> Plot:
    """The run's value less the median by query, from the largest down, with the best and the worst as a band."""
    known = [topic for topic in topics if topic.difference is not None]
    if not known:
        return Plot.empty(f"No median is told where fewer than {LEAST_OTHERS} other teams have public runs.")
    ordered = sorted(known, key=lambda topic: -(topic.difference or 0.0))
    places, notes = _evenly_spaced(len(ordered))
    shown, ranks = [ordered[place] for place in places], [place + 1 for place in places]
    names = [topic.query for topic in shown]
    own, best, worst = (
        [round((getattr(topic, name) or 0.0) - (topic.median or 0.0), 6) for topic in shown]
        for name in ("own", "best", "worst")
    )
    lines = [
        line_trace(
            name,
            ranks,
            values,
            {"dash": dash, "width": 1.5},
            hovertemplate=f"{name} %{{y:+.3f}}<extra></extra>",
        )
        for name, values, dash in (("best", best, "dot"), ("worst", worst, "dash"))
    ]
    hover = "%{customdata}<br>%{y:+.3f}<extra></extra>"
    bars = _upright_bars(ranks, own, measure, name="own", customdata=names, hovertemplate=hover)
    return Plot(
        data=[*lines, bars],
        layout=_upright_layout(len(shown), f"{measure} less the median"),
        table=Table.of(
            ("Place", ranks, "d"),
            ("Query", names),
            ("Own less median", own, "+.3f"),
            ("Best less median", best, "+.3f"),
            ("Worst less median", worst, "+.3f"),
        ),
        caption=f"{measure} of {run} less the median of {of_round} on each of the {len(ordered):,} judged queries.",
        subtitle=f"{of_round}, {measure}: {run} less the median",
        notes=notes,
    )


def _evenly_spaced(number: int) -> tuple[range, list[str]]:
    """As many places of so many queries as make upright bars, and a note that says so where there are more."""
    places = range(0, number, -(-number // MOST_UPRIGHT))
    note = f"Of {number:,} queries {len(places):,} are drawn, at equal distances in the order."
    return places, [note] if len(places) < number else []


def _upright_layout(number: int, title: str, **more: Any) -> go.Layout:
    """A layout for so many upright bars, one for a query."""
    return go.Layout(
        height=340,
        bargap=0.1 if number < 120 else 0,
        xaxis={"title_text": "queries, from the largest difference down", "showgrid": False},
        yaxis={"title_text": title, "zeroline": True},
        **more,
    )


def _upright_bars(places: Sequence[int], differences: Sequence[float], measure: str, **more: Any) -> go.Bar:
    """Differences as upright bars, with the hue of better or worse."""
    lower = better(measure) == "lower"
    colors = [BETTER if (value > 0) != lower else WORSE for value in differences]
    heights = [round(value, 6) for value in differences]
    return go.Bar(x=places, y=heights, marker={"color": colors, "line_width": 0}, **more)


DIFFICULTY = Figure(
    slug="difficulty",
    title="Query difficulty",
    caption="What the systems on a board reach on each query, from the hardest query to the easiest.",
    subjects=("dataset",),
    build=build_difficulty,
    fits=has_open_judgements,
)
QUERY_DIFFERENCES = Figure(
    slug="query-differences",
    title="Differences by query",
    caption="What one system has more or less than another on each query of a dataset with open judgements.",
    subjects=("comparison",),
    build=build_differences,
    fits=has_open_judgements,
)

_BESIDE_MEDIAN = "A run’s value less the round’s median on each judged query."
#: Not in the registry: only the page of the run's own team draws it.
ROUND_TOPICS = Figure(
    "round-topics",
    "Beside the median",
    _BESIDE_MEDIAN,
    (),
    lambda request: Plot.empty(_BESIDE_MEDIAN),
)
