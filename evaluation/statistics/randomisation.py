"""Paired randomization tests of differences between means, for all pairs of a board at once.

If two systems are equal, the two values of each query are exchangeable, so the sign of their difference is random. The
p-value is the share of sign patterns with an absolute difference of at least the observed one (Fisher 1935; recommended
for retrieval by Smucker, Allan & Carterette, CIKM 2007). For random patterns it is (b + 1) / (m + 1), which is never 0
(Phipson & Smyth, Stat. Appl. Genet. Mol. Biol. 9(1), 2010). All patterns are used for up to `MAX_EXACT` values, so that
p-values are exact, do not depend on a seed, and are never decreased by a correction.

With m patterns, p-values are at least 1 / (m + 1), which a correction over a thousand systems would make useless.
However, sums S of differences d with random signs satisfy P(|S| ≥ |T|) ≤ 2 exp(−T² / (2 Σ d²)) (Hoeffding, JASA 58,
1963, theorem 2). This bound, which is never smaller than the exact p-value, is used if it is below 1 / (m + 1).

Sums with random signs are linear in the values. A matrix product computes them once for each system, and the sum
of a pair's differences is the difference of two of them, so further anchors of a board need no other product. Signs
depend only on the number of queries, and sums are exact, so p-values do not depend on other systems of the board.

Sums are exact on a grid. In general, sums of floating-point numbers depend on the order of terms, which depends on the
number of columns in a matrix product. Multiples of a power of two with sums below 2^53 have exact sums in any order
(IEEE 754).

For several tests, Holm's step-down correction (Scandinavian Journal of Statistics 6(2), 1979) limits the probability of
any false positive in a family of tests to the level, for any dependence between the tests.

`corrected_pairs` limits that probability for all pairs of a board by Westfall & Young's free step-down procedure
(Resampling-Based Multiple Testing, 1993, algorithm 4.1): the statistic of a pair is compared with the maximum over all
pairs with smaller statistics, under the same random signs. The statistic is |Σ d| / √(Σ d²) with the pair's differences
d by query. Signs do not change the denominator, so pairs with different spread are treated equally. Randomized Tukey
HSD (Carterette, ACM TOIS 30(1), 2012) uses one critical difference for all pairs instead, which requires that all pairs
have the same spread: pairs with more would be significant too often.

For pairs that do not differ, both signs are equally likely for each pair. Jointly, this holds for symmetric
differences, and asymptotically for many queries (Romano & Wolf, Econometrica 73(4), 2005).
"""

from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]

#: Default seed. Boards, comparisons, and the command line use the same seed, so that they show the same p-values and
#: intervals.
SEED = 1
#: Name of the test on pages and in captions.
TEST = "paired randomization test"
#: Default number of sign patterns.
PERMUTATIONS = 10_000
#: Maximum number of values, such as datasets, for which all sign patterns are used (32,768).
MAX_EXACT = 15
#: Maximum number of values in a block of signs (32 MB).
_BLOCK = 4_000_000
#: Maximum number of sums that are compared at a time (16 MB).
_MAX_COMPARED_SUMS = 2_000_000


def all_subsets(size: int) -> NDArray[np.int64]:
    """Return the members of all subsets as 0 and 1, shape (2^size, size). The first half lacks the last member."""
    return (np.arange(2**size)[:, None] >> np.arange(size)) & 1


class PermutedSums:
    """Sums of each system's values under the same signs, from which the p-value of any pair follows.

    Uses 8 bytes of memory for each sign pattern of each system. With up to `MAX_EXACT` queries, all patterns are used
    (`is_exact`). Only one of two opposite patterns is stored, because their sums have the same absolute value.

    Args:
        values: Values of shape (queries, systems).
        permutations: Number of random sign patterns.
        seed: Seed of the random generator.
    """

    def __init__(self, values: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = SEED) -> None:
        self.values = round_to_grid(values)
        queries, systems = self.values.shape
        self.is_exact = queries <= MAX_EXACT
        self.permutations = permutations = 2 ** (queries - 1) if self.is_exact else permutations
        #: Sums without signs, shape (systems,), and with them, shape (systems, permutations).
        self.totals = self.values.sum(axis=0)
        self.permuted = np.empty((systems, permutations))
        # Rounding to the grid changes a value by at most half the spacing, a difference by the spacing, and a sum of
        # differences by `queries` times that. Two sums are compared, so that ties with the observed one always count.
        self._slack = 2 * queries * spacing(queries)
        if self.is_exact:
            self.permuted[:] = ((1.0 - 2 * all_subsets(queries)[:permutations]) @ self.values).T
            return
        generator = np.random.default_rng(seed)
        rows = max(1, min(permutations, _BLOCK // queries))
        for start in range(0, permutations, rows):
            block = min(rows, permutations - start)
            random_bytes = generator.integers(0, 256, size=(block, ceil(queries / 8)), dtype=np.uint8)
            signs = np.unpackbits(random_bytes, axis=1, count=queries).astype(np.float64)
            signs *= 2
            signs -= 1
            self.permuted[:, start : start + block] = (signs @ self.values).T

    def p_values(self, anchor: int) -> Values:
        """Return the two-sided p-value of each system's difference to the system `anchor`, 1 for the anchor itself.

        It is exact if few queries differ, and at most Hoeffding's bound if no random pattern reaches the difference.
        """
        threshold = np.abs(self.totals - self.totals[anchor]) - self._slack
        rows = max(1, _MAX_COMPARED_SUMS // max(1, self.permutations))
        extreme = np.concatenate(
            [
                self._count_extreme(slice(start, start + rows), anchor, threshold)
                for start in range(0, len(threshold), rows)
            ]
        )
        if self.is_exact:
            return extreme / self.permutations
        p = (extreme + 1.0) / (self.permutations + 1.0)
        zeros = np.flatnonzero(extreme == 0)
        p[zeros] = np.minimum(p[zeros], hoeffding_bound(self.values[:, zeros] - self.values[:, [anchor]]))
        differing = np.count_nonzero(self.values != self.values[:, [anchor]], axis=0)
        for system in np.flatnonzero(differing <= np.log2(self.permutations)):
            p[system] = exact_p(self.values[:, system] - self.values[:, anchor], self._slack)
        return p

    def _count_extreme(self, systems: slice, anchor: int, threshold: Values) -> NDArray[np.int64]:
        differences = np.abs(self.permuted[systems] - self.permuted[anchor])
        counts: NDArray[np.int64] = np.count_nonzero(differences >= threshold[systems, None], axis=1)
        return counts


def randomisation_test(values: ArrayLike, anchor: int, *, permutations: int = PERMUTATIONS) -> Values:
    """Return the two-sided p-value of each system's mean difference to the system `anchor`, shape (systems,).

    Corresponds to scipy.stats.permutation_test(…, permutation_type="samples") for each system.
    """
    return PermutedSums(values, permutations=permutations).p_values(anchor)


def hoeffding_bound(differences: Values) -> Values:
    """Return upper bounds of the p-values of the systems' differences, shape (systems,).

    `differences` has the shape (queries, systems).
    """
    # Each row is summed separately, in an order that does not depend on the other systems.
    by_system = np.ascontiguousarray(differences.T)
    squares, totals = np.square(by_system).sum(axis=1), by_system.sum(axis=1)
    bounds: Values = 2 * np.exp(-(totals**2) / (2 * np.maximum(squares, np.finfo(np.float64).tiny)))
    return np.minimum(1.0, bounds)


def exact_p(differences: ArrayLike, slack: float = 0.0) -> float:
    """Return the two-sided p-value over all sign patterns of the nonzero differences of one pair of systems.

    Sums that are smaller than the observed one by at most `slack` count as equal to it.
    """
    nonzero = np.asarray(differences, dtype=np.float64)
    nonzero = nonzero[nonzero != 0]
    sums = np.zeros(1)
    for difference in nonzero:
        sums = np.concatenate([sums + difference, sums - difference])
    slack += 2 * (len(nonzero) + 1) * np.finfo(np.float64).eps * np.abs(nonzero).sum()
    return float(np.mean(np.abs(sums) >= abs(nonzero.sum()) - slack))


#: Maximum bits of sums of values up to 1. The remaining bits of 53 allow for somewhat larger values.
_BITS = 50


def spacing(queries: int) -> float:
    """Return the power of two to whose multiples values are rounded, for a number of queries.

    It is 2^−37 (7e−12) for 7,000 queries. Sums of multiples are exact.
    """
    return 2.0 ** (ceil(log2(queries)) - _BITS)


def round_to_grid(values: ArrayLike) -> Values:
    """Return values of shape (queries, systems), rounded to multiples of `spacing` of the number of queries.

    For values between −8 and 8, sums over queries are exact, also with integer weights if their absolute values sum to
    the number of queries. Raises ValueError for another shape and without queries.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not len(array):
        raise ValueError("values must have the shape (queries, systems), with at least one query")
    unit = spacing(len(array))
    rounded: Values = np.round(array / unit) * unit
    return rounded


#: Name of the correction on pages and in captions.
CORRECTION = "Holm"


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the adjusted p-values of one family, shape (tests,). Missing ones (NaN) do not count as tests.

    The i-th smallest of m adjusted values is the maximum of (m − j + 1) · p₍ⱼ₎ over j ≤ i, at most 1.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(raw.shape, np.nan)
    valid_indices = np.flatnonzero(~np.isnan(raw))
    order = valid_indices[np.argsort(raw[valid_indices], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * raw[order]))
    return adjusted


#: Name of the correction on pages and in captions.
PAIRS_CORRECTION = "Westfall–Young step-down"
#: Default number of random sign patterns. Any number is valid, and the work is proportional to it.
PATTERNS = 1_000
#: Maximum number of statistics in memory (2 MB).
_STATISTICS_AT_ONCE = 250_000
#: Minimum number of steps, if there are enough pairs. Pairs of a step are compared with the maximum of all of them,
#: which can only increase their p-values.
_STEPS = 200


def corrected_pairs(sums: PermutedSums, *, patterns: int = PATTERNS) -> Values:
    """Return the corrected p-value of each pair's difference, shape (systems, systems), symmetric, 1 on the diagonal.

    Uses the first `patterns` random sign patterns of `sums`, so that p-values are at least 1 / (patterns + 1), or all
    patterns of exact sums.
    """
    permuted = sums.permuted if sums.is_exact else np.ascontiguousarray(sums.permuted[:, :patterns])
    patterns = permuted.shape[1]
    first, second = np.triu_indices(len(permuted), 1)
    # √(Σ d²) of each pair, in the order of np.triu_indices.
    lengths = np.concatenate(
        [
            np.sqrt(np.square(sums.values[:, index + 1 :] - sums.values[:, [index]]).sum(axis=0))
            for index in range(sums.values.shape[1])
        ]
    )
    is_different = lengths > 0
    first, second, inverse = first[is_different], second[is_different], 1 / lengths[is_different]
    observed = np.abs(sums.totals[first] - sums.totals[second]) * inverse
    order = np.argsort(observed, kind="stable")
    exceeding_counts = np.empty(len(order), dtype=np.int64)
    maxima = np.zeros(patterns)
    # Rounding errors of the grid are bounded by its spacing, so that patterns that tie with the observed one count.
    slack = 2 * len(sums.values) * spacing(len(sums.values))
    size = max(1, min(_STATISTICS_AT_ONCE // max(1, patterns), len(order) // _STEPS))
    for start in range(0, len(order), size):
        block = order[start : start + size]
        statistics = permuted[first[block]]
        statistics -= permuted[second[block]]
        np.abs(statistics, out=statistics)
        statistics *= inverse[block, None]
        threshold = observed[block] * (1 - 1e-12) - slack * inverse[block]
        if sums.is_exact:  # Each pair is a step of its own.
            np.maximum(statistics[0], maxima, out=statistics[0])
            np.maximum.accumulate(statistics, axis=0, out=statistics)
            maxima = statistics[-1]
            exceeding_counts[block] = np.count_nonzero(statistics >= threshold[:, None], axis=1)
        else:
            np.maximum(maxima, statistics.max(axis=0), out=maxima)
            exceeding_counts[block] = patterns - np.searchsorted(np.sort(maxima), threshold)
    # Step-down: p-values must not decrease from larger to smaller statistics.
    p = exceeding_counts / patterns if sums.is_exact else (exceeding_counts + 1.0) / (patterns + 1.0)
    p[order[::-1]] = np.maximum.accumulate(p[order[::-1]])
    result = np.ones((len(permuted), len(permuted)))
    result[first, second] = result[second, first] = p
    return result


Ranks = NDArray[np.int64]


def rank_intervals(scores: ArrayLike, p_values: ArrayLike, *, level: float = 0.05) -> tuple[Ranks, Ranks]:
    """Return the best and worst rank that each system may have, two arrays of shape (systems,).

    The best rank is 1 + the number of significantly better systems, and the worst rank is the number of systems minus
    the number of significantly worse ones (Mogstad, Romano, Shaikh & Wilhelm 2024). Differences vary in variance, so a
    system can have a better best rank than one with a higher score.

    Args:
        scores: Scores of shape (systems,), higher being better.
        p_values: P-values of shape (systems, systems), corrected for all pairs.
        level: Significance level.
    """
    score_values = np.asarray(scores, dtype=np.float64)
    is_significant = np.asarray(p_values, dtype=np.float64) < level
    is_higher = score_values[None, :] > score_values[:, None]
    best_ranks = 1 + np.count_nonzero(is_significant & is_higher, axis=1)
    worst_ranks = len(score_values) - np.count_nonzero(is_significant & is_higher.T, axis=1)
    return best_ranks, worst_ranks
