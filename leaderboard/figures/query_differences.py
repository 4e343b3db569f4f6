"""What two systems have on each query of a dataset with open judgements: the differences, sorted, as bars."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leaderboard.comparison.by_query import by_query
from leaderboard.comparison.queries.collection import (
    OpenCollection,
    by_score,
    compared_entries,
    open_collection,
)
from leaderboard.comparison.testing import with_values
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.figures.bars import evenly_spaced, upright_bars, upright_layout
from leaderboard.figures.difficulty import has_open_judgements
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, NoSubject, Plot, Table
from leaderboard.models import Dataset, Entry


def build(request: FigureRequest) -> Plot:
    """The second system's value less the first's, from the largest on; of more systems the first two are taken."""
    collection = open_collection(request.dataset)
    if collection is None:
        if not Dataset.objects.listed().filter(slug=request.dataset).exists():
            raise NoSubject
        return Plot.empty("Values by query are shown of open judgements alone.")
    measure = _measure(collection, request.state.measure)
    entries = _pair(collection, request.systems, measure)
    if entries is None:
        return Plot.empty("Two systems with results on the dataset's present judgements are compared.")
    pair = by_query(collection, entries, measure)
    if pair is None:
        return Plot.empty(f"One of the two systems has no {measure} by query.")
    first, second = (entry.system.name for entry in entries)
    ordered = np.argsort(-pair.differences, kind="stable")
    places, notes = evenly_spaced(len(ordered))
    shown = ordered[places]
    differences = pair.differences[shown]
    names = [collection.judgements.query_ids[row] for row in shown.tolist()]
    ranks = [place + 1 for place in places]
    result = pair.result
    return Plot(
        data=[_bars(ranks, differences, names, collection, measure)],
        layout=upright_layout(len(shown), f"Δ {measure}", showlegend=False),
        table=Table(
            ("Place", "Query", f"Δ {measure}"),
            list(zip(ranks, names, differences.tolist(), strict=True)),
            ("d", "", "+.4f"),
        ),
        caption=f"{measure} of {second} less that of {first} on each of the {len(ordered):,} judged queries of "
        f"{collection.dataset.name}: {result.wins:,} won by {second}, {result.ties:,} tied, {result.losses:,} lost.",
        subtitle=f"{collection.dataset.name}, {measure}: {second} less {first}",
        notes=notes,
    )


def _measure(collection: OpenCollection, chosen: str) -> str:
    measures = collection.dataset.measures or [collection.dataset.primary_measure]
    if chosen and chosen not in measures:
        raise UnknownChoice("measure", chosen, measures)
    return chosen or collection.dataset.primary_measure


def _pair(collection: OpenCollection, systems: tuple[str, ...], measure: str) -> list[Entry] | None:
    """The best entries of the first two systems; without systems those of BM25 and of the best."""
    ranked = by_score(compared_entries(collection.dataset).select_related("system"), measure)
    best: dict[str, int] = {}
    for entry in ranked:
        best.setdefault(entry.system.slug, entry.pk)
    wanted = [best[slug] for slug in systems[:2] if slug in best] if systems else list(best.values())[:2]
    if len(wanted) < 2:
        return None
    entries = with_values(wanted)
    return [entries[pk] for pk in wanted]


def _bars(
    ranks: list[int],
    differences: NDArray[np.float64],
    names: list[str],
    collection: OpenCollection,
    measure: str,
) -> go.Bar:
    texts = [collection.text(name)[:80] or name for name in names]
    hover = "%{customdata}<br>%{y:+.4f}<extra></extra>"
    return upright_bars(ranks, differences.tolist(), measure, customdata=texts, hovertemplate=hover)


FIGURES = (
    Figure(
        slug="query-differences",
        title="Differences by query",
        caption="What one system has more or less than another on each query of a dataset with open judgements.",
        subjects=("comparison",),
        build=build,
        fits=has_open_judgements,
        wide=True,
    ),
)
