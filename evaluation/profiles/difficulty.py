"""How hard queries are: what systems reach on each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Difficulty:
    """What systems reach on each query, in the queries' own order; all of the shape (queries,).

    `order`: the queries from the hardest to the easiest by mean, then by median, then in their own order.
    """

    mean: Values
    median: Values
    lower_quartile: Values
    upper_quartile: Values
    order: NDArray[np.intp]


def query_difficulty(values: Values) -> Difficulty:
    """From per-query values of a measure, systems × queries. Raises ValueError where there is no system."""
    if values.ndim != 2 or not len(values):
        raise ValueError("values of at least one system, systems × queries")
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    mean = values.mean(axis=0)
    return Difficulty(mean, median, lower, upper, np.lexsort((np.arange(len(mean)), median, mean)))
