"""Distributions of document lengths in words, as histograms over fixed edges: small, exact to count, and mergeable.

A word is what white space separates in title and text together, as in Table 1 of the BEIR paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Lengths are counted in bins [edge, next edge): single lengths up to 8, then four bins to every doubling. A length of
#: 2**26 words or more, longer than any line that is accepted, would fall into the last one.
EDGES: tuple[int, ...] = tuple(sorted({0, *(round(2 ** (step / 4)) for step in range(26 * 4 + 1))}))
_EDGES = np.array(EDGES, np.int64)
#: The quantiles that are kept exactly.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class LengthDistribution:
    """How many lengths fall between each edge and the next. `counts` has one place per edge of `EDGES`.

    `mean` and `quantiles` (of `QUANTILES`, each a length that occurs) are of the lengths themselves; of a merged
    distribution the quantiles are read from the bins, and so lower than the true ones by less than a bin's width.
    """

    counts: NDArray[np.int64]
    mean: float
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, lengths: NDArray[np.integer[Any]] | Sequence[int]) -> LengthDistribution:
        """The distribution of these lengths, in words; none at all is possible."""
        values = np.asarray(lengths, np.int64)
        places = np.searchsorted(_EDGES, values, side="right") - 1
        counts = np.bincount(places, minlength=len(EDGES)).astype(np.int64)
        if not len(values):
            return cls(counts, 0.0, ())
        quantiles = np.quantile(values, QUANTILES, method="inverted_cdf")
        return cls(counts, float(values.mean()), tuple(float(value) for value in quantiles))

    @property
    def total(self) -> int:
        """How many lengths there are."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """One of the kept quantiles; nan of no lengths at all. Raises ValueError for one that is not kept."""
        place = QUANTILES.index(share)
        return self.quantiles[place] if self.quantiles else float("nan")

    def as_data(self) -> dict[str, Any]:
        """Plain values: edges and counts from the first bin with a length to the last, the edge after it included."""
        filled = np.flatnonzero(self.counts)
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, -1)
        return {
            "edges": list(EDGES[first : last + 2]) if last >= first else [],
            "counts": self.counts[first : last + 1].tolist(),
            "mean": self.mean,
            "quantiles": list(self.quantiles),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> LengthDistribution:
        """What `as_data` gave. Raises ValueError for edges that are not ours."""
        counts = np.zeros(len(EDGES), np.int64)
        for edge, count in zip(data["edges"], data["counts"], strict=False):
            counts[EDGES.index(edge)] = count
        return cls(counts, float(data["mean"]), tuple(data["quantiles"]))


def merge_distributions(distributions: Iterable[LengthDistribution]) -> LengthDistribution:
    """The distribution of all lengths together."""
    several = list(distributions)
    if len(several) == 1:
        return several[0]
    counts = np.zeros(len(EDGES), np.int64)
    for each in several:
        counts += each.counts
    if not counts.any():
        return LengthDistribution.of([])
    total = int(counts.sum())
    mean = sum(each.mean * each.total for each in several) / total
    reached = np.cumsum(counts)
    wanted = np.maximum(np.ceil(np.array(QUANTILES) * total), 1)
    places = np.searchsorted(reached, wanted)
    return LengthDistribution(counts, mean, tuple(float(EDGES[place]) for place in places))


@dataclass(frozen=True)
class Share:
    """A range of lengths, from `low` words to `high` (not included), and the share of lengths in it."""

    low: int
    high: int
    share: float


def shares(distribution: LengthDistribution, edges: Sequence[int]) -> list[Share]:
    """The share of all lengths in each range between neighbouring `edges`, which are among `EDGES`."""
    places = [EDGES.index(edge) for edge in edges]
    total = max(distribution.total, 1)
    return [
        Share(EDGES[low], EDGES[high], float(distribution.counts[low:high].sum()) / total)
        for low, high in pairwise(places)
    ]


def doublings(distributions: Iterable[LengthDistribution]) -> list[int]:
    """Edges that double, from the one at or below the shortest length to the one above the longest."""
    filled = [np.flatnonzero(each.counts) for each in distributions if each.total]
    if not filled:
        return []
    shortest = EDGES[min(int(places[0]) for places in filled)]
    longest = EDGES[max(int(places[-1]) for places in filled)]
    edges = [0, *(2**power for power in range(27))]
    first = max(place for place, edge in enumerate(edges) if edge <= shortest)
    last = min((place for place, edge in enumerate(edges) if edge > longest), default=len(edges) - 1)
    return edges[first : last + 1]
