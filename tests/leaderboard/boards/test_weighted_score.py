"""Dynascore: its rates of exchange and sums, worked out by hand, and the column on boards."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from leaderboard.boards.columns.costs import average_rate, weighted_score
from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState, Sort
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of
from tests.leaderboard.entries import cost, make_system, report, score, scored_dataset
from tests.leaderboard.entries import make_source as publication


def test_a_rate_is_the_mean_of_what_neighbours_pay_for_a_unit_of_effectiveness() -> None:
    # By effectiveness: 0.2 costs 10, 0.3 costs 30, 0.5 costs 20: |20 / 0.1| = 200 and |−10 / 0.2| = 50.
    assert average_rate([0.3, 0.5, 0.2], [30, 20, 10]) == pytest.approx(125)


def test_effectiveness_is_exchanged_one_to_one() -> None:
    assert average_rate([0.3, 0.5, 0.2], [0.3, 0.5, 0.2]) == pytest.approx(1)


def test_equal_neighbours_trade_nothing() -> None:
    assert average_rate([0.2, 0.2, 0.4], [10, 30, 50]) == pytest.approx(100)
    assert average_rate([0.2, 0.2], [10, 30]) is None
    assert average_rate([0.2], [10]) is None
    assert average_rate([], []) is None


def test_costs_are_subtracted_in_units_of_effectiveness_and_weights_sum_to_one() -> None:
    weights = {"effectiveness": 3.0, "latency": 1.0}
    # 0.75 × 0.5 − 0.25 × 20 / 125
    assert weighted_score(0.5, {"latency": 20}, {"latency": 125.0}, weights) == pytest.approx(0.335)
    assert weighted_score(0.5, {}, {}, {"effectiveness": 7.0}) == pytest.approx(0.5)


def test_a_cost_that_all_share_adds_nothing() -> None:
    score_of = weighted_score(0.5, {"memory": 20}, {"memory": 0.0}, {"effectiveness": 1.0, "memory": 1.0})
    assert score_of == pytest.approx(0.25)


def _board(**state: Any) -> Board:
    page = benchmark_page("all", BoardState(**state))
    assert page is not None
    return page.board


def _weighted(board: Board) -> dict[str, Any]:
    return {row.entry.system: row.value("weighted-score") for row in board.rows}


WEIGHTS = (("effectiveness", 1.0), ("latency", 1.0))


@pytest.fixture
def _measured() -> None:
    """Three measured systems, one that lacks a dataset, one that nobody measured, and a reported one."""
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    benchmark_of(first, second, efficiency_from=first)
    for name, value, latency in (("slow", 0.5, 20.0), ("middle", 0.3, 30.0), ("quick", 0.2, 10.0)):
        system = make_system(name)
        cost(score(first, system, ndcg=value), latency)
        score(second, system, ndcg=value)
    partial = make_system("partial")
    cost(score(first, partial, ndcg=0.9), 1.0)
    unmeasured = make_system("unmeasured")
    for dataset in (first, second):
        score(dataset, unmeasured, ndcg=0.9)
        report(dataset, publication(f"paper-{dataset.pk}"), "reported", ndcg=0.9)


@pytest.mark.django_db
@pytest.mark.usefixtures("_measured")
def test_the_board_weighs_complete_measured_rows_only() -> None:
    board = _board(weights=WEIGHTS, sorts=(Sort("weighted-score"),))
    found = _weighted(board)
    # The rate is 125 ms for a unit of effectiveness, as above.
    assert found["slow"] == pytest.approx(0.5 * 0.5 - 0.5 * 20 / 125, abs=5e-5)
    assert found["middle"] == pytest.approx(0.5 * 0.3 - 0.5 * 30 / 125, abs=5e-5)
    assert found["partial"] is None
    assert found["unmeasured"] is None
    assert [row.entry.system for row in board.rows[:3]] == ["slow", "quick", "middle"]
    assert [row.rank for row in board.rows[:3]] == [1, 2, 3]
    note = next(note for note in board.notes if note.startswith("Weighted score"))
    assert "effectiveness 50%, latency 50%" in note
    assert "3 complete rows" in note
    assert "slow, middle, quick" in note


@pytest.mark.django_db
@pytest.mark.usefixtures("_measured")
def test_no_filter_moves_a_weighted_score() -> None:
    every = _weighted(_board(weights=WEIGHTS))
    assert _weighted(_board(weights=WEIGHTS, text="slow")) == {"slow": every["slow"]}


@pytest.mark.django_db
@pytest.mark.usefixtures("_measured")
def test_without_weights_there_is_no_such_column_and_without_a_price_it_says_so() -> None:
    assert "weighted-score" not in [column.key for column in _board().columns]
    board = _board(weights=(("effectiveness", 1.0), ("cost", 1.0)))
    assert set(_weighted(board).values()) == {None}
    assert any("no system here has a measured cost" in note for note in board.notes)


@pytest.mark.django_db
@pytest.mark.usefixtures("_measured")
def test_a_dataset_has_the_weighted_score_too(client: Client) -> None:
    board = benchmark_page("all", BoardState())
    assert board is not None
    page = dataset_page(board.members[0].slug, BoardState(weights=WEIGHTS))
    assert page is not None
    found = _weighted(page.board)
    assert found["partial"] is not None
    assert found["unmeasured"] is None
    answer = client.get(f"/datasets/{board.members[0].slug}/?weight-effectiveness=1&weight-memory=1")
    assert "Weighted score" in answer.content.decode()
