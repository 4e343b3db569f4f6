"""The least significant difference: its formula, and how often it is exceeded by chance and by better systems."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest

from evaluation.statistics.gap import STEP, extend_to_all_pairs, least_difference


def test_it_is_that_of_unpaired_values_rounded_up() -> None:
    values = np.random.default_rng(1).normal(0.3, 0.3, 400)
    exact = 1.959964 * sqrt(2 / 400) * values.std(ddof=1)
    found = least_difference(values, alpha=0.05)
    assert exact <= found < exact + STEP
    assert found / STEP == pytest.approx(round(found / STEP))
    assert least_difference(values, alpha=0.05, step=0.02) == pytest.approx(0.04)
    assert least_difference(np.full(50, 0.4), alpha=0.05) == STEP, "all equal: one step still"
    assert least_difference([0.4], alpha=0.05) == inf


def test_among_more_systems_more_is_needed() -> None:
    assert extend_to_all_pairs(0.05, 2, alpha=0.05) == extend_to_all_pairs(0.05, 1, alpha=0.05) == pytest.approx(0.05)
    assert extend_to_all_pairs(0.05, 10, alpha=0.05) == pytest.approx(0.05 * 3.261 / 1.960, rel=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_systems_that_are_no_better_are_rarely_found_better(correlation: float) -> None:
    random, queries, systems = np.random.default_rng(2), 100, 2000
    bm25 = random.normal(0.3, 0.3, queries)
    shared, own = (bm25 - bm25.mean())[:, None], random.normal(0, 0.3, (queries, systems))
    others = correlation * shared + sqrt(1 - correlation**2) * own
    gains = others.mean(axis=0)
    found = (gains >= least_difference(bm25, alpha=0.05)).mean()
    assert found <= 0.03
    better = (gains + 0.15 >= least_difference(bm25, alpha=0.05)).mean()
    assert better >= 0.9
