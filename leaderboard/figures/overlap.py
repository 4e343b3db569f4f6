"""How much vocabulary collections share: a heat map and a map (Figure 2 and Appendix F of the BEIR paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.profiles.scaling import classical_scaling
from evaluation.collections.profiles.unigrams import TOKENISATION
from leaderboard.figures.bars import LONGEST_NARROW_NAME, cut, heatmap, heatmap_layout
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import INK, mark
from leaderboard.results.profiles.public import OverlapMatrix, public_overlaps

#: With more datasets than that the numbers no longer fit into the fields.
_MOST_WITH_NUMBERS = 14
_ONLY_HERE = "Only collections whose documents are here and public are compared"
_NOTHING = f"{_ONLY_HERE}: there are not two of them yet."
_HOW = (
    f"Weighted Jaccard similarity of their unigrams ({TOKENISATION}): Σ min / Σ max of the shares that each word has "
    "of all words; 0 means nothing in common, 1 the same distribution."
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
    """Datasets × datasets, in the order of the first axis of their map, so that like stands beside like."""
    complete = _complete()
    if complete is None:
        return Plot.empty(_NOTHING)
    across = classical_scaling(1 - complete.similarities).points[:, 0]
    order = np.argsort(across, kind="stable")
    names = [complete.datasets[place].name for place in order]
    values = complete.similarities[np.ix_(order, order)]
    shown: list[list[float | None]] = values.tolist()
    for place, row in enumerate(shown):
        row[place] = None
    short = [cut(name, LONGEST_NARROW_NAME) for name in names]
    return Plot(
        data=[
            heatmap(
                [cut(name) for name in names],
                shown,
                zmax=max(value for row in shown for value in row if value is not None) or 1.0,
                texttemplate="%{z:.2f}" if len(names) <= _MOST_WITH_NUMBERS else "",
                hovertemplate="%{y} and %{x}: %{z:.3f}<extra></extra>",
                colorbar={"thickness": 10, "outlinewidth": 0},
                colorbar_title={"text": "overlap", "side": "right", "font_size": 12},
                meta={"narrow": {"x": short, "y": short, "showscale": False}},
            )
        ],
        layout=heatmap_layout(160 + 36 * max(len(names), 4), {"tickangle": -40}),
        table=Table(
            ("Dataset", *names),
            [(name, *row) for name, row in zip(names, shown, strict=True)],
            ("", *(".3f" for _ in names)),
        ),
        caption=f"How much vocabulary {len(names)} collections share. {_HOW} {_ONLY_HERE}.",
        subtitle="Weighted Jaccard similarity of unigrams",
    )


def _below(points: NDArray[np.float64]) -> list[bool]:
    """Whose name goes below its point: where another point is near and not lower, so that names keep clear."""
    reach = float(np.abs(points).max()) or 1.0
    below = []
    for place, (across, up) in enumerate(points):
        near = (np.abs(points[:, 0] - across) < 0.4 * reach) & (np.abs(points[:, 1] - up) < 0.2 * reach)
        below.append(any((points[other, 1], -other) > (up, -place) for other in np.flatnonzero(near)))
    return below


def build_map(request: FigureRequest) -> Plot:
    """Each dataset a point; near is alike. Domains have a colour and a symbol each."""
    complete = _complete()
    if complete is None:
        return Plot.empty(_NOTHING)
    placed = classical_scaling(1 - complete.similarities)
    below = _below(placed.points)
    points = [
        (dataset.name, dataset.domain or "no domain told", float(across), float(up))
        for dataset, (across, up) in zip(complete.datasets, placed.points, strict=True)
    ]
    traces = []
    for number, domain in enumerate(dict.fromkeys(point[1] for point in points)):
        chosen = [place for place, point in enumerate(points) if point[1] == domain]
        look = mark(number)
        traces.append(
            go.Scatter(
                mode="markers+text",
                name=domain,
                x=[points[place][2] for place in chosen],
                y=[points[place][3] for place in chosen],
                text=[cut(points[place][0], LONGEST_NARROW_NAME) for place in chosen],
                textposition=["bottom center" if below[place] else "top center" for place in chosen],
                textfont_color=INK,
                cliponaxis=False,
                marker={"size": 11, "color": look.color, "symbol": look.symbol},
                hovertemplate="%{text}<extra></extra>",
            )
        )
    axis = {"showticklabels": False, "ticks": "", "zeroline": False}
    reach = max(float(np.abs(placed.points).max()), 1e-9)
    across_axis = {**axis, "range": [-1.25 * reach, 1.25 * reach]}
    return Plot(
        data=traces,
        layout=go.Layout(
            height=460,
            showlegend=True,
            xaxis=across_axis,
            yaxis={**across_axis, "scaleanchor": "x"},
            meta={"narrow": {"xaxis": {**axis, "range": [-1.7 * reach, 1.7 * reach]}}},
        ),
        table=Table(("Dataset", "Domain", "Across", "Up"), points, ("", "", "+.3f", "+.3f")),
        caption=f"{len(points)} collections by the vocabulary they share: the nearer, the more. Classical scaling of "
        f"1 − overlap to two axes, meaningless in themselves, that keep {placed.kept:.0%} of the distances’ spread. "
        f"{_HOW} {_ONLY_HERE}.",
        subtitle="1 − weighted Jaccard similarity, in two dimensions",
    )


OVERLAP = Figure(
    slug="overlap",
    title="Overlap of collections",
    caption="How much vocabulary the collections that are here share (Figure 2 and Appendix F of the BEIR paper).",
    subjects=("site",),
    build=build_heatmap,
)
OVERLAP_MAP = Figure(
    slug="overlap-map",
    title="Map of collections",
    caption="The collections that are here, those that share more vocabulary nearer to each other.",
    subjects=("site",),
    build=build_map,
)
