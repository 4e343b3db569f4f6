"""Comparison of systems: bootstrap intervals of means, wins by query, and agreement of rankings and assessors.

Queries are resampled with replacement, and all systems use the same samples: a resample is a row of counts, so that the
means of all resamples are one matrix product. Samples depend only on the number of queries, and sums are exact (see
`randomisation`), so intervals do not depend on other systems of the board. The interval of a difference is the
interval of the mean of differences by query.

Intervals are percentile intervals (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13; for
retrieval: Sakai, SIGIR 2006). BCa would correct them for skewness, which matters if most queries score 0: on the 30
queries of TREC-COVID round 1 both differ by at most 0.006 for runs with an nDCG@10 above 0.4, and by 0.024 for a run
with 0.13. Percentile intervals are easier to verify, and BCa is undefined if all queries have the same value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.randomisation import PERMUTATIONS, SEED, randomisation_test, round_to_grid

Values = NDArray[np.float64]

#: Name of the method on pages.
INTERVAL = "percentile bootstrap"
#: Default number of resamples.
RESAMPLES = 10_000
#: Maximum number of values in a block of counts (16 MB).
_BLOCK = 2_000_000
#: Maximum number of systems with resampled means in memory (80 MB for 10,000 resamples).
_SYSTEMS = 1_000


def intervals(
    values: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = SEED,
    strata: Sequence[int] = (),
) -> tuple[Values, Values]:
    """Return bootstrap intervals of the systems' means.

    Equals scipy.stats.bootstrap(…, method="percentile") except for the samples.

    Args:
        values: Values of shape (queries, systems).
        resamples: Number of resamples.
        level: Confidence level.
        seed: Seed of the random generator.
        strata: Numbers of queries of consecutive strata, each resampled separately; if empty, there is one stratum.

    Returns:
        Lower and upper bounds, each of shape (systems,).

    Raises:
        ValueError: There are no queries, or the level is not between 0 and 1.
    """
    by_query = round_to_grid(values)
    if not 0 < level < 1:
        raise ValueError(f"the level must be between 0 and 1, not {level}")
    tail = (1 - level) / 2
    ends = np.empty((2, by_query.shape[1]))
    split_points = np.cumsum(strata)[:-1].astype(np.intp)
    for first_system in range(0, by_query.shape[1], _SYSTEMS):
        part = by_query[:, first_system : first_system + _SYSTEMS]
        sums = np.zeros((resamples, part.shape[1]))
        generator = np.random.default_rng(seed)
        for stratum in np.split(part, split_points):
            _add_resampled_sums(sums, stratum, generator)
        sums /= len(part)
        ends[:, first_system : first_system + _SYSTEMS] = np.quantile(sums, [tail, 1 - tail], axis=0)
    return ends[0], ends[1]


def _add_resampled_sums(sums: Values, values: Values, generator: np.random.Generator) -> None:
    """Add the sums of each resample of the values to `sums`, which has the shape (resamples, systems)."""
    queries = len(values)
    rows = max(1, min(len(sums), _BLOCK // queries))
    for start in range(0, len(sums), rows):
        block = min(rows, len(sums) - start)
        samples = generator.integers(0, queries, size=(block, queries), dtype=np.int32)
        samples += np.arange(block, dtype=np.int32)[:, None] * queries
        # The counts of each query in each resample have the shape (resamples, queries).
        counts = np.bincount(samples.ravel(), minlength=block * queries).reshape(block, queries)
        sums[start : start + block] += counts.astype(np.float64) @ values


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return Kendall's τ-b of two lists of scores (Biometrika 33(3), 1945), like scipy.stats.kendalltau.

    This is the number of concordant pairs minus that of discordant ones, divided by the geometric mean of the numbers
    of pairs that are not tied in each list. Returns None if a list has fewer than two scores or only ties.
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    balance, untied_x, untied_y = 0, 0, 0
    for index in range(len(x) - 1):
        signs_x, signs_y = np.sign(x[index + 1 :] - x[index]), np.sign(y[index + 1 :] - y[index])
        balance += int(signs_x @ signs_y)
        untied_x += int(np.count_nonzero(signs_x))
        untied_y += int(np.count_nonzero(signs_y))
    return balance / sqrt(untied_x * untied_y) if untied_x and untied_y else None


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Return Cohen's κ of two assessors (Educational and Psychological Measurement 20(1), 1960), like scikit-learn.

    κ = (p_o − p_e) / (1 − p_e), where p_o is the share of equal grades, and p_e the share expected by chance with the
    same frequencies of grades.

    Args:
        pairs: Grades of each document by both assessors.

    Returns:
        κ, or None if there are no pairs or both assessors assigned the same grade to all documents.
    """
    if not pairs:
        return None
    grades: NDArray[np.int64] = np.array(pairs, np.int64)
    equal = float(np.mean(grades[:, 0] == grades[:, 1]))
    shares = [(grades == grade).mean(axis=0) for grade in np.unique(grades)]
    chance = float(sum(share[0] * share[1] for share in shares))
    return (equal - chance) / (1 - chance) if chance < 1 else None


#: Maximum difference of tied values of a query.
TOLERANCE = 1e-9


class Counts(NamedTuple):
    """Numbers of queries on which systems are better than, equal to, or worse than another, shape (systems,)."""

    wins: NDArray[np.int64]
    ties: NDArray[np.int64]
    losses: NDArray[np.int64]


def count_wins(values: ArrayLike, baseline: int, *, lower_is_better: bool = False) -> Counts:
    """Count wins, ties, and losses of each system against the system with index `baseline`, by query.

    `values` has the shape (queries, systems).
    """
    by_query = np.asarray(values, dtype=np.float64)
    differences = by_query - by_query[:, [baseline]]
    higher_counts = np.count_nonzero(differences > TOLERANCE, axis=0)
    lower_counts = np.count_nonzero(differences < -TOLERANCE, axis=0)
    wins, losses = (lower_counts, higher_counts) if lower_is_better else (higher_counts, lower_counts)
    return Counts(wins, len(by_query) - higher_counts - lower_counts, losses)


@dataclass(frozen=True, slots=True)
class PairedResult:
    """Mean difference of two systems with its 95% interval, p-value, and wins, ties, and losses by query."""

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
    """Compare two systems by their values on the same queries.

    Args:
        a: Values of the first system, shape (queries,).
        b: Values of the second system, shape (queries,).
        permutations: Number of sign patterns of the test.
        resamples: Number of resamples of the interval.
        lower_is_better: Whether lower values are better.

    Returns:
        The comparison. The difference is a − b, and wins are wins of `a`. The p-value is uncorrected; use `holm` for
        several comparisons on a page.

    Raises:
        ValueError: The shapes differ or there are no queries.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"the values of both systems must be on the same queries, but have shapes {first.shape} and {second.shape}"
        )
    differences = first - second
    values = np.column_stack([first, second])
    low, high = intervals(differences[:, None], resamples=resamples)
    p = randomisation_test(values, 1, permutations=permutations)[0]
    wins, ties, losses = (int(count[0]) for count in count_wins(values, 1, lower_is_better=lower_is_better))
    return PairedResult(float(differences.mean()), float(low[0]), float(high[0]), float(p), wins, ties, losses)
