"""The paired randomisation test of a difference between means, for all pairs of a board at once.

If two systems were the same, each query's two values could as well be exchanged: the sign of its difference is random.
The p-value is the share of sign patterns whose difference is at least as large, either way, as the one observed
(Fisher 1935; for retrieval: Smucker, Allan & Carterette, CIKM 2007, who recommend it). Of drawn patterns it is
(b + 1) / (m + 1), so that it is never 0 (Phipson & Smyth, Stat. Appl. Genet. Mol. Biol. 9(1), 2010); where there are
no more patterns than would be drawn, all are counted, and it is exact.

What m patterns can tell ends at 1 / (m + 1), and a correction over a thousand systems would leave nothing of that. But
sums S of differences d with random signs are bounded, P(|S| ≥ |T|) ≤ 2 exp(−T² / (2 Σ d²)) (Hoeffding, JASA 58, 1963,
theorem 2): where that is below 1 / (m + 1), it is given instead. It is never smaller than the exact p-value.

Sums with random signs are linear in the values: they are found once for every system, as one matrix product, and the
sum of any pair's differences is the difference of two of them. So a board with one anchor, or with thirty, costs the
same product. Signs depend on the number of queries alone, and sums are exact: the p-value of a pair is the same to the
last bit whatever else is on the board.

Sums are exact on a grid. A sum of floating-point numbers depends on the order of its terms, and a matrix product adds
in an order that depends on how many columns it has. Multiples of a power of two whose sums stay below 2^53 have exact
sums (IEEE 754), in whatever order they are added.

Many tests at once are corrected. Holm's step-down correction (Scandinavian Journal of Statistics 6(2), 1979): the
chance of a single false finding among all tests of a family stays below the level, whatever their dependence.

`corrected_pairs` bounds that chance over all pairs of a board by Westfall & Young's free step-down procedure
(Resampling-Based Multiple Testing, 1993, algorithm 4.1): the statistic of a pair is compared with the greatest one of
all pairs that are not clearer, under the same random signs. The statistic is |Σ d| / √(Σ d²), d being the pair's
differences by query: signs leave the root as it is, so that pairs of different spread are weighed alike. Randomised
Tukey HSD (Carterette, ACM TOIS 30(1), 2012) has one critical difference for all pairs instead, which holds only where
all pairs spread alike: a pair that spreads more would be told apart too often.

Given any pairs that do not differ, signs are as likely as their opposites for each of them alone; jointly this holds
where differences are symmetric, and in the limit of many queries (Romano & Wolf, Econometrica 73(4), 2005).
"""

from collections.abc import Iterator
from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]

#: What draws begin with where nothing else is asked for. Boards, comparisons and the command line all keep to it, so
#: that a test has the same p-value, and a difference the same interval, wherever it is shown.
SEED = 1
#: What the test is called on pages and in captions.
TEST = "paired randomisation test"
#: Patterns drawn where nothing else is asked for.
PERMUTATIONS = 10_000
#: Numbers held at once in a block of signs: 32 MB.
_BLOCK = 4_000_000
#: Sums compared at once: 16 MB.
_COMPARED = 2_000_000


class PermutedSums:
    """The sum of each system's values under the same random signs; from them the p-value of any pair.

    `values` has the shape (queries, systems). Holds 8 bytes for each permutation of each system.
    """

    def __init__(self, values: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = SEED) -> None:
        self.values = round_to_grid(values)
        self.permutations = permutations
        queries, systems = self.values.shape
        #: The sums without signs, (systems,), and with them, (systems, permutations).
        self.totals = self.values.sum(axis=0)
        self.permuted = np.empty((systems, permutations))
        # Each value is moved to the grid by half its spacing at most, a difference by all of it, and a sum of them by
        # as often: two such sums on either side. Patterns that tie with the observed difference are thus never missed.
        self._slack = 2 * queries * spacing(queries)
        start = 0
        for signs in _signs(queries, permutations, seed):
            self.permuted[:, start : start + len(signs)] = (signs @ self.values).T
            start += len(signs)

    def p_values(self, anchor: int) -> Values:
        """Return the two-sided p-value of each system's difference to the system `anchor`, whose own is 1."""
        threshold = np.abs(self.totals - self.totals[anchor]) - self._slack
        rows = max(1, _COMPARED // max(1, self.permutations))
        extreme = np.concatenate(
            [
                self._extreme(slice(start, start + rows), anchor, threshold)
                for start in range(0, len(threshold), rows)
            ]
        )
        p = (extreme + 1.0) / (self.permutations + 1.0)
        clear = np.flatnonzero(extreme == 0)
        p[clear] = np.minimum(p[clear], hoeffding_bound(self.values[:, clear] - self.values[:, [anchor]]))
        differing = np.count_nonzero(self.values != self.values[:, [anchor]], axis=0)
        for system in np.flatnonzero(differing <= np.log2(self.permutations)):
            p[system] = exact_p(self.values[:, system] - self.values[:, anchor])
        return p

    def _extreme(self, systems: slice, anchor: int, threshold: Values) -> NDArray[np.int64]:
        differences = np.abs(self.permuted[systems] - self.permuted[anchor])
        counts: NDArray[np.int64] = np.count_nonzero(differences >= threshold[systems, None], axis=1)
        return counts


def randomisation_test(values: ArrayLike, anchor: int, *, permutations: int = PERMUTATIONS) -> Values:
    """Return the two-sided p-value of each system's mean difference to the system `anchor`, shape (systems,).

    As scipy.stats.permutation_test(…, permutation_type="samples") finds them one by one.
    """
    return PermutedSums(values, permutations=permutations).p_values(anchor)


def hoeffding_bound(differences: Values) -> Values:
    """What the p-values of these differences cannot exceed, (queries, systems) → (systems,)."""
    # Each system's row is summed by itself, in an order that does not depend on the other systems.
    by_system = np.ascontiguousarray(differences.T)
    squares, totals = np.square(by_system).sum(axis=1), by_system.sum(axis=1)
    bounds: Values = 2 * np.exp(-(totals**2) / (2 * np.maximum(squares, np.finfo(np.float64).tiny)))
    return np.minimum(1.0, bounds)


def exact_p(differences: ArrayLike) -> float:
    """Return the p-value over all sign patterns of the differences; those of 0 have no part in it."""
    found = np.asarray(differences, dtype=np.float64)
    found = found[found != 0]
    sums = np.zeros(1)
    for difference in found:
        sums = np.concatenate([sums + difference, sums - difference])
    slack = 2 * (len(found) + 1) * np.finfo(np.float64).eps * np.abs(found).sum()
    return float(np.mean(np.abs(sums) >= abs(found.sum()) - slack))


def _signs(queries: int, permutations: int, seed: int) -> Iterator[Values]:
    """Random signs, −1 and 1, in blocks of shape (permutations of the block, queries)."""
    generator = np.random.default_rng(seed)
    rows = max(1, min(permutations, _BLOCK // queries))
    for start in range(0, permutations, rows):
        block = min(rows, permutations - start)
        drawn = generator.integers(0, 256, size=(block, ceil(queries / 8)), dtype=np.uint8)
        signs = np.unpackbits(drawn, axis=1, count=queries).astype(np.float64)
        signs *= 2
        signs -= 1
        yield signs


#: Sums of values of 1 at most have so many bits at most: what is left of 53 is for values a little greater.
_BITS = 50


def spacing(queries: int) -> float:
    """Return the distance of neighbours on the grid for so many queries: 2^−37 (7e−12) for 7,000."""
    return 2.0 ** (ceil(log2(queries)) - _BITS)


def round_to_grid(values: ArrayLike) -> Values:
    """Values of the shape (queries, systems), each moved to the nearest point of the grid.

    Sums over queries, with any whole weights that sum to the number of queries in size, are exact for values between
    −8 and 8. Raises ValueError for another shape, and without a query.
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 2 or not len(found):
        raise ValueError("values must have the shape (queries, systems), with a query at least")
    unit = spacing(len(found))
    rounded: Values = np.round(found / unit) * unit
    return rounded


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


#: What the correction is called on pages and in captions.
PAIRS_CORRECTION = "Westfall–Young step-down"
#: Sign patterns used: any number gives a valid test, and the work is so many times the number of pairs.
PATTERNS = 1_000
#: Statistics held at once: 2 MB.
_STATISTICS_AT_ONCE = 250_000
#: Steps at the least, where there are so many pairs. Pairs of one step are compared with the greatest of all of them,
#: which can only raise their p-values.
_STEPS = 200


def corrected_pairs(sums: PermutedSums, *, patterns: int = PATTERNS) -> Values:
    """Return the corrected p-value of each pair's difference, shape (systems, systems), symmetric, 1 on the diagonal.

    The first `patterns` of those that `sums` has are used. No value is below 1 / (patterns + 1).
    """
    permuted = np.ascontiguousarray(sums.permuted[:, :patterns])
    patterns = permuted.shape[1]
    first, second = np.triu_indices(len(permuted), 1)
    # √(Σ d²) of each pair, in the order of numpy.triu_indices
    lengths = np.concatenate(
        [
            np.sqrt(np.square(sums.values[:, place + 1 :] - sums.values[:, [place]]).sum(axis=0))
            for place in range(sums.values.shape[1])
        ]
    )
    there = lengths > 0
    first, second, inverse = first[there], second[there], 1 / lengths[there]
    observed = np.abs(sums.totals[first] - sums.totals[second]) * inverse
    order = np.argsort(observed, kind="stable")
    exceeding = np.empty(len(order), dtype=np.int64)
    greatest = np.zeros(patterns)
    # What the grid may do to a difference is bounded by its spacing: patterns that tie with the observed one count.
    slack = 2 * len(sums.values) * spacing(len(sums.values))
    size = max(1, min(_STATISTICS_AT_ONCE // max(1, patterns), len(order) // _STEPS))
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


Ranks = NDArray[np.int64]


def rank_intervals(scores: ArrayLike, p_values: ArrayLike, *, level: float = 0.05) -> tuple[Ranks, Ranks]:
    """Return the first and the last rank that each system may have, two arrays of shape (systems,).

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
