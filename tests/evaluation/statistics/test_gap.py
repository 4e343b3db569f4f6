"""The contamination gap against scipy's bootstrap of two samples, and against every resample of small ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import bootstrap

from evaluation.statistics.comparison import intervals
from evaluation.statistics.gap import Interval, compute_gap, least_difference, published_interval


def of_half(differences: np.ndarray) -> Interval:
    low, high = intervals(differences[:, None], seed=1)
    return Interval(float(differences.mean()), float(low[0]), float(high[0]))


@pytest.mark.parametrize(
    ("topics", "gain"), [((100, 100), 0.1), ((300, 150), 0.0), ((1000, 1000), 0.02), ((30, 300), 0.05)]
)
def test_its_interval_is_that_of_scipys_bootstrap_of_two_samples(topics: tuple[int, int], gain: float) -> None:
    random = np.random.default_rng(sum(topics))
    # Differences in nDCG@10 are distributed like this: none for many topics, and a large one for few.
    public, hidden = (random.normal(0, 0.25, size) * (random.random(size) < 0.7) for size in topics)
    public += gain
    found = compute_gap(of_half(public), of_half(hidden))
    expected = bootstrap(
        (public, hidden), lambda a, b, axis: a.mean(axis) - b.mean(axis), n_resamples=20_000,
        method="percentile", random_state=2,
    ).confidence_interval  # fmt: skip
    assert found.value == pytest.approx(public.mean() - hidden.mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.04 * (expected.high - expected.low))


def test_it_is_that_of_all_resamples_of_a_few_topics() -> None:
    public, hidden = np.array([0.3, 0.1, 0.0, 0.2, -0.1]), np.array([0.0, 0.1, -0.2, 0.05, 0.1])
    means = [np.array([np.mean(drawn) for drawn in product(half, repeat=len(half))]) for half in (public, hidden)]
    low, high = np.quantile((means[0][:, None] - means[1][None, :]).ravel(), [0.025, 0.975])
    found = compute_gap(of_half(public), of_half(hidden))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_a_half_without_spread_leaves_the_other_halfs_interval() -> None:
    found = compute_gap(Interval(0.2, 0.15, 0.27), Interval(0.05, 0.05, 0.05))
    assert found == pytest.approx((0.15, 0.10, 0.22))


def test_published_values_reach_as_far_as_the_bound_and_rounding_do() -> None:
    assert published_interval(0.04, 0.03, 0.001) == pytest.approx((0.04, 0.009, 0.071))


def test_the_bound_on_a_hidden_half_is_seldom_narrower_than_its_own_bootstrap() -> None:
    random = np.random.default_rng(5)
    narrower = 0
    for _ in range(40):
        easy = random.beta(0.5, 0.9, 200)  # how easy a topic is, to all systems
        bm25, system = (np.clip(easy + random.normal(0, 0.15, 200), 0, 1) for _ in range(2))
        own = of_half(system - bm25)
        bound = published_interval(own.value, least_difference(bm25, alpha=0.05), 0.001)
        narrower += bound.high - bound.low < own.high - own.low
    assert narrower == 0


def test_a_system_without_a_gap_is_suspected_once_in_forty_times_at_most() -> None:
    random = np.random.default_rng(8)
    shown = 0
    for _ in range(400):
        public, hidden = random.normal(0.1, 0.25, 100), random.normal(0.1, 0.25, 100)
        errors = public.std(ddof=1) / 10, hidden.std(ddof=1) / 10
        halves = (
            Interval(half.mean(), half.mean() - 1.96 * error, half.mean() + 1.96 * error)
            for half, error in zip((public, hidden), errors, strict=True)
        )
        shown += compute_gap(*halves).low > 0
    assert shown <= 20, "5% of 400; 2.5% is expected"
