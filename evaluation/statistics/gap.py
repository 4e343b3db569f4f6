"""The contamination gap: how much more a system gains over BM25 on public topics than on hidden ones of the same kind.

    gap = Δ(open) − Δ(hidden),   Δ = the mean over topics of the system's value minus BM25's.

The halves have no topic in common, so that their topics are drawn again independently, and the interval of the
difference follows from those of the two means: with Δ in [l, u] for each half,

    gap − √((Δo − lo)² + (uh − Δh)²)   to   gap + √((uo − Δo)² + (Δh − lh)²).

This is MOVER, the method of variance estimates recovery: G. Y. Zou and A. Donner, Construction of confidence limits
about effect measures: a general approach, Statistics in Medicine 27(10), 2008. Where both intervals are percentile
bootstrap intervals, its ends are near those of the bootstrap of the difference itself (scipy.stats.bootstrap of two
samples): of simulated halves with 100 topics or more within 4 % of the interval's width, mostly within 2 %. Of fewer
topics they may be further off. It needs no value of a topic: of a half whose values by topic may not be read a bound on
the spread suffices.

The interval is two-sided at 95%, as all of the site's are. A gap is shown where the interval lies above 0, so that a
system without a gap is suspected once in 40 times at most: a false suspicion costs more than a missed one.

The least significant difference of two means is known from the values of one system alone. Two
systems on n queries whose values by query spread as those of one known system do, with the standard deviation s, have
means whose difference has a standard error of at most √2 · s / √n: that of unpaired values. Systems do well and
badly on the same queries, which makes the paired one smaller. T. Sakai (Topic set size design for paired and unpaired
data, ICTIR 2018) recommends the unpaired one where the variance of differences is not known: it suffices for paired
data too. So a difference is significant at α that is at least

    z · √2 · s / √n,   z = Φ⁻¹(1 − α / (m · (m − 1))),

for all pairs among m systems by Bonferroni's correction; with m = 2, one comparison, z is 1.96 at α = 0.05.
"""

from math import ceil, hypot, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Interval(NamedTuple):
    """A mean difference and the ends of its 95% interval."""

    value: float
    low: float
    high: float


def gap_between(public: Interval, hidden: Interval) -> Interval:
    """Return the gap between the gains over BM25 on both halves, more being better, with its interval."""
    gap = public.value - hidden.value
    return Interval(
        gap,
        gap - hypot(public.value - public.low, hidden.high - hidden.value),
        gap + hypot(public.high - public.value, hidden.value - hidden.low),
    )


def published_interval(difference: float, least: float, step: float) -> Interval:
    """Return the interval of a difference of two published values, which are rounded to steps.

    `least` is the least difference that is significant (`least_difference`), z times a bound on the standard error. The
    two values may be off by half a step each.
    """
    reach = least + step
    return Interval(difference, difference - reach, difference + reach)


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
