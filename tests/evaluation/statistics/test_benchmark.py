"""Tests of intervals and tests over a whole benchmark, against scipy, all subsets, and simulated benchmarks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evaluation.statistics.benchmark import MIN_DATASETS, stack_queries, subset_intervals
from evaluation.statistics.comparison import intervals
from evaluation.statistics.randomisation import MAX_EXACT, PermutedSums, exact_p
from tests.simulation.benchmark_certainty import MAX_COVERAGE, MIN_COVERAGE, measure_coverage


def _values(sizes: tuple[int, ...] = (20, 60, 150)) -> list[np.ndarray]:
    """Return values of a baseline and another system on datasets of these sizes."""
    generator = np.random.default_rng(1)
    return [generator.beta(0.5, 1, (size, 2)) * (generator.random((size, 2)) < 0.7) for size in sizes]


def test_the_mean_of_stacked_queries_is_the_mean_of_the_datasets_means() -> None:
    values = _values()
    stacked = stack_queries(values, [0.5, 0.25, 0.25])
    means = [dataset.mean(axis=0) for dataset in values]
    assert stacked.mean(axis=0) == pytest.approx(0.5 * means[0] + 0.25 * means[1] + 0.25 * means[2])


def test_the_stratified_interval_equals_that_of_scipy() -> None:
    values = _values()
    stacked = stack_queries(values, [1 / 3] * 3)
    low, high = intervals(stacked[:, [1]] - stacked[:, [0]], strata=[len(dataset) for dataset in values])
    expected = stats.bootstrap(
        [dataset[:, 1] - dataset[:, 0] for dataset in values],
        lambda *samples, axis: sum(sample.mean(axis) for sample in samples) / len(samples),
        n_resamples=20_000,
        method="percentile",
        random_state=2,
    ).confidence_interval
    width = expected.high - expected.low
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=0.03 * width)


def test_the_test_over_queries_equals_that_of_scipy_on_weighted_values() -> None:
    stacked = stack_queries(_values(), [1 / 3] * 3)
    p = PermutedSums(stacked).p_values(0)[1]
    expected = stats.permutation_test(
        (stacked[:, 1] - stacked[:, 0],),
        lambda sample, axis: sample.mean(axis),
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).pvalue
    assert p == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("datasets", [*range(MIN_DATASETS, 12), MAX_EXACT])
def test_the_test_over_datasets_uses_all_sign_patterns_and_the_interval_excludes_what_it_rejects(datasets: int) -> None:
    generator = np.random.default_rng(datasets)
    for gain in (0.0, 0.02, 0.05, 0.1):
        differences = generator.normal(gain, 0.07, datasets)
        patterns = [abs(np.dot(signs, differences)) for signs in product((1, -1), repeat=datasets)]
        expected_p = np.mean(np.array(patterns) >= abs(differences.sum()) - 1e-12)
        p = PermutedSums(np.column_stack([np.zeros(datasets), differences])).p_values(0)[1]
        assert p == pytest.approx(expected_p)
        low, high = subset_intervals(differences[:, None])
        assert (low[0] > 0 or high[0] < 0) == (p < 0.05)
        for end, inside in ((low[0], 1), (high[0], -1)):
            assert exact_p(differences - end - inside * 1e-9) >= 0.05
            assert exact_p(differences - end + inside * 1e-9) < 0.05


def test_random_subsets_give_about_the_interval_of_all_subsets() -> None:
    differences = np.random.default_rng(3).normal(0.03, 0.07, (16, 1))
    low, high = (ends[0] for ends in subset_intervals(differences))
    all_low, all_high = (ends[0] for ends in subset_intervals(differences, subsets=2**16))
    assert (low, high) == pytest.approx((all_low, all_high), abs=0.05 * (all_high - all_low))


def test_fewer_than_six_datasets_have_no_interval() -> None:
    with pytest.raises(ValueError, match="more than 5 datasets"):
        subset_intervals(np.zeros((5, 1)))


@pytest.mark.long
def test_intervals_of_simulated_benchmarks_contain_the_true_differences() -> None:
    coverage = measure_coverage(7, 200)
    tolerance = 0.02  # For 200 draws; docs/measurements/benchmark_certainty.md has 1,000.
    assert MIN_COVERAGE - tolerance <= coverage.over_queries <= MAX_COVERAGE + tolerance
    assert MIN_COVERAGE - tolerance <= coverage.over_datasets <= MAX_COVERAGE + tolerance
    assert coverage.percentile < MIN_COVERAGE
    assert min(coverage.ranges_over_queries, coverage.ranges_over_datasets) >= 0.95
