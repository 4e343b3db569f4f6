"""Two systems side by side: wins, ties and losses by query, and all that is known of their difference."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.bootstrap import RESAMPLES, intervals
from evaluation.statistics.randomisation import PERMUTATIONS, randomisation_test

#: Values of a query that differ by no more are equal.
TOLERANCE = 1e-9


class Counts(NamedTuple):
    """On how many queries each system is better than, equal to and worse than another: arrays of shape (systems,)."""

    wins: NDArray[np.int64]
    ties: NDArray[np.int64]
    losses: NDArray[np.int64]


def count_wins(values: ArrayLike, baseline: int, *, lower_is_better: bool = False) -> Counts:
    """Wins, ties and losses by query of each system against the system `baseline`; `values` is (queries, systems)."""
    by_query = np.asarray(values, dtype=np.float64)
    differences = by_query - by_query[:, [baseline]]
    above = np.count_nonzero(differences > TOLERANCE, axis=0)
    below = np.count_nonzero(differences < -TOLERANCE, axis=0)
    wins, losses = (below, above) if lower_is_better else (above, below)
    return Counts(wins, len(by_query) - above - below, losses)


@dataclass(frozen=True, slots=True)
class PairedResult:
    """The mean difference of two systems, its 95% interval, the p-value, and wins, ties and losses by query."""

    difference: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    lower_is_better: bool = False,
) -> PairedResult:
    """Compare the values of two systems on the same queries, arrays of shape (queries,).

    The difference is a − b; wins are `a`'s. The p-value is uncorrected: correct those of one page with `holm`.
    Raises ValueError where the shapes differ or there is no query.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"two systems need values on the same queries, not {first.shape} and {second.shape}")
    differences = first - second
    values = np.column_stack([first, second])
    low, high = intervals(differences[:, None], resamples=resamples)
    p = randomisation_test(values, 1, permutations=permutations)[0]
    wins, ties, losses = (int(count[0]) for count in count_wins(values, 1, lower_is_better=lower_is_better))
    return PairedResult(
        float(differences.mean()), float(low[0]), float(high[0]), float(p), wins, ties, losses
    )
