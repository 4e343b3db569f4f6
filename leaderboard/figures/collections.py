"""Figures of document lengths, retrieved and relevant, and of the overlap of collections' vocabularies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext_noop

from evaluation.collections.profiles import EDGES, QUANTILES, TOKENISATION, LengthDistribution, doublings, shares
from leaderboard.boards.dataset_details import has_public_documents
from leaderboard.boards.model import Row
from leaderboard.figures import drawing
from leaderboard.figures.drawing import area_trace, go, line_trace
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.profiles.public import OverlapMatrix, collection_lengths, public_overlaps, retrieved_lengths
from leaderboard.results.profiles.store import DEPTH

#: Maximum number of systems in a picture.
MAX_SYSTEMS = 20
#: Maximum number of systems whose lines remain distinguishable, besides all and the relevant documents.
MAX_SYSTEM_LINES = 3
_LINE_HUES = (drawing.GREY, drawing.GREEN, drawing.ORANGE, drawing.BLUE, drawing.PURPLE)
#: Height of a distribution in pixels, and the share of it that the widest one fills.
_LANE_HEIGHT, _MAX_WIDTH = 44, 0.46
_FOLD = gettext_noop("Document lengths")
_WORDS = "Words of title and text are split at white space."
_WITHHELD_NOTE = "Data about single documents is shown only if judgments are open and documents are public."


class _Lane(NamedTuple):
    """One distribution with its name and hue."""

    name: str
    lengths: LengthDistribution
    color: str


def has_relevant_lengths(dataset: Mapping[str, Any]) -> bool:
    """Return whether the dataset's documents are public and it has judgments that are not hidden."""
    return has_public_documents(dataset) and not dataset["hidden"] and bool(dataset["current_qrels_id"])


def build_violins(request: FigureRequest) -> Plot:
    """Draw the distributions of document lengths: all documents, relevant ones, and each system's top documents."""
    page = request.dataset_page
    profile = collection_lengths(request.dataset)
    if profile is None:
        return Plot.empty(_missing_reason(page.dataset))
    systems, notes = _profiled_systems(page.board.rows, MAX_SYSTEMS)
    lanes = [_Lane("All documents", profile.documents, drawing.GREY)]
    relevant_lengths = profile.relevant if profile.relevant is not None and profile.relevant.total else None
    if relevant_lengths is not None:
        lanes.append(_Lane("Relevant documents", relevant_lengths, drawing.GREEN))
    lanes += [_Lane(name, lengths, drawing.BLUE) for name, lengths in systems]
    quantiles = zip(*(_quantiles(lane.lengths) for lane in lanes), strict=True)
    heads = ("5%", "25%", "Median", "75%", "95%")
    return Plot(
        data=[*_outlines(lanes), *_boxes(lanes)],
        layout=_lane_layout(lanes),
        table=Table.from_columns(
            ("Documents", [lane.name for lane in lanes]),
            ("Number", [lane.lengths.total for lane in lanes], ",d"),
            ("Mean words", [lane.lengths.mean for lane in lanes], ",.1f"),
            *((head, values, ",.0f") for head, values in zip(heads, quantiles, strict=True)),
        ),
        caption=f"Words per document of {page.dataset['name']}: of the whole corpus"
        + (", of the relevant documents" if relevant_lengths else "")
        + (f", and of the first {DEPTH} documents of each system" if systems else "")
        + ". Lines: 5–95%; bars: 25–75%; dots: medians.",
        subtitle=page.dataset["name"],
        notes=[_WORDS, *notes, *([_WITHHELD_NOTE] if page.dataset["hidden"] else [])],
    )


def _missing_reason(dataset: dict[str, Any]) -> str:
    """Return the reason why a dataset has no document lengths: not stored here, not public, or not counted yet."""
    if dataset["current_version_id"] is None or not dataset["current_version__corpus_sha256"]:
        return f"The documents of {dataset['name']} are not stored here, so their lengths are unknown."
    return f"The lengths of the documents of {dataset['name']} are not shown: they are not public or not counted yet."


def _profiled_systems(rows: Sequence[Row], limit: int) -> tuple[list[tuple[str, LengthDistribution]], list[str]]:
    """Return names and length distributions of up to `limit` systems of the rows, and a note if some are omitted.

    Systems without a distribution are skipped. The baseline comes first.
    """
    keys = [row.entry.pk for row in rows]
    profiles = retrieved_lengths(keys)
    profiled_rows = [
        (row, profiles[key]) for key, row in zip(keys, rows, strict=True) if key in profiles and profiles[key].total
    ]
    profiled_rows.sort(key=lambda pair: not pair[0].entry.is_baseline)
    selected_systems = [(drawing.row_name(row), lengths) for row, lengths in profiled_rows[:limit]]
    omitted_count = len(profiled_rows) - len(selected_systems)
    note = f"Shown: {len(selected_systems)} of the {len(profiled_rows)} systems with runs. Use filters to see others."
    return selected_systems, [note] if omitted_count else []


def _quantiles(lengths: LengthDistribution) -> tuple[float, ...]:
    return lengths.quantiles[1 : len(QUANTILES) - 1] or (float("nan"),) * (len(QUANTILES) - 2)


def _log_position(length: float) -> float:
    """Return the position of a length on a logarithmic axis; empty documents are left of all others."""
    return length if length >= 1 else 0.6


#: Bin edges of the histograms.
_EDGE_POSITIONS = [_log_position(edge) for edge in (*EDGES, 2 * EDGES[-1])]


def _outlines(lanes: Sequence[_Lane]) -> list[go.Scatter]:
    """Return the histograms of all lanes as closed outlines, symmetric about the lane and all to one scale."""
    densities = [
        np.asarray(lane.lengths.counts / max(lane.lengths.total, 1) / np.diff(np.log2(_EDGE_POSITIONS)), np.float64)
        for lane in lanes
    ]
    max_density = max(float(density.max()) for density in densities) or 1.0
    traces = []
    for number, (lane, density) in enumerate(zip(lanes, densities, strict=True)):
        nonzero_bins = np.flatnonzero(density)
        bins = range(int(nonzero_bins[0]), int(nonzero_bins[-1]) + 1) if len(nonzero_bins) else range(0)
        edge_positions = [edge for bin_ in bins for edge in (_EDGE_POSITIONS[bin_], _EDGE_POSITIONS[bin_ + 1])]
        half_widths = [float(density[bin_]) / max_density * _MAX_WIDTH for bin_ in bins for _ in range(2)]
        xs = [round(value, 3) for value in (*edge_positions, *reversed(edge_positions))]
        ys = [round(number + y, 4) for y in (*(-y for y in half_widths), *reversed(half_widths))]
        traces.append(
            area_trace(lane.name, list(zip(xs, ys, strict=True)), lane.color, 0.45, line_width=1, showlegend=False)
        )
    return traces


def _boxes(lanes: Sequence[_Lane]) -> list[go.Scatter]:
    """Return a box plot for each lane.

    Whiskers extend from the 5th to the 95th percentile, boxes from the 25th to the 75th, and dots are at the medians.
    """
    quantiles = [_quantiles(lane.lengths) for lane in lanes]
    return [
        _spans(quantiles, 0, 4, 1.5),
        _spans(quantiles, 1, 3, 5),
        go.Scatter(
            mode="markers",
            name="Median",
            x=[_log_position(lengths[2]) for lengths in quantiles],
            y=list(range(len(lanes))),
            customdata=[[lane.name, *lengths] for lane, lengths in zip(lanes, quantiles, strict=True)],
            marker={"color": drawing.PAPER, "size": 8, "line": {"color": drawing.INK, "width": 1.5}},
            hovertemplate="%{customdata[0]}<br>median %{customdata[3]:,.0f} words<br>"
            "middle half %{customdata[2]:,.0f} to %{customdata[4]:,.0f}<br>"
            "5% to 95%: %{customdata[1]:,.0f} to %{customdata[5]:,.0f}<extra></extra>",
            showlegend=False,
        ),
    ]


def _spans(quantiles: Sequence[tuple[float, ...]], low: int, high: int, width: float) -> go.Scatter:
    """Return a line of this width for each lane, between the quantiles with the indices `low` and `high`."""
    return line_trace(
        f"{QUANTILES[low + 1]:.0%} to {QUANTILES[high + 1]:.0%}",
        [value for lengths in quantiles for value in (_log_position(lengths[low]), _log_position(lengths[high]), None)],
        [value for number in range(len(quantiles)) for value in (number, number, None)],
        {"color": drawing.INK, "width": width},
        showlegend=False,
    )


def _lane_layout(lanes: Sequence[_Lane]) -> go.Layout:
    """Return a layout with a logarithmic axis of words that covers all lengths, and one named lane per distribution."""
    max_length = max(max(lane.lengths.quantiles, default=1.0) for lane in lanes)
    min_length = min(min(lane.lengths.quantiles, default=0.0) for lane in lanes)
    ticks = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 1_000_000]
    # Documents of about the same length are in one or two bins of the histogram, which would fill the plot.
    is_narrow = max_length < 3 * min_length
    limits = np.log10([_log_position(min_length) / 3, max_length * 3]).tolist() if is_narrow else None
    zero_tick = [0] if min_length < 1 else []
    rows, narrow_rows = drawing.name_axes([lane.name for lane in lanes], range=[len(lanes) - 0.4, -0.6])[:2]
    return go.Layout(
        height=len(lanes) * _LANE_HEIGHT + 80,
        xaxis={
            "type": "log",
            "title_text": "words per document",
            "range": limits,
            "tickvals": [_log_position(tick) for tick in (*zero_tick, *ticks)],
            "ticktext": [f"{tick:,}" for tick in (*zero_tick, *ticks)],
        },
        yaxis=rows,
        meta={"narrow": {"yaxis": narrow_rows}},
    )


def build_relevance(request: FigureRequest) -> Plot:
    """Draw the shares of document lengths among all documents, relevant ones, and systems' top documents.

    Only the first systems of the board are drawn.
    """
    page = request.dataset_page
    profile = collection_lengths(request.dataset)
    if profile is None:
        return Plot.empty(_missing_reason(page.dataset))
    if profile.relevant is None or not profile.relevant.total:
        return Plot.empty(
            _WITHHELD_NOTE if page.dataset["hidden"] else "The relevant documents have not been counted yet."
        )
    systems, notes = _profiled_systems(page.board.rows, MAX_SYSTEM_LINES)
    lines = [("All documents", profile.documents), ("Relevant documents", profile.relevant), *systems]
    edges = doublings(lengths for _, lengths in lines)
    ranges = [
        f"{bin_.low:,}" if bin_.high == bin_.low + 1 else f"{bin_.low:,}–{bin_.high - 1:,}"
        for bin_ in shares(profile.documents, edges)
    ]
    columns = [[bin_.share for bin_ in shares(lengths, edges)] for _, lengths in lines]
    max_share = max(max(column) for column in columns)
    return Plot(
        data=[
            _distribution_line(number, name, ranges, column)
            for number, ((name, _), column) in enumerate(zip(lines, columns, strict=True))
        ],
        layout=go.Layout(
            height=400,
            xaxis={"type": "category", "title_text": "words per document"},
            yaxis={"range": [0.0, 1.06 * max_share], **drawing.linear_ticks(0.0, 1.06 * max_share, percent=True)},
            yaxis_title_text="share of documents",
        ),
        table=Table.from_columns(
            ("Words", ranges),
            *((name, column, ".1%") for (name, _), column in zip(lines, columns, strict=True)),
        ),
        caption=f"Lengths of the relevant documents of {page.dataset['name']}, of the corpus, and of systems' top "
        f"{DEPTH}. A document that is relevant to two queries counts twice.",
        subtitle=page.dataset["name"],
        notes=[
            _WORDS,
            "Judges mostly saw documents that earlier systems retrieved, which may favor some lengths.",
            *notes,
        ],
    )


def _distribution_line(number: int, name: str, ranges: list[str], column: list[float]) -> go.Scatter:
    """Return the line of one distribution over ranges of lengths.

    The first two lines are thicker, and the first is dotted.
    """
    hue = _LINE_HUES[number]
    return go.Scatter(
        mode="lines+markers",
        name=name,
        x=ranges,
        y=column,
        line={"color": hue, "width": 2.5 if number < 2 else 1.5, "dash": "dot" if not number else "solid"},
        marker={"color": hue, "symbol": drawing.SYMBOLS[number % len(drawing.SYMBOLS)], "size": 8},
        hovertemplate="%{fullData.name}<br>%{x} words: %{y:.1%}<extra></extra>",
    )


DOCUMENT_LENGTHS = Figure(
    slug="document-lengths",
    title="How long are the documents that systems retrieve?",
    caption="Lengths of the documents that each system ranks first, and of all documents in the corpus (Figure 4 "
    "of the BEIR paper).",
    subjects=("dataset",),
    build=build_violins,
    fits=has_relevant_lengths,
    fold=_FOLD,
)
RELEVANCE_BY_LENGTH = Figure(
    slug="relevance-by-length",
    title="Are relevant documents longer than others?",
    caption="Lengths of relevant documents, of all documents, and of those that systems rank first (Figure 5 of "
    "the BEIR paper).",
    subjects=("dataset",),
    build=build_relevance,
    fits=has_relevant_lengths,
    fold=_FOLD,
)


#: Maximum number of datasets for which numbers fit into the cells.
_MAX_WITH_NUMBERS = 14
_PUBLIC_ONLY = "Only collections with public documents on this site are compared"
_TOO_FEW = f"{_PUBLIC_ONLY}. There are fewer than two so far."
_OVERLAP_METHOD = (
    f"Weighted Jaccard similarity of unigrams ({TOKENISATION}): Σ min / Σ max of each word's share of all words."
)


def _complete_overlaps() -> OverlapMatrix | None:
    """Return the overlaps of datasets that were all compared with each other, or None for fewer than two.

    Datasets with the most missing comparisons are removed until none is missing.
    """
    matrix = public_overlaps()
    while np.isnan(matrix.similarities).any():
        emptiest_number = int(np.isnan(matrix.similarities).sum(axis=0).argmax())
        remaining_numbers = [number for number in range(len(matrix.datasets)) if number != emptiest_number]
        matrix = OverlapMatrix(
            [matrix.datasets[number] for number in remaining_numbers],
            matrix.similarities[np.ix_(remaining_numbers, remaining_numbers)],
        )
    return matrix if len(matrix.datasets) > 1 else None


def build_heatmap(request: FigureRequest) -> Plot:
    """Draw a matrix with the vocabulary overlap of each pair of datasets.

    Datasets are ordered by their first principal axis, so that similar ones are adjacent.
    """
    matrix = _complete_overlaps()
    if matrix is None:
        return Plot.empty(_TOO_FEW)
    centered = matrix.similarities - matrix.similarities.mean(axis=0)
    principal_axis = np.linalg.svd(centered)[0][:, 0]
    order = np.argsort(principal_axis * np.sign(principal_axis[np.abs(principal_axis).argmax()]), kind="stable")
    names = [matrix.datasets[number].name for number in order]
    values: list[list[float | None]] = matrix.similarities[np.ix_(order, order)].tolist()
    for number, row in enumerate(values):
        row[number] = None
    number_format = "%.2f" if len(names) <= _MAX_WITH_NUMBERS else ""
    texts = [[number_format % value if number_format and value is not None else "" for value in row] for row in values]
    max_overlap = max(value for row in values for value in row if value is not None) or 1.0
    hover = "%{customdata[0]} and %{customdata[1]}: %{marker.color:.3f}"
    narrow_names = [drawing.shorten(name, drawing.MAX_NARROW_NAME) for name in names]
    return Plot(
        data=[drawing.heatmap(drawing.Matrix(names, values, texts), max_overlap, "overlap", hover)],
        layout=drawing.heatmap_layout(160 + 36 * max(len(names), 4), narrow_names, {"tickangle": -40}),
        # The similarities are symmetric, so a row equals a column.
        table=Table.from_columns(
            ("Dataset", names), *((name, row, ".3f") for name, row in zip(names, values, strict=True))
        ),
        caption=f"Shared vocabulary of {len(names)} collections: 0 means no word in common, 1 the same words "
        "equally often.",
        notes=[_OVERLAP_METHOD, f"{_PUBLIC_ONLY}."],
        subtitle="Weighted Jaccard similarity of unigrams",
    )


OVERLAP = Figure(
    slug="overlap",
    title="How similar are the words of the collections?",
    caption="Shared vocabulary of the collections on this site (Figure 2 and Appendix F of the BEIR paper).",
    subjects=("site",),
    build=build_heatmap,
)
