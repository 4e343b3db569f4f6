"""Many tests at once: corrections for a family of tests, and for all pairs of systems.

Holm's step-down correction: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
Statistics 6(2), 1979. The chance of a single false finding among all tests of a family stays below the level, whatever
their dependence.

`corrected_pairs` bounds that chance over all pairs of a board by Westfall & Young's free step-down procedure
(Resampling-Based Multiple Testing, 1993, algorithm 4.1): the statistic of a pair is compared with the greatest one of
all pairs that are not clearer, under the same random signs. The statistic is |Σ d| / √(Σ d²), d being the pair's
differences by query: signs leave the root as it is, so that pairs of different spread are weighed alike. Randomised
Tukey HSD (Carterette, ACM TOIS 30(1), 2012) has one critical difference for all pairs instead, which holds only where
all pairs spread alike: a pair that spreads more would be told apart too often.

Given any pairs that do not differ, signs are as likely as their opposites for each of them alone; jointly this holds
where differences are symmetric, and in the limit of many queries (Romano & Wolf, Econometrica 73(4), 2005).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.grid import spacing
from evaluation.statistics.randomisation import PermutedSums

#: What the correction is called on pages and in captions.
CORRECTION = "Holm"


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values of one family, shape (tests,); missing ones (NaN) stay missing and do not count as tests.

    The i-th smallest of m is the greatest of (m − j + 1) · p₍ⱼ₎ over j ≤ i, at most 1.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(raw.shape, np.nan)
    there = np.flatnonzero(~np.isnan(raw))
    order = there[np.argsort(raw[there], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * raw[order]))
    return adjusted


Values = NDArray[np.float64]

#: What the correction is called on pages and in captions.
PAIRS_CORRECTION = "Westfall–Young step-down"
#: Sign patterns used: any number gives a valid test, and the work is so many times the number of pairs.
PATTERNS = 1_000
#: Statistics held at once: 2 MB.
_BLOCK = 250_000
#: Steps at the least, where there are so many pairs. Pairs of one step are compared with the greatest of all of them,
#: which can only raise their p-values.
_STEPS = 200


def corrected_pairs(sums: PermutedSums, *, patterns: int = PATTERNS) -> Values:
    """The corrected p-value of each pair's difference, shape (systems, systems), symmetric, 1 on the diagonal.

    The first `patterns` of those that `sums` has are used. No value is below 1 / (patterns + 1).
    """
    permuted = np.ascontiguousarray(sums.permuted[:, :patterns])
    patterns = permuted.shape[1]
    first, second = np.triu_indices(len(permuted), 1)
    lengths = _lengths(sums.values)
    there = lengths > 0
    first, second, inverse = first[there], second[there], 1 / lengths[there]
    observed = np.abs(sums.totals[first] - sums.totals[second]) * inverse
    order = np.argsort(observed, kind="stable")
    exceeding = np.empty(len(order), dtype=np.int64)
    greatest = np.zeros(patterns)
    # What the grid may do to a difference is bounded by its spacing: patterns that tie with the observed one count.
    slack = 2 * len(sums.values) * spacing(len(sums.values))
    size = max(1, min(_BLOCK // max(1, patterns), len(order) // _STEPS))
    for start in range(0, len(order), size):
        block = order[start : start + size]
        statistics = permuted[first[block]]
        statistics -= permuted[second[block]]
        np.abs(statistics, out=statistics)
        statistics *= inverse[block, None]
        np.maximum(greatest, statistics.max(axis=0), out=greatest)
        threshold = observed[block] * (1 - 1e-12) - slack * inverse[block]
        exceeding[block] = patterns - np.searchsorted(np.sort(greatest), threshold)
    # Step-down: no pair may have a lower value than a clearer one.
    p = (exceeding + 1.0) / (patterns + 1.0)
    p[order[::-1]] = np.maximum.accumulate(p[order[::-1]])
    found = np.ones((len(permuted), len(permuted)))
    found[first, second] = found[second, first] = p
    return found


def _lengths(values: Values) -> Values:
    """√(Σ d²) of each pair, in the order of numpy.triu_indices."""
    parts = [
        np.sqrt(np.square(values[:, place + 1 :] - values[:, [place]]).sum(axis=0))
        for place in range(values.shape[1])
    ]
    return np.concatenate(parts)


Ranks = NDArray[np.int64]


def rank_intervals(scores: ArrayLike, p_values: ArrayLike, *, level: float = 0.05) -> tuple[Ranks, Ranks]:
    """The first and the last rank that each system may have, two arrays of shape (systems,).

    `scores` has the shape (systems,), higher being better; `p_values`, of shape (systems, systems), are corrected over
    all pairs. Pairs spread differently, so that a system might be held to worse ranks than one that scores below it. So
    that both ends follow the scores, the first rank is the least of those of all that score no higher, and the last one
    the greatest of all that score no lower: intervals grow by this, which keeps the confidence.
    """
    oriented = np.asarray(scores, dtype=np.float64)
    apart = np.asarray(p_values, dtype=np.float64) < level
    higher = oriented[None, :] > oriented[:, None]
    first = 1 + np.count_nonzero(apart & higher, axis=1)
    last = len(oriented) - np.count_nonzero(apart & higher.T, axis=1)
    order = np.argsort(-oriented, kind="stable")
    first[order] = np.minimum.accumulate(first[order][::-1])[::-1]
    last[order] = np.maximum.accumulate(last[order])
    for equal in np.unique(oriented):
        alike = oriented == equal
        first[alike], last[alike] = first[alike].min(), last[alike].max()
    return first, last
