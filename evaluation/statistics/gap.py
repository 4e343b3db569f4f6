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
"""

from math import hypot
from typing import NamedTuple


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
