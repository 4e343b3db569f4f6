"""Which difference of two means is significant, known from the values of one system alone.

Two systems on n queries whose values by query spread as those of one known system do, with the standard deviation s,
have means whose difference has a standard error of at most √2 · s / √n: that of unpaired values. Systems do well and
badly on the same queries, which makes the paired one smaller. T. Sakai (Topic set size design for paired and unpaired
data, ICTIR 2018) recommends the unpaired one where the variance of differences is not known: it suffices for paired
data too. So a difference is significant at α that is at least

    z · √2 · s / √n,   z = Φ⁻¹(1 − α / (m · (m − 1))),

for all pairs among m systems by Bonferroni's correction; with m = 2, one comparison, z is 1.96 at α = 0.05.
"""

from math import ceil, inf, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

#: Least differences are told in these steps, rounded up.
STEP = 0.005


def least_difference(values: ArrayLike, *, alpha: float, step: float = STEP) -> float:
    """The least significant difference to a system with these values by query, rounded up to steps, one at least.

    Infinite for fewer than two queries, which have no deviation.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or len(given) < 2:
        return inf
    exact = _quantile(alpha, 2) * sqrt(2 / len(given)) * float(given.std(ddof=1))
    return max(1, ceil(exact / step - 1e-9)) * step


def among(least: float, systems: int, *, alpha: float) -> float:
    """What a least difference of two systems becomes for all pairs among so many."""
    return least * _quantile(alpha, max(systems, 2)) / _quantile(alpha, 2)


def _quantile(alpha: float, systems: int) -> float:
    return NormalDist().inv_cdf(1 - alpha / (systems * (systems - 1)))
