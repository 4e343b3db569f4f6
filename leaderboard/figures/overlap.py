"""How much vocabulary collections share: a heat map and a map (Figure 2 and Appendix F of the BEIR paper)."""

from __future__ import annotations

import numpy as np

from evaluation.collections.profiles.scaling import classical_scaling
from evaluation.collections.profiles.unigrams import TOKENISATION
from leaderboard.figures.axes import linear_axis
from leaderboard.figures.bars import LONGEST_NARROW_NAME, cut, heatmap, heatmap_layout
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import mark
from leaderboard.figures.points import far_labels, label_points, point_trace
from leaderboard.results.profiles.public import OverlapMatrix, public_overlaps

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
    form = "%.2f" if len(names) <= _MOST_WITH_NUMBERS else ""
    return Plot(
        data=[
            heatmap(
                names,
                shown,
                [[form and form % value if value is not None else "" for value in row] for row in shown],
                max(value for row in shown for value in row if value is not None) or 1.0,
                "overlap",
                "%{customdata[0]} and %{customdata[1]}: %{marker.color:.3f}",
            )
        ],
        layout=heatmap_layout(
            160 + 36 * max(len(names), 4),
            [cut(name, LONGEST_NARROW_NAME) for name in names],
            {"tickangle": -40},
        ),
        table=Table(
            ("Dataset", *names),
            [(name, *row) for name, row in zip(names, shown, strict=True)],
            ("", *(".3f" for _ in names)),
        ),
        caption=f"How much vocabulary {len(names)} collections share: 0 means no word in common, 1 the same words "
        "equally often.",
        notes=[_HOW, f"{_ONLY_HERE}."],
        subtitle="Weighted Jaccard similarity of unigrams",
    )


def build_map(request: FigureRequest) -> Plot:
    """Each dataset a point; near is alike. Domains have a colour and a symbol each."""
    complete = _complete()
    if complete is None:
        return Plot.empty(_NOTHING)
    placed = classical_scaling(1 - complete.similarities)
    points = [
        (dataset.name, dataset.domain or "domain not stated", float(across), float(up))
        for dataset, (across, up) in zip(complete.datasets, placed.points, strict=True)
    ]
    names = [cut(name, LONGEST_NARROW_NAME) for name, *_ in points]
    places = [(across, up) for *_, across, up in points]
    labels = label_points(names, places)
    traces = []
    for number, domain in enumerate(dict.fromkeys(point[1] for point in points)):
        chosen = [place for place, point in enumerate(points) if point[1] == domain]
        look = mark(number)
        traces.append(
            point_trace(
                domain,
                [points[place][2] for place in chosen],
                [points[place][3] for place in chosen],
                [labels[place] for place in chosen],
                [(points[place][0], domain) for place in chosen],
                {"size": 11, "color": look.color, "symbol": look.symbol},
            )
        )
    axis = {"showticklabels": False, "showgrid": False, "ticks": "", "zeroline": False}
    return Plot(
        data=traces,
        layout=go.Layout(
            height=460,
            showlegend=True,
            xaxis={**linear_axis("", [across for across, _ in places]), **axis},
            yaxis={**linear_axis("", [up for _, up in places]), **axis},
            **far_labels(names, places, labels),
        ),
        table=Table(("Dataset", "Domain", "Across", "Up"), points, ("", "", "+.3f", "+.3f")),
        caption=f"{len(points)} collections: the nearer, the more vocabulary they share. The axes have no meaning of "
        "their own.",
        notes=[
            f"Classical scaling of 1 − overlap to two axes, which keep {placed.kept:.0%} of the distances’ spread.",
            _HOW,
            f"{_ONLY_HERE}.",
        ],
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
