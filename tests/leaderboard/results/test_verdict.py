"""How often a board names a winner where there is none, and whether it finds one where there is."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from leaderboard.results.significance.computing import measure_certainty
from leaderboard.results.significance.statements import ComparedBoard
from leaderboard.results.significance.types import (
    BoardCertainty,
    TestSettings,
    Verdict,
    get_verdict,
)

Values = NDArray[np.float64]
#: Makes the noise of so many queries and copies.
Noise = Callable[[np.random.Generator, int, int], Values]

MEASURE = "nDCG@10"


def normal(random: np.random.Generator, queries: int, copies: int) -> Values:
    return random.normal(0, 0.1, (queries, copies))


def uneven(random: np.random.Generator, queries: int, copies: int) -> Values:
    """Copies that differ from BM25 on every query a little, and copies that differ very much."""
    return normal(random, queries, copies) * np.geomspace(0.05, 3, copies)


def sparse(random: np.random.Generator, queries: int, copies: int) -> Values:
    """Copies that differ from BM25 on every fifth query."""
    differs = random.random((queries, copies)) < 0.2
    return np.where(differs, random.choice([-0.3, 0.3], (queries, copies)), 0)


def copies_of_bm25(random: np.random.Generator, queries: int, systems: int, noise: Noise) -> Values:
    """BM25, which finds nothing for some queries, and noisy copies of it that are neither better nor worse."""
    found = random.random((queries, 1)) > 0.3
    bm25 = np.where(found, random.beta(1, 1.5, (queries, 1)), 0)
    return np.hstack([bm25, bm25 + noise(random, queries, systems - 1)])


def board_of(values: Values) -> BoardCertainty:
    """What a worker finds of a board of these values, but for intervals; the entries are 0, 1, 2 …, BM25 is 0."""
    entries = list(range(values.shape[1]))
    compared = ComparedBoard(1, "group", entries, 0, [MEASURE])
    nothing = np.zeros(len(entries)), np.zeros(len(entries))
    found = measure_certainty(MEASURE, entries, values, compared, nothing, nothing)
    at = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    return BoardCertainty(
        1, "key", "group", 1, at, TestSettings(), current=True, baseline=0, content={MEASURE: found.as_dict()}
    )


def verdict_on(values: Values) -> Verdict:
    found = get_verdict(board_of(values), MEASURE)
    assert found is not None
    return found


def claims(boards: int, queries: int, systems: int, noise: Noise) -> Counter[str]:
    """On how many boards without a difference each sentence claims one."""
    random, found = np.random.default_rng(17), Counter[str]()
    for _ in range(boards):
        board = board_of(copies_of_bm25(random, queries, systems, noise))
        verdict, measure = get_verdict(board, MEASURE), board.for_measure(MEASURE)
        assert verdict is not None
        assert measure is not None
        beaten, alone = bool(verdict.better), not verdict.ties
        found["a winner"] += beaten or alone
        found["a system that does not tie with the best"] += len(verdict.ties) < systems - 1
        rows = measure.entries.values()
        found["a row at p < 0.05"] += any(
            one.p_baseline is not None and one.p_baseline < 0.05 and (one.delta or 0) > 0 for one in rows
        )
    return found


def test_few_boards_of_copies_name_a_winner() -> None:
    found = claims(30, 30, 20, normal)
    assert found["a winner"] <= 2
    assert found["a system that does not tie with the best"] <= 4
    # A row's own p-value is no claim of a winner: by it alone most of these boards would have one.
    assert found["a row at p < 0.05"] > 10


@pytest.mark.long
@pytest.mark.parametrize("noise", [normal, uneven, sparse])
def test_of_a_thousand_boards_of_copies_one_in_twenty_names_a_winner(noise: Noise) -> None:
    found = claims(1_000, 50, 100, noise)
    print(noise.__name__, dict(found))
    assert found["a winner"] <= 50
    assert found["a system that does not tie with the best"] <= 70
    assert found["a row at p < 0.05"] > 500


def test_a_truly_better_system_is_found_among_copies() -> None:
    random = np.random.default_rng(18)
    found = 0
    for _ in range(10):
        values = copies_of_bm25(random, 50, 25, normal)
        values[:, 7] += 0.15
        verdict = verdict_on(values)
        found += verdict.best == 7 and not verdict.ties and verdict.better == {7}
    assert found >= 9


def test_best_is_the_highest_mean_and_ties_are_those_that_may_be_as_good() -> None:
    values = np.tile(np.linspace(0.2, 0.6, 40)[:, None], 4)
    values += np.random.default_rng(3).normal(0, 0.02, values.shape) + np.array([0, 0.2, 0.199, -0.1])
    verdict = verdict_on(values)
    assert verdict.best in {1, 2}
    assert verdict.ties == {1, 2} - {verdict.best}
    assert (verdict.compared, verdict.better, verdict.worse) == (3, {1, 2}, {3})
