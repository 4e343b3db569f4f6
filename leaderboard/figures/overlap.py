"""How much vocabulary collections share: a heat map (Figure 2 and Appendix F of the BEIR paper)."""

from __future__ import annotations

import numpy as np

from evaluation.collections.profiles import TOKENISATION
from leaderboard.figures.drawing import LONGEST_NARROW_NAME, NameSquare, cut, heatmap, heatmap_layout
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
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
    short = [cut(name, LONGEST_NARROW_NAME) for name in names]
    return Plot(
        data=[heatmap(NameSquare(names, values, texts), most, "overlap", hover)],
        layout=heatmap_layout(160 + 36 * max(len(names), 4), short, {"tickangle": -40}),
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
