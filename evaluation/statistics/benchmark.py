"""Significance of mean differences over the datasets of a benchmark, for two questions.

*Over queries:* would the difference hold for other queries on the same datasets? `stack_queries` weights the values of
all queries so that their mean is the mean of the datasets' means. The tests of `randomisation` apply unchanged, since
under the null hypothesis the sign of each query's difference is random whatever its weight, and `comparison.intervals`
resamples within each dataset (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, section 8.3).

*Over datasets:* would it hold on other datasets like these? Only the datasets' means are needed, which publications
report. The tests of `randomisation` use one sign per dataset, and `subset_intervals` returns the range of differences
that they do not reject. The coverage of the percentile bootstrap is too low for such small samples: see
docs/measurements/benchmark_certainty.md.
"""

from collections.abc import Sequence
from math import floor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.randomisation import MAX_EXACT, PERMUTATIONS, SEED, all_subsets

Values = NDArray[np.float64]

#: Minimum number of datasets. With fewer, even the smallest p-value of a test over datasets, 2 / 2^n, is above 0.05.
MIN_DATASETS = 6


def stack_queries(values: Sequence[ArrayLike], weights: Sequence[float]) -> Values:
    """Return weighted values of all queries of a benchmark, whose mean is the weighted mean of the datasets' means.

    Args:
        values: Values of each dataset, of shape (queries, systems) with the same systems.
        weights: Weight of each dataset. The weights sum to 1.

    Returns:
        Values of shape (queries of all datasets, systems), in the order of the datasets.
    """
    arrays = [np.asarray(dataset, dtype=np.float64) for dataset in values]
    total = sum(map(len, arrays))
    return np.vstack([array * (weight * total / len(array)) for array, weight in zip(arrays, weights, strict=True)])


def subset_intervals(
    values: ArrayLike, *, level: float = 0.95, subsets: int = PERMUTATIONS, seed: int = SEED
) -> tuple[Values, Values]:
    """Return intervals of the systems' means from the means of subsets of the datasets.

    If a distribution is symmetric, its center is equally likely to be between any two neighboring means of all nonempty
    subsets of a sample (Hartigan, Using subsample values as typical values, JASA 64(328), 1969, theorem 1). The
    interval excludes 0 if and only if the test over all sign patterns rejects it, because each sign pattern
    corresponds to a subset. With more than `MAX_EXACT` datasets and `subsets` subsets, random ones are used, and the
    interval and the test may disagree for p-values close to 1 − `level`.

    Args:
        values: Values of shape (datasets, systems).
        level: Minimum confidence level.
        subsets: Number of random subsets, including the empty one.
        seed: Seed of the random generator.

    Returns:
        Lower and upper bounds, each of shape (systems,).

    Raises:
        ValueError: There are too few datasets for the level.
    """
    dataset_means = np.asarray(values, dtype=np.float64)
    datasets = len(dataset_means)
    if 2**datasets <= max(subsets, 2**MAX_EXACT):
        members = all_subsets(datasets)[1:]
    else:
        members = np.random.default_rng(seed).integers(0, 2, size=(subsets, datasets))
        members = members[members.any(axis=1)]
    rank = floor((1 - level) / 2 * (len(members) + 1) + 1e-9)
    if not rank:
        raise ValueError(f"an interval at the level {level} needs more than {datasets} datasets")
    means = members @ dataset_means / members.sum(axis=1, keepdims=True)
    means.partition((rank - 1, len(means) - rank), axis=0)
    return means[rank - 1], means[len(means) - rank]
