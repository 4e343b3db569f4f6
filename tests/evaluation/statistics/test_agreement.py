"""Kendall's τ and Cohen's κ, held against scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import cohen_kappa_score

from evaluation.statistics.comparison import cohen_kappa, kendall_tau


@pytest.mark.parametrize("seed", range(20))
def test_tau_is_scipys_with_ties_and_without(seed: int) -> None:
    chance = np.random.default_rng(seed)
    first, second = chance.integers(0, 6 if seed % 2 else 1000, (2, 40))
    assert kendall_tau(first, second) == pytest.approx(kendalltau(first, second).statistic, abs=1e-12)


def test_tau_of_what_has_no_order_is_none() -> None:
    assert kendall_tau([1], [2]) is None
    assert kendall_tau([1, 1], [1, 2]) is None
    assert kendall_tau([1, 2], [3, 4]) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_kappa_is_scikit_learns(seed: int) -> None:
    chance = np.random.default_rng(seed)
    first = chance.integers(0, 3, 100)
    second = np.where(chance.random(100) < 0.6, first, chance.integers(0, 4, 100))
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    assert cohen_kappa(pairs) == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_kappa_of_a_worked_table() -> None:
    """20 relevant by both, 15 by neither, 5 and 10 by one: p_o = 0.7, p_e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5, κ = 0.4."""
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)


def test_nothing_is_said_of_chance_where_all_grades_are_one() -> None:
    assert cohen_kappa([]) is None
    assert cohen_kappa([(1, 1), (1, 1)]) is None
