"""The contamination gap: a system's larger gain over BM25 on public topics than on hidden ones of the same kind.

    gap = Δ(open) − Δ(hidden),   Δ = mean over topics of the system's value minus BM25's.

The halves have no topics in common and are resampled independently, so the interval of the difference follows from
the intervals of the two means. With Δ in [l, u] for each half, it is

    gap − √((Δo − lo)² + (uh − Δh)²)   to   gap + √((uo − Δo)² + (Δh − lh)²).

This is MOVER, the method of variance estimates recovery: G. Y. Zou and A. Donner, Construction of confidence limits
about effect measures: a general approach, Statistics in Medicine 27(10), 2008. For percentile bootstrap intervals,
the result is close to bootstrapping the difference itself (scipy.stats.bootstrap of two samples): for simulated
halves of at least 100 topics the bounds differ by up to 4% of the interval's width, and mostly by less than 2%. For
fewer topics they may differ more. MOVER does not need values by topic: if the values of one half are confidential, a
bound on their spread is sufficient.

Intervals are two-sided at 95%, like all on the site. A gap is shown if its interval is above 0, so that at most one in
40 systems without a gap is suspected: a false suspicion is worse than a missed gap.

The least significant difference of two means can be estimated from the values of one system. If the values of two
systems on n queries have its standard deviation s, the difference of their means has a standard error of at most
√2 · s / √n, as for unpaired values. The standard error of paired values is smaller, because systems perform well and
badly on the same queries. T. Sakai (Topic set size design for paired and unpaired data, ICTIR 2018) recommends the
unpaired one if the variance of differences is unknown, since it is sufficient for paired data too. A difference is
therefore significant at level α if it is at least

    z · √2 · s / √n,   z = Φ⁻¹(1 − α / (m · (m − 1))),

for all pairs among m systems with Bonferroni's correction. For one comparison (m = 2), z is 1.96 at α = 0.05.
"""

from math import ceil, hypot, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Interval(NamedTuple):
    """A mean difference with its 95% confidence interval."""

    value: float
    low: float
    high: float


def compute_gap(public: Interval, hidden: Interval) -> Interval:
    """Return the public gain over BM25 minus the hidden one, with its interval. Higher gains are better."""
    gap = public.value - hidden.value
    return Interval(
        gap,
        gap - hypot(public.value - public.low, hidden.high - hidden.value),
        gap + hypot(public.high - public.value, hidden.value - hidden.low),
    )


def published_interval(difference: float, least_significant: float, step: float) -> Interval:
    """Return the interval of a difference between two published values, each of which is rounded to `step`.

    `least_significant` is the least significant difference (`least_difference`), which is z times a bound on the
    standard error. Each value may be off by half a step.
    """
    reach = least_significant + step
    return Interval(difference, difference - reach, difference + reach)


#: Step to which least significant differences are rounded up.
STEP = 0.005


def least_difference(values: ArrayLike, *, alpha: float, step: float = STEP) -> float:
    """Return the least significant difference to a system with these values by query, rounded up to steps.

    `alpha` is the significance level. The result is at least one step, and infinite for fewer than two queries.
    """
    by_query = np.asarray(values, dtype=np.float64)
    if by_query.ndim != 1 or len(by_query) < 2:
        return inf
    unrounded = _quantile(alpha, 2) * sqrt(2 / len(by_query)) * float(by_query.std(ddof=1))
    return max(1, ceil(unrounded / step - 1e-9)) * step


def extend_to_all_pairs(least_significant: float, systems: int, *, alpha: float) -> float:
    """Convert a least significant difference of two systems to one for all pairs of `systems` systems."""
    return least_significant * _quantile(alpha, max(systems, 2)) / _quantile(alpha, 2)


def _quantile(alpha: float, systems: int) -> float:
    return NormalDist().inv_cdf(1 - alpha / (systems * (systems - 1)))
