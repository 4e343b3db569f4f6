"""Aggregates over several datasets, against numbers worked out by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import to_table, to_values


def test_a_mean_is_missing_where_a_dataset_is() -> None:
    assert to_values(aggregates.means(to_table([[0.2, 0.4], [0.9, None]], 2))) == [pytest.approx(0.3), None]
    assert aggregates.coverage(to_table([[0.2, 0.4], [0.9, None]], 2)) == [2, 1]


def test_without_datasets_there_is_no_mean() -> None:
    assert to_values(aggregates.means(to_table([[], []], 0))) == [None, None]


def test_common_datasets_are_those_that_every_row_looked_at_has() -> None:
    scores = to_table([[0.1, 0.2, 0.3], [0.4, None, 0.6], [None, 0.8, None]], 3)
    found = aggregates.common_means(scores, [0, 1])
    assert found.positions == [0, 2]
    assert to_values(found.means) == [pytest.approx(0.2), pytest.approx(0.5), None]
    assert aggregates.common_means(scores, [0, 1, 2]).positions == []
    assert aggregates.common_means(scores, []).positions == []


def test_the_ratio_of_means_is_not_the_mean_of_ratios() -> None:
    scores, baselines = to_table([[0.2, 0.9]], 2), to_table([[0.1, 0.9]], 2)
    assert to_values(aggregates.ratio_of_means(scores, baselines)) == [pytest.approx(0.1)]
    assert to_values(aggregates.mean_of_ratios(scores, baselines)) == [pytest.approx(0.5)]


def test_no_ratio_is_taken_to_nothing() -> None:
    assert to_values(aggregates.ratios(to_table([[0.2, 0.3]], 2), to_table([[0.0, None]], 2))[0]) == [None, None]


@pytest.mark.parametrize(("lower", "expected"), [(False, ([1], [1], [2])), (True, ([2], [1], [1]))])
def test_wins_follow_the_direction_of_the_measure(lower: bool, expected: tuple[list[int], ...]) -> None:
    scores, baselines = to_table([[0.5, 0.4, 0.1, 0.2, 0.9]], 5), to_table([[0.4, 0.4, 0.3, 0.3, None]], 5)
    assert aggregates.wins(scores, baselines, lower_is_better=lower) == expected


def test_borda_and_mean_rank_of_three_systems_on_two_datasets() -> None:
    # First dataset: a 0.9, b 0.5, c 0.5: ranks 1, 2.5, 2.5. Second: a 0.1, b 0.2, c 0.3: ranks 3, 2, 1.
    scores = to_table([[0.9, 0.1], [0.5, 0.2], [0.5, 0.3]], 2)
    found = aggregates.rank_figures(scores, ["scored"] * 3)
    assert to_values(found.borda) == [2.0, 1.5, 2.5]
    assert to_values(found.mean_rank) == [2.0, 2.25, 1.75]


def test_borda_leaves_out_incomplete_rows_and_other_kinds() -> None:
    scores = to_table([[0.9, 0.9], [0.5, None], [0.4, 0.4], [0.1, 0.1]], 2)
    found = aggregates.rank_figures(scores, ["scored", "scored", "scored", "reported"])
    assert to_values(found.borda) == [2.0, None, 0.0, 0.0]
    assert to_values(found.mean_rank) == [1.0, None, 2.0, 1.0]


def test_borda_of_a_measure_that_is_better_when_lower() -> None:
    found = aggregates.rank_figures(to_table([[0.1], [0.9]], 1), ["scored"] * 2, lower_is_better=True)
    assert to_values(found.mean_rank) == [1.0, 2.0]


def test_the_mean_rank_follows_from_the_borda_count() -> None:
    scores = np.round(np.random.default_rng(1).random((40, 7)), 1)
    found = aggregates.rank_figures(scores, ["scored"] * 40)
    assert np.allclose(found.mean_rank, 40 - found.borda / 7)


def test_ranks_are_shared_within_a_kind_and_missing_for_missing_values() -> None:
    scores = to_table([[0.5], [0.9], [0.5], [None], [0.7]], 1)
    found = aggregates.ranks(scores, ["scored"] * 4 + ["reported"])[:, 0]
    assert found[:3].tolist() == [2.0, 1.0, 2.0]
    assert isnan(found[3])
    assert found[4] == 1.0
