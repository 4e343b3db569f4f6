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
same product. Signs depend on the number of queries alone, and sums are exact (`grid`): the p-value of a pair is the
same to the last bit whatever else is on the board.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics import SEED
from evaluation.statistics.grid import round_to_grid, spacing

Values = NDArray[np.float64]

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
        """The two-sided p-value of each system's difference to the system `anchor`, whose own is 1."""
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


def randomisation_test(
    values: ArrayLike, anchor: int, *, permutations: int = PERMUTATIONS, seed: int = SEED
) -> Values:
    """The two-sided p-value of each system's mean difference to the system `anchor`, shape (systems,).

    As scipy.stats.permutation_test(…, permutation_type="samples") finds them one by one.
    """
    return PermutedSums(values, permutations=permutations, seed=seed).p_values(anchor)


def hoeffding_bound(differences: Values) -> Values:
    """What the p-values of these differences cannot exceed, (queries, systems) → (systems,)."""
    # Each system's row is summed by itself, in an order that does not depend on the other systems.
    by_system = np.ascontiguousarray(differences.T)
    squares, totals = np.square(by_system).sum(axis=1), by_system.sum(axis=1)
    bounds: Values = 2 * np.exp(-(totals**2) / (2 * np.maximum(squares, np.finfo(np.float64).tiny)))
    return np.minimum(1.0, bounds)


def exact_p(differences: ArrayLike) -> float:
    """The p-value over all sign patterns of the differences; those of 0 have no part in it."""
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
