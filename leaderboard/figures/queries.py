"""Figures by query of open judgments: difficulty, differences of two systems, and a run against its round's median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.boards.model import Board, Row
from leaderboard.comparison.pairs import compare_by_query, per_query_values
from leaderboard.comparison.queries.collection import (
    QUANTILES,
    Difficulty,
    OpenCollection,
    difficulty,
    open_collection,
    query_url,
)
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.figures import drawing
from leaderboard.figures.drawing import BLUE, GREY, INK, PURPLE, area_trace, go, line_trace
from leaderboard.figures.model import Figure, FigureRequest, Plot, SubjectNotFound, Table
from leaderboard.models import Dataset, Visibility
from leaderboard.results.board_rows.entry_rows import SCORED
from leaderboard.results.records import entries_with_values
from leaderboard.rounds.topics import MIN_OTHERS, Topic

#: Maximum number of queries in the table of difficulty; longer lists are sampled evenly.
MAX_TABLE_QUERIES = 500
#: Maximum number of points per line; each is the mean over as many neighboring queries as necessary.
MAX_LINE_POINTS = 50
#: Maximum number of bars; more would be thinner than a line.
MAX_QUERY_BARS = 400
#: Maximum number of query names next to bars, and the height of a name in pixels.
MAX_NAMES, QUERY_HEIGHT = 40, 18
#: Maximum numbers of systems and queries in the heat map, and of queries with labels.
MAX_HEATMAP_SYSTEMS, MAX_HEATMAP_QUERIES, MAX_LABELS = 20, 50, 12
#: Maximum number of queries in the heat map on a phone, so that each cell can be touched.
MAX_NARROW_QUERIES = 16
#: Name of the line, and of its axis, for a measure whose values are 0 and 1.
SHARE = "share of systems with 1"


def has_open_judgements(dataset: Mapping[str, Any]) -> bool:
    """Return whether everyone may see the dataset's judgments: not hidden, and no agreement is required."""
    requires_agreement = Visibility.ACCEPTED in (dataset.get("queries_visibility"), dataset.get("documents_visibility"))
    return not dataset["hidden"] and not requires_agreement and bool(dataset["current_qrels_id"])


def build_difficulty(request: FigureRequest) -> Plot:
    """Draw queries from hardest to easiest: the systems' median, a band from 10% to 90% of them, and the baseline."""
    page = request.dataset_page
    name, measure, baseline = page.dataset["name"], page.board.measure, page.board.baseline
    collection = open_collection(request.dataset)
    if collection is None:
        return Plot.empty(f"The judgments of {name} are not open, so values by query are not shown.")
    query_ids = collection.judgements.query_ids
    queries = len(query_ids)
    values = difficulty(collection.dataset, measure, queries)
    if values is None:
        return Plot.empty(f"No system has values of {measure} by query on {name} yet.")
    sampled_positions = drawing.spread_positions(queries, MAX_TABLE_QUERIES)
    order = _hardest_first(values, collection, measure)
    rows = order[sampled_positions]
    queries_per_point = -(-queries // MAX_LINE_POINTS)
    columns = {
        "Mean": values.mean,
        "Deviation": values.deviation,
        **{f"{share:.0%}": row for share, row in zip(QUANTILES, values.quantiles, strict=True)},
        "Lowest": values.lowest,
        "Highest": values.highest,
    }
    if values.baseline is not None:
        columns[baseline] = values.baseline
    traces = _difficulty_traces(values, order, queries_per_point, baseline)
    sampling_note = (
        f"The table has {len(rows):,} of {queries:,} queries, evenly spaced from the hardest to the easiest."
    )
    return Plot(
        data=traces,
        layout=go.Layout(
            height=400,
            xaxis={"title_text": "queries, hardest to easiest", "range": [0.5, queries + 0.5]},
            yaxis={"title_text": SHARE if traces[0].name == SHARE else measure, "rangemode": "tozero"},
            hovermode="closest",
        ),
        table=Table.from_columns(
            ("Place", (sampled_positions + 1).tolist(), ",d"),
            ("Query", [query_ids[row] for row in rows]),
            *((head, column[rows].tolist(), ".4f") for head, column in columns.items()),
        ),
        caption=f"{measure} by query of {name}, hardest to easiest: {', '.join(trace.name for trace in traces)} "
        f"({drawing.count_systems(values.systems)})."
        + (f" Each point is the mean over {queries_per_point} neighboring queries." if queries_per_point > 1 else ""),
        subtitle=f"{name}, {measure}",
        notes=[sampling_note] if len(rows) < queries else [],
    )


def _hardest_first(values: Difficulty, collection: OpenCollection, measure: str) -> NDArray[np.intp]:
    """Return the rows of the queries from hardest to easiest by median, then mean, then highest score.

    Equally hard queries are in natural order.
    """
    natural_position = np.empty(len(values.mean), np.int64)
    natural_position[list(collection.order)] = np.arange(len(values.mean))
    sign = -1.0 if better(measure) == "lower" else 1.0
    return np.lexsort((natural_position, sign * values.highest, sign * values.mean, sign * values.quantiles[1]))


def _difficulty_traces(
    values: Difficulty, order: NDArray[np.intp], queries_per_point: int, baseline: str
) -> list[go.Scatter]:
    """Return the lines of median and baseline and the band of most systems.

    Each point is the mean over `queries_per_point` consecutive queries. A single system has only the median. For a
    measure with the values 0 and 1, the steps of a line are the share of systems with 1.
    """
    starts = np.arange(0, len(order), queries_per_point)
    number = np.diff([*starts, len(order)])
    ranks = (starts + (number + 1) / 2).tolist()

    def smooth(query_values: NDArray[np.float64]) -> list[float]:
        sums: NDArray[np.float64] = np.add.reduceat(query_values[order], starts)
        return [round(value, 6) for value in (sums / number).tolist()]

    # Only values that are all 0 or 1 have this deviation.
    if np.allclose(values.deviation**2 * (values.systems - 1), values.systems * values.mean * (1 - values.mean)):
        style, hover = {"color": INK, "width": 2, "shape": "hvh"}, "query %{x}<br>%{y:.0%}<extra></extra>"
        return [line_trace(SHARE, ranks, smooth(values.mean), style, hovertemplate=hover)]
    low, median_values, high = (smooth(row) for row in values.quantiles)
    hover = "query %{x}<br>median %{y:.3f}<extra></extra>"
    median = line_trace("median", ranks, median_values, {"color": INK, "width": 2}, hovertemplate=hover)
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
            marker={"color": GREY, "size": 7, "symbol": "square"},
            hovertemplate="query %{x}<br>%{fullData.name} %{y:.3f}<extra></extra>",
        )
        traces.append(points)
    return traces


def _ranked_rows(board: Board) -> list[Row]:
    """Return the rows scored on the current judgments in rank order, whatever the board is sorted by."""
    rows = [row for row in drawing.comparable_rows(board) if row.ranked_in == SCORED and row.rank is not None]
    return sorted(rows, key=lambda row: row.rank or 0)


def build_heatmap(request: FigureRequest) -> Plot:
    """Draw the values of the best systems on queries from the hardest to the easiest; each cell links to its query."""
    page = request.dataset_page
    name, measure, slug = page.dataset["name"], page.board.measure, request.dataset
    collection = open_collection(slug)
    if collection is None:
        return Plot.empty(f"The judgments of {name} are not open, so values by query are not shown.")
    query_ids, ranked_rows = collection.judgements.query_ids, _ranked_rows(page.board)
    ranked_rows = [row for row in ranked_rows if not request.systems or row.entry.slug in request.systems]
    statistics = difficulty(collection.dataset, measure, len(query_ids))
    entries = entries_with_values(row.entry.pk for row in ranked_rows[:MAX_HEATMAP_SYSTEMS])
    rows = [row for row in ranked_rows[:MAX_HEATMAP_SYSTEMS] if row.entry.pk in entries]
    values = per_query_values([entries[row.entry.pk] for row in rows], measure) if len(rows) > 1 else None
    if statistics is None or values is None or len(values) != len(query_ids):
        return Plot.empty(f"This figure needs two systems with values of {measure} by query on {name}.")
    order = _hardest_first(statistics, collection, measure)[
        drawing.spread_positions(len(query_ids), MAX_HEATMAP_QUERIES)
    ]
    labels, links = _labels_and_links(collection, [query_ids[row] for row in order])
    names, cells = drawing.distinct_names(rows), values[order].T.round(4).tolist()
    narrow_columns = drawing.spread_positions(len(order), MAX_NARROW_QUERIES).tolist()
    system_axis = drawing.name_axes(names, range=[len(names) - 0.5, -0.5])[1]
    query_axis = _query_axis(labels, len(query_ids))
    narrow_axis = _query_axis([labels[column] for column in narrow_columns], len(query_ids))
    height = len(names) * drawing.BAR + (250 if query_axis["tickvals"] else 60)
    joints = ["&" if "?" in link else "?" for link in links]
    hover = f"%{{customdata[0]}}<br>%{{customdata[1]}}<br>{measure} %{{marker.color:.3f}}"

    def heatmap(columns: Sequence[int]) -> go.Bar:
        """Return the heat map of the queries in `columns`."""
        matrix = drawing.Matrix(
            names,
            [[line[column] for column in columns] for line in cells],
            [[""] * len(columns)] * len(rows),
            [labels[column][:80] for column in columns],
            [[f"{links[column]}{joints[column]}system={row.entry.slug}" for column in columns] for row in rows],
        )
        return drawing.heatmap(matrix, float(values.max()) or 1.0, measure, hover, gap=0.5)

    trace, narrow_trace = heatmap(range(len(order))), heatmap(narrow_columns).to_plotly_json()
    narrow = {key: narrow_trace[key] for key in ("x", "y", "base", "text", "customdata", "meta")}
    trace.meta = {**trace.meta, "narrow": narrow | narrow_trace["meta"]["narrow"]}
    note = f"The first {len(rows)} of the {len(ranked_rows)} systems scored on the current judgments."
    return Plot(
        data=[trace],
        layout=drawing.heatmap_layout(
            height, names, query_axis, meta={"narrow": {"xaxis": narrow_axis, "yaxis": system_axis}}
        ),
        table=Table.from_columns(
            ("Query", labels), *((head, line, ".4f") for head, line in zip(names, cells, strict=True)), links=links
        ),
        caption=f"{measure} of {len(names)} systems of {name}, in rank order, on each query. A column of one shade is "
        f"equally hard for all of them.{_describe_agreement(values)} Each cell links to its query.",
        subtitle=f"{name}, {measure}",
        notes=[note] if len(rows) < len(ranked_rows) else [],
    )


def _query_axis(labels: Sequence[str], total: int) -> dict[str, Any]:
    """Return the axis of evenly spaced queries among `total` judged ones; only few of them have labels."""
    count = f"{len(labels)} of {total:,} " if len(labels) < total else ""
    title = {"text": f"{count}queries, hardest to easiest"}
    axis = drawing.name_axes(labels, title=title, tickangle=-60)[0]
    return axis if len(labels) <= MAX_LABELS else axis | {"tickvals": []}


def _labels_and_links(collection: OpenCollection, query_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the text of each query, or its id if the text is not public, and the URL of its page."""
    labels = [collection.text(query_id) or query_id for query_id in query_ids]
    return labels, [query_url(collection.dataset.slug, query_id) for query_id in query_ids]


def _describe_agreement(values: NDArray[np.float64]) -> str:
    """Return a sentence with the mean correlation of pairs of columns over queries, empty if it is undefined."""
    columns = values[:, values.std(axis=0) > 0]
    if columns.shape[1] < 2 or len(columns) < 3:
        return ""
    correlations: NDArray[np.float64] = np.asarray(np.corrcoef(columns.T))
    mean = correlations[np.triu_indices(columns.shape[1], 1)].mean()
    return f" The values of two systems have a mean correlation of {mean:.2f} over all queries."


def build_differences(request: FigureRequest) -> Plot:
    """Draw the second system's value minus the first's for each query that is not tied, in descending order."""
    collection = open_collection(request.dataset)
    if collection is None:
        if not Dataset.objects.listed().filter(slug=request.dataset).exists():
            raise SubjectNotFound
        return Plot.empty("Values by query are only shown for open judgments.")
    dataset = collection.dataset
    measure = collection.choose_measure(request.state.measure)
    best_entries = collection.best_entries(measure)
    # By default, these are the baseline and the best system.
    entry_ids = [best_entries[slug].pk for slug in (request.systems or best_entries) if slug in best_entries][:2]
    if len(entry_ids) < 2:
        return Plot.empty("A comparison needs two systems with results on the dataset's current judgments.")
    entries_by_id = entries_with_values(entry_ids)
    entries = [entries_by_id[pk] for pk in entry_ids]
    pair = compare_by_query(collection, entries, measure)
    if pair is None:
        return Plot.empty(f"One of the two systems has no {measure} values by query.")
    (first, second), result = (entry.system.name for entry in entries), pair.result
    sorted_queries = np.argsort(-pair.differences, kind="stable")
    places = np.flatnonzero(pair.differences[sorted_queries] if pair.differences.any() else sorted_queries >= 0)
    positions, notes = _evenly_spaced(len(places))
    if ties := len(sorted_queries) - len(places):
        notes.append(f"Not drawn: {ties:,} tied {'query' if ties == 1 else 'queries'}.")
    if len(positions) > MAX_NAMES:
        notes.append(f"{MAX_NAMES} of the {len(positions)} bars have a label.")
    rows = sorted_queries[places[positions]].tolist()
    names = [collection.judgements.query_ids[row] for row in rows]
    differences, ranks = pair.differences[rows].tolist(), (places[positions] + 1).tolist()
    labels, links = _labels_and_links(collection, names)
    options: dict[str, Any] = {"customdata": [label[:80] for label in labels], "meta": {"links": links}}
    texts = [numbers.signed(value, 3) for value in differences] if len(rows) <= MAX_NAMES else None
    options |= {"text": texts, "textposition": "outside", "cliponaxis": False, "textfont_color": INK}
    low, high = min(0.0, *differences), max(0.0, *differences)
    span = high - low or 0.1
    hover = "%{customdata}<br>%{x:+.4f}<extra></extra>"
    bars = _bars(differences, list(range(len(rows))), measure, orientation="h", hovertemplate=hover, **options)
    axis = {"title": {"text": f"Δ {measure} ({drawing.better_arrow(measure)})"}, "zeroline": True}
    ranges = [{"range": [low - margin * span, high + margin * span]} for margin in (0.08, 0.34)]
    yaxis, narrow, wide = drawing.name_axes(labels, MAX_NAMES, names, range=[len(rows) - 0.5, -0.5])
    return Plot(
        data=[bars],
        layout=go.Layout(
            height=min(len(rows), MAX_NAMES) * QUERY_HEIGHT + drawing.BAR_MARGIN,
            bargap=0.1 if len(rows) < 120 else 0,
            xaxis=axis | ranges[0],
            yaxis=yaxis,
            showlegend=False,
            meta={"narrow": {"xaxis": axis | ranges[1], "yaxis": narrow}, "wide": {"yaxis": wide}},
        ),
        table=Table.from_columns(
            ("Query", names), ("Place", ranks, "d"), (f"Δ {measure}", differences, "+.4f"), links=links
        ),
        caption=f"{measure} of {second} minus that of {first} on each of the {len(sorted_queries):,} judged queries of "
        f"{dataset.name}: {result.wins:,} won by {second} (blue), {result.ties:,} tied, {result.losses:,} lost "
        "(purple). Single queries are not tested. Point at or tap a bar to see its query.",
        subtitle=f"{dataset.name}, {measure}: {second} minus {first}",
        notes=notes,
    )


def plot_round_topics(topics: Sequence[Topic], run: str, measure: str, round_title: str) -> Plot:
    """Draw the run's value minus the median by query, from the largest, with lines for the best and the worst run.

    Queries without a median are omitted.
    """
    topics_with_median = [topic for topic in topics if topic.difference is not None]
    if not topics_with_median:
        return Plot.empty(f"No median is shown if fewer than {MIN_OTHERS} other teams have public runs.")
    sorted_topics = sorted(topics_with_median, key=lambda topic: -(topic.difference or 0.0))
    positions, notes = _evenly_spaced(len(sorted_topics))
    drawn_topics, ranks = [sorted_topics[position] for position in positions], [position + 1 for position in positions]
    names = [topic.query for topic in drawn_topics]
    own_values, best_values, worst_values = (
        [round((getattr(topic, name) or 0.0) - (topic.median or 0.0), 6) for topic in drawn_topics]
        for name in ("own", "best", "worst")
    )
    hover = "%{fullData.name} %{y:+.3f}<extra></extra>"
    lines = [
        line_trace(name, ranks, values, {"dash": dash, "width": 1.5}, hovertemplate=hover)
        for name, values, dash in (("best", best_values, "dot"), ("worst", worst_values, "dash"))
    ]
    hover = "%{customdata}<br>%{y:+.3f}<extra></extra>"
    bars = _bars(own_values, ranks, measure, name="own", customdata=names, hovertemplate=hover)
    return Plot(
        data=[*lines, bars],
        layout=go.Layout(
            height=340,
            bargap=0.1 if len(drawn_topics) < 120 else 0,
            xaxis={"title_text": "queries, sorted by difference", "showgrid": False},
            yaxis={"title_text": f"{measure} minus the median", "zeroline": True},
        ),
        table=Table.from_columns(
            ("Place", ranks, "d"),
            ("Query", names),
            ("Own minus median", own_values, "+.3f"),
            ("Best minus median", best_values, "+.3f"),
            ("Worst minus median", worst_values, "+.3f"),
        ),
        caption=f"{measure} of {run} minus the median of {round_title} on each of the {len(sorted_topics):,} "
        "judged queries.",
        subtitle=f"{round_title}, {measure}: {run} minus the median",
        notes=notes,
    )


def _evenly_spaced(total: int) -> tuple[range, list[str]]:
    """Return up to MAX_QUERY_BARS evenly spaced positions, and a note if queries are omitted."""
    positions = range(0, total, -(-total // MAX_QUERY_BARS))
    note = f"{len(positions):,} of {total:,} queries are drawn, at equal distances in the order."
    return positions, [note] if len(positions) < total else []


def _bars(
    differences: Sequence[float], ranks: Sequence[int], measure: str, *, orientation: str = "v", **options: Any
) -> go.Bar:
    """Return bars colored by the sign and the measure's direction, in the hues of untested differences."""
    colors = [BLUE if (value > 0) != (better(measure) == "lower") else PURPLE for value in differences]
    lengths = [round(value, 6) for value in differences]
    x, y = (lengths, ranks) if orientation == "h" else (ranks, lengths)
    return go.Bar(x=x, y=y, orientation=orientation, marker={"color": colors, "line_width": 0}, **options)


DIFFICULTY = Figure(
    slug="difficulty",
    title="How many queries are hard for most systems?",
    caption="Scores on each query, from the hardest query to the easiest.",
    subjects=("dataset",),
    build=build_difficulty,
    fits=has_open_judgements,
    drawable=lambda board: len(_ranked_rows(board)) >= drawing.MIN_SYSTEMS,
)
QUERY_DIFFERENCES = Figure(
    slug="query-differences",
    title="On which queries do the two systems differ?",
    caption="Score difference per query between two systems, on a dataset with open judgments.",
    subjects=("comparison",),
    build=build_differences,
    fits=has_open_judgements,
)

HEATMAP = Figure(
    slug="query-heatmap",
    title="Are the same queries hard for every system?",
    caption="Score of each system on each query, on a dataset with open judgments.",
    subjects=("dataset",),
    build=build_heatmap,
    fits=has_open_judgements,
    drawable=lambda board: len(_ranked_rows(board)) >= drawing.MIN_SYSTEMS,
)

_MEDIAN_CAPTION = "A run’s value minus the round’s median on each judged query."
#: Not in the registry: only the pages of the run's own team draw it.
ROUND_TOPICS = Figure(
    "round-topics",
    "On which queries is the run better than the median?",
    _MEDIAN_CAPTION,
    (),
    lambda request: Plot.empty(_MEDIAN_CAPTION),
)
