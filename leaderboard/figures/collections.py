"""Lengths of documents that systems rank first and of relevant ones, and the overlap of collections' vocabularies.

These are Figures 2, 4, and 5 of the BEIR paper, and its Appendix F.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.collections.profiles import (
    EDGES,
    QUANTILES,
    TOKENISATION,
    LengthDistribution,
    doublings,
    shares,
)
from leaderboard.boards.dataset_details import has_public_documents
from leaderboard.boards.model import Row
from leaderboard.figures import drawing
from leaderboard.figures.drawing import area_trace, go, line_trace
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.results.profiles.public import (
    OverlapMatrix,
    collection_lengths,
    public_overlaps,
    retrieved_lengths,
)
from leaderboard.results.profiles.store import DEPTH

#: More systems than that are no picture any more.
MOST_SYSTEMS = 20
#: Beside all documents and the relevant ones, the lines of so many systems can be told apart.
MOST_LINES = 3
_LINE_HUES = (drawing.GREY, drawing.GREEN, drawing.ORANGE, drawing.BLUE, drawing.PURPLE)
#: The height of a distribution, in pixels, and the share of it that the widest one fills.
_LANE, _WIDEST = 44, 0.46
_WORDS = "Words are what white space separates in title and text."
_WITHHELD = (
    "Of hidden judgements, and of documents that are not everyone’s, nothing is shown document by document."
)


class _Lane(NamedTuple):
    """One distribution, how it is called, and its hue."""

    name: str
    lengths: LengthDistribution
    color: str


def has_relevant_lengths(dataset: Mapping[str, Any]) -> bool:
    """Whether, beside that, its judgements are open."""
    return has_public_documents(dataset) and not dataset["hidden"] and bool(dataset["current_qrels_id"])


def build_violins(request: FigureRequest) -> Plot:
    """All documents on top, then the relevant ones, then each system of the view in the board's own order."""
    page = request.dataset_page
    profile = collection_lengths(request.dataset)
    if profile is None:
        return Plot.empty(_missing(page.dataset))
    systems, notes = _systems(page.board.rows, MOST_SYSTEMS)
    lanes = [_Lane("All documents", profile.documents, drawing.GREY)]
    relevant = profile.relevant if profile.relevant is not None and profile.relevant.total else None
    if relevant is not None:
        lanes.append(_Lane("Relevant documents", relevant, drawing.GREEN))
    lanes += [_Lane(name, lengths, drawing.BLUE) for name, lengths in systems]
    quantiles = zip(*(_quantiles(lane.lengths) for lane in lanes), strict=True)
    heads = ("5%", "25%", "Median", "75%", "95%")
    return Plot(
        data=[*_outlines(lanes), *_boxes(lanes)],
        layout=_layout(lanes),
        table=Table.of(
            ("Documents", [lane.name for lane in lanes]),
            ("Number", [lane.lengths.total for lane in lanes], ",d"),
            ("Mean words", [lane.lengths.mean for lane in lanes], ",.1f"),
            *((head, values, ",.0f") for head, values in zip(heads, quantiles, strict=True)),
        ),
        caption=f"Words per document of {page.dataset['name']}: of the whole corpus"
        + (", of the relevant documents" if relevant else "")
        + (f", and of the first {DEPTH} documents of each system" if systems else "")
        + ". Lines run from 5% to 95%, bars over the middle half; dots are medians.",
        subtitle=page.dataset["name"],
        notes=[_WORDS, *notes, *([_WITHHELD] if page.dataset["hidden"] else [])],
    )


def _missing(dataset: dict[str, Any]) -> str:
    """Why there is nothing to draw."""
    if dataset["current_version_id"] is None or not dataset["current_version__corpus_sha256"]:
        return f"The documents of {dataset['name']} are not stored here, so their lengths are unknown."
    return f"The lengths of the documents of {dataset['name']} are not shown: they are not public or not counted yet."


def _systems(rows: Sequence[Row], most: int) -> tuple[list[tuple[str, LengthDistribution]], list[str]]:
    """The systems with a profile, the baseline first, and a note where they are more than are shown."""
    keys = [row.entry.pk for row in rows]
    profiles = retrieved_lengths(keys)
    with_profile = [
        (row, profiles[key])
        for key, row in zip(keys, rows, strict=True)
        if key in profiles and profiles[key].total
    ]
    with_profile.sort(key=lambda one: not one[0].entry.is_baseline)
    shown = [(drawing.row_name(row), lengths) for row, lengths in with_profile[:most]]
    left_out = len(with_profile) - len(shown)
    note = f"{len(shown)} of {len(with_profile)} systems; the board’s order and filters choose others."
    return shown, [note] if left_out else []


def _quantiles(lengths: LengthDistribution) -> tuple[float, ...]:
    return lengths.quantiles[1 : len(QUANTILES) - 1] or (float("nan"),) * (len(QUANTILES) - 2)


def _place(length: float) -> float:
    """Where a length stands on a logarithmic axis; documents without a word stand left of those with one."""
    return length if length >= 1 else 0.6


#: Where the bins of the histograms begin and end.
_PLACES = [_place(edge) for edge in (*EDGES, 2 * EDGES[-1])]


def _outlines(lanes: Sequence[_Lane]) -> list[go.Scatter]:
    """The histograms as closed outlines, all to one scale."""
    densities = [
        np.asarray(lane.lengths.counts / max(lane.lengths.total, 1) / np.diff(np.log2(_PLACES)), np.float64)
        for lane in lanes
    ]
    highest = max(float(density.max()) for density in densities) or 1.0
    traces = []
    for number, (lane, density) in enumerate(zip(lanes, densities, strict=True)):
        filled = np.flatnonzero(density)
        bins = range(int(filled[0]), int(filled[-1]) + 1) if len(filled) else range(0)
        across = [edge for bin_ in bins for edge in (_PLACES[bin_], _PLACES[bin_ + 1])]
        up = [float(density[bin_]) / highest * _WIDEST for bin_ in bins for _ in range(2)]
        xs = [round(value, 3) for value in (*across, *reversed(across))]
        ys = [round(number + each, 4) for each in (*(-each for each in up), *reversed(up))]
        traces.append(
            area_trace(lane.name, list(zip(xs, ys, strict=True)), lane.color, 0.45, line=1, showlegend=False)
        )
    return traces


def _boxes(lanes: Sequence[_Lane]) -> list[go.Scatter]:
    """Lines from 5% to 95%, bars over the middle half, dots at the medians."""
    quantiles = [_quantiles(lane.lengths) for lane in lanes]
    return [
        _spans(quantiles, 0, 4, 1.5),
        _spans(quantiles, 1, 3, 5),
        go.Scatter(
            mode="markers",
            name="Median",
            x=[_place(each[2]) for each in quantiles],
            y=list(range(len(lanes))),
            customdata=[[lane.name, *each] for lane, each in zip(lanes, quantiles, strict=True)],
            marker={"color": drawing.PAPER, "size": 8, "line": {"color": drawing.INK, "width": 1.5}},
            hovertemplate="%{customdata[0]}<br>median %{customdata[3]:,.0f} words<br>"
            "middle half %{customdata[2]:,.0f} to %{customdata[4]:,.0f}<br>"
            "5% to 95%: %{customdata[1]:,.0f} to %{customdata[5]:,.0f}<extra></extra>",
            showlegend=False,
        ),
    ]


def _spans(quantiles: Sequence[tuple[float, ...]], low: int, high: int, width: float) -> go.Scatter:
    return line_trace(
        f"{QUANTILES[low + 1]:.0%} to {QUANTILES[high + 1]:.0%}",
        [value for each in quantiles for value in (_place(each[low]), _place(each[high]), None)],
        [value for number in range(len(quantiles)) for value in (number, number, None)],
        {"color": drawing.INK, "width": width},
        showlegend=False,
    )


def _layout(lanes: Sequence[_Lane]) -> go.Layout:
    longest = max(max(lane.lengths.quantiles, default=1.0) for lane in lanes)
    shortest = min(min(lane.lengths.quantiles, default=0.0) for lane in lanes)
    ticks = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 1_000_000]
    shown = [tick for tick in ticks if _place(shortest) <= tick <= longest * 1.5]
    zero = [0] if shortest < 1 else []
    names = [drawing.cut(lane.name) for lane in lanes]
    rows = {
        "tickvals": list(range(len(lanes))),
        "ticktext": names,
        "range": [len(lanes) - 0.4, -0.6],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    short = [drawing.cut(lane.name, drawing.LONGEST_NARROW_NAME) for lane in lanes]
    return go.Layout(
        height=len(lanes) * _LANE + 80,
        xaxis={
            "type": "log",
            "title_text": "words per document",
            "tickvals": [_place(tick) for tick in (*zero, *shown)],
            "ticktext": [f"{tick:,}" for tick in (*zero, *shown)],
        },
        yaxis=rows,
        meta={"narrow": {"yaxis": {**rows, "ticktext": short}}},
    )


def build_relevance(request: FigureRequest) -> Plot:
    """Shares of lengths among all documents, the relevant ones, and what the first systems of the view rank first."""
    page = request.dataset_page
    profile = collection_lengths(request.dataset)
    if profile is None:
        return Plot.empty(_missing(page.dataset))
    if profile.relevant is None or not profile.relevant.total:
        return Plot.empty(
            _WITHHELD if page.dataset["hidden"] else "Which documents are relevant is not known yet."
        )
    systems, notes = _systems(page.board.rows, MOST_LINES)
    lines = [("All documents", profile.documents), ("Relevant documents", profile.relevant), *systems]
    edges = doublings(lengths for _, lengths in lines)
    ranges = [_range(each.low, each.high) for each in shares(profile.documents, edges)]
    columns = [[each.share for each in shares(lengths, edges)] for _, lengths in lines]
    highest = max(max(column) for column in columns)
    return Plot(
        data=[
            _line(number, name, ranges, column)
            for number, ((name, _), column) in enumerate(zip(lines, columns, strict=True))
        ],
        layout=go.Layout(
            height=400,
            xaxis={"type": "category", "title_text": "words per document"},
            yaxis={"range": [0.0, 1.06 * highest], **drawing.linear_ticks(0.0, 1.06 * highest, percent=True)},
            yaxis_title_text="share of documents",
        ),
        table=Table.of(
            ("Words", ranges),
            *((name, column, ".1%") for (name, _), column in zip(lines, columns, strict=True)),
        ),
        caption=f"Lengths of the relevant documents of {page.dataset['name']}, of the corpus, and of systems' top "
        f"{DEPTH}. A document that is relevant to two queries counts twice.",
        subtitle=page.dataset["name"],
        notes=[
            _WORDS,
            "Judges mostly saw what earlier systems had found, which may favour some lengths.",
            *notes,
        ],
    )


def _range(low: int, high: int) -> str:
    return f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}"


def _line(number: int, name: str, ranges: list[str], column: list[float]) -> go.Scatter:
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
    title="Lengths of retrieved documents",
    caption="How long the documents are that each system ranks first, beside all documents of the corpus (Figure 4 "
    "of the BEIR paper).",
    subjects=("dataset",),
    build=build_violins,
    fits=has_public_documents,
)
RELEVANCE_BY_LENGTH = Figure(
    slug="relevance-by-length",
    title="Relevance by document length",
    caption="How long relevant documents are, beside all documents and those that systems rank first (Figure 5 of "
    "the BEIR paper).",
    subjects=("dataset",),
    build=build_relevance,
    fits=has_relevant_lengths,
)


#: With more datasets than that the numbers no longer fit into the fields.
_MOST_WITH_NUMBERS = 14
_ONLY_HERE = "Only collections whose documents are here and public are compared"
_NOTHING = f"{_ONLY_HERE}: there are not two of them yet."
_HOW = (
    f"Weighted Jaccard similarity of unigrams ({TOKENISATION}): Σ min / Σ max of the shares that each word has of all "
    "words."
)


def _complete() -> OverlapMatrix | None:
    """The overlaps of all datasets that have been compared with all others; None for fewer than two."""
    compared = public_overlaps()
    while np.isnan(compared.similarities).any():
        worst = int(np.isnan(compared.similarities).sum(axis=0).argmax())
        kept = [number for number in range(len(compared.datasets)) if number != worst]
        compared = OverlapMatrix(
            [compared.datasets[number] for number in kept], compared.similarities[np.ix_(kept, kept)]
        )
    return compared if len(compared.datasets) > 1 else None


def build_heatmap(request: FigureRequest) -> Plot:
    """Datasets × datasets, in the order of their first principal axis, so that like stands beside like."""
    complete = _complete()
    if complete is None:
        return Plot.empty(_NOTHING)
    centred = complete.similarities - complete.similarities.mean(axis=0)
    across = np.linalg.svd(centred)[0][:, 0]
    order = np.argsort(across * np.sign(across[np.abs(across).argmax()]), kind="stable")
    names = [complete.datasets[place].name for place in order]
    values: list[list[float | None]] = complete.similarities[np.ix_(order, order)].tolist()
    for place, row in enumerate(values):
        row[place] = None
    form = "%.2f" if len(names) <= _MOST_WITH_NUMBERS else ""
    texts = [[form % value if form and value is not None else "" for value in row] for row in values]
    most = max(value for row in values for value in row if value is not None) or 1.0
    hover = "%{customdata[0]} and %{customdata[1]}: %{marker.color:.3f}"
    short = [drawing.cut(name, drawing.LONGEST_NARROW_NAME) for name in names]
    return Plot(
        data=[drawing.heatmap(drawing.NameSquare(names, values, texts), most, "overlap", hover)],
        layout=drawing.heatmap_layout(160 + 36 * max(len(names), 4), short, {"tickangle": -40}),
        # The similarities are symmetric, so that a row is a column.
        table=Table.of(
            ("Dataset", names), *((name, row, ".3f") for name, row in zip(names, values, strict=True))
        ),
        caption=f"How much vocabulary {len(names)} collections share: 0 means no word in common, 1 the same words "
        "equally often.",
        notes=[_HOW, f"{_ONLY_HERE}."],
        subtitle="Weighted Jaccard similarity of unigrams",
    )


OVERLAP = Figure(
    slug="overlap",
    title="Overlap of collections",
    caption="How much vocabulary the collections that are here share (Figure 2 and Appendix F of the BEIR paper).",
    subjects=("site",),
    build=build_heatmap,
)
