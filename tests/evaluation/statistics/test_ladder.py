"""When a competition's board moves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.ladder import STEP, is_improvement, paired_standard_error

unit = st.floats(0, 1)


def test_the_standard_error_is_that_of_the_paired_differences() -> None:
    generator = np.random.default_rng(5)
    new, best = generator.random(107), generator.random(107)
    assert paired_standard_error(new, best) == pytest.approx(stats.sem(new - best))
    assert paired_standard_error([0.4], [0.1]) == 0
    with pytest.raises(ValueError, match="same queries"):
        paired_standard_error([0.1, 0.2], [0.1])


@given(new=unit, best=unit, error=st.floats(0, 0.2))
def test_a_result_passes_by_more_than_step_and_error_alone(new: float, best: float, error: float) -> None:
    passed = is_improvement(new, best, error)
    assert passed == (new - best > max(STEP, error) + 1e-9)
    if passed:
        assert new > best


def test_a_gain_of_exactly_the_step_is_no_change_whatever_its_binary_digits() -> None:
    for thousandths in range(0, 990):
        best, new = thousandths / 1000, (thousandths + 10) / 1000
        assert not is_improvement(new, best, 0.0)
        assert is_improvement(round(new + 0.001, 3), best, 0.0)


@given(values=st.lists(unit, min_size=1, max_size=60))
def test_what_is_told_rises_by_more_than_a_step_each_time(values: list[float]) -> None:
    told = [round(values[0], 3)]
    for value in values[1:]:
        if is_improvement(round(value, 3), told[-1], 0.0):
            told.append(round(value, 3))
    assert all(later - earlier > STEP for earlier, later in pairwise(told))
    assert len(told) <= 1 / STEP + 1


def test_a_probe_of_one_query_among_a_hundred_tells_nothing() -> None:
    best = np.full(101, 0.4)
    probe = best.copy()
    probe[7] = 1.0
    assert not is_improvement(probe.mean(), best.mean(), paired_standard_error(probe, best))


def test_trying_often_is_no_way_up() -> None:
    noise = np.random.default_rng(5).normal(scale=0.02, size=(200, 100))
    passed = [is_improvement(gain, 0.0, 0.02, tries=tries) for row in noise for tries, gain in enumerate(row)]
    always_alike = [is_improvement(gain, 0.0, 0.02) for row in noise for gain in row]
    assert sum(always_alike) > 3000
    assert sum(passed) < 400, "of a hundred tries by noise two pass, not sixteen"


def test_young_teams_need_a_twentieth_and_four_standard_errors() -> None:
    assert not is_improvement(0.45, 0.4, 0.001, is_young=True)
    assert is_improvement(0.451, 0.4, 0.001, is_young=True)
    assert not is_improvement(0.55, 0.4, 0.04, is_young=True)
    assert is_improvement(0.561, 0.4, 0.04, is_young=True)
