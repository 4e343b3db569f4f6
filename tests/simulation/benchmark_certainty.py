"""Coverage of the 95% intervals of a benchmark's mean differences, over queries and over datasets.

    PYTHONPATH=. python tests/simulation/benchmark_certainty.py --write docs/measurements/benchmark_certainty.md

Each draw is a benchmark: datasets differ in difficulty and in the number of queries, each system gains a different
amount on each dataset, and a third to a half of the values are 0, as with nDCG@10. A value is 1 − exp(−u) for a normal
u above 0, so that all true means follow from one integral. Intervals are those of the site.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.benchmark import stack_queries, subset_intervals
from evaluation.statistics.comparison import intervals
from evaluation.statistics.randomisation import PermutedSums, corrected_pairs, rank_intervals
from tests.figures import Figures, add_option

Values = NDArray[np.float64]

DATASETS = (7, 10, 15)
DRAWS = 1_000
RESAMPLES = 1_000
#: Average gains of 40 systems over the baseline, which is the first of them.
GAINS = np.repeat([0.0, 0.05, 0.1, 0.2, 0.3], 8)
#: Mean of u, and standard deviations of u over datasets, of gains over datasets, of queries, and of systems on a query.
MEAN, DIFFICULTY, GAIN, QUERY, SYSTEM = 0.3, 0.4, 0.15, 1.0, 0.5
#: Range of the number of queries of a dataset.
MIN_QUERIES, MAX_QUERIES = 50, 500
#: Accepted coverage of 95% intervals.
MIN_COVERAGE, MAX_COVERAGE = 0.93, 0.97


class Benchmark(NamedTuple):
    """Values of each dataset, of shape (queries, systems), and true means over its queries, (datasets, systems)."""

    values: list[Values]
    means: Values


class Coverage(NamedTuple):
    """Shares of intervals with the true value, and of benchmarks whose rank ranges include all true ranks."""

    over_queries: float
    over_datasets: float
    percentile: float
    ranges_over_queries: float
    ranges_over_datasets: float


def true_mean(center: Values, deviation: float) -> Values:
    """Return the expected value of a query, 1 − exp(−max(u, 0)), for normal u with this mean and deviation."""
    points = np.linspace(-6, 6, 2_001)
    density = np.exp(-(points**2) / 2)
    u = np.asarray(center)[..., None] + deviation * points
    return (-np.expm1(-np.maximum(u, 0)) * density).sum(axis=-1) / density.sum()


def draw_benchmark(datasets: int, generator: np.random.Generator) -> Benchmark:
    """Return a random benchmark with `datasets` datasets."""
    systems = len(GAINS)
    difficulty = generator.normal(MEAN, DIFFICULTY, (datasets, 1))
    centers = difficulty + GAINS + generator.normal(0, GAIN, (datasets, systems))
    sizes = np.exp(generator.uniform(np.log(MIN_QUERIES), np.log(MAX_QUERIES), datasets)).astype(int)
    values = []
    for center, size in zip(centers, sizes, strict=True):
        u = center + generator.normal(0, QUERY, (size, 1)) + generator.normal(0, SYSTEM, (size, systems))
        values.append(-np.expm1(-np.maximum(u, 0)))
    return Benchmark(values, true_mean(centers, float(np.hypot(QUERY, SYSTEM))))


def measure_coverage(datasets: int, draws: int, seed: int = 1) -> Coverage:
    """Return the coverage over random benchmarks with `datasets` datasets."""
    generator = np.random.default_rng(seed)
    # Over all datasets, u is normal, too.
    population = true_mean(MEAN + GAINS, float(np.linalg.norm([DIFFICULTY, GAIN, QUERY, SYSTEM])))
    hits = [_check_draw(draw_benchmark(datasets, generator), population) for _ in range(draws)]
    return Coverage(*np.mean(hits, axis=0).tolist())


def _check_draw(benchmark: Benchmark, population: Values) -> list[float]:
    """Return the fields of `Coverage` for one benchmark."""
    stacked = stack_queries(benchmark.values, [1 / len(benchmark.values)] * len(benchmark.values))
    means = np.array([values.mean(axis=0) for values in benchmark.values])
    differences, fixed_truth = means[:, 1:] - means[:, [0]], benchmark.means.mean(axis=0)
    sizes = [len(values) for values in benchmark.values]
    bounds = [
        (intervals(stacked[:, 1:] - stacked[:, [0]], resamples=RESAMPLES, strata=sizes), fixed_truth),
        (subset_intervals(differences), population),
        (intervals(differences, resamples=RESAMPLES), population),
    ]
    shares = [
        float(np.mean((low <= truth[1:] - truth[0]) & (truth[1:] - truth[0] <= high))) for (low, high), truth in bounds
    ]
    ranges = [_has_true_ranks(stacked, fixed_truth), _has_true_ranks(means, population)]
    return [*shares, *map(float, ranges)]


def _has_true_ranks(values: Values, truth: Values) -> bool:
    """Return whether each system's rank range includes its true rank. Equal systems may have either rank."""
    sums = PermutedSums(values, permutations=RESAMPLES)
    low, high = rank_intervals(values.mean(axis=0), corrected_pairs(sums))
    best = 1 + np.count_nonzero(truth[None, :] > truth[:, None] + 1e-12, axis=1)
    worst = len(truth) - np.count_nonzero(truth[None, :] < truth[:, None] - 1e-12, axis=1)
    return bool(np.all((low <= worst) & (best <= high)))


def report(figures: Figures, sizes: Sequence[int] = DATASETS, draws: int = DRAWS) -> None:
    """Add the table of coverages, with the bounds that both kinds of intervals must keep."""
    rows = []
    for size in sizes:
        coverage = measure_coverage(size, draws)
        for name, value in (("queries", coverage.over_queries), ("datasets", coverage.over_datasets)):
            distance = abs(value - (MIN_COVERAGE + MAX_COVERAGE) / 2)
            figures.bound(
                f"{size} datasets, over {name}: distance from 95%", distance, (MAX_COVERAGE - MIN_COVERAGE) / 2
            )
        rows.append([str(size), *(f"{value:.1%}" for value in coverage)])
    figures.say(
        f"{draws:,} benchmarks per row with a baseline and {len(GAINS) - 1} systems. Accepted: {MIN_COVERAGE:.0%} to "
        f"{MAX_COVERAGE:.0%} of the intervals, and at least 95% of the benchmarks."
    )
    figures.table(
        [
            "datasets",
            "interval over queries",
            "interval over datasets",
            "percentile bootstrap of datasets (not used)",
            "all rank ranges, over queries",
            "all rank ranges, over datasets",
        ],
        rows,
    )


def main() -> int:
    """Print the table, or write it into a page; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_option(parser)
    arguments = parser.parse_args()
    figures = Figures(__file__, "PYTHONPATH=. python tests/simulation/benchmark_certainty.py")
    report(figures)
    return figures.finish(arguments.write)


if __name__ == "__main__":
    sys.exit(main())
