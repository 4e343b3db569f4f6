"""Intervals, paired tests, corrections and ranks: against scipy's, by hand, and on real runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.statistics.comparison import compare_paired, count_wins, intervals
from evaluation.statistics.randomisation import (
    MAX_EXACT,
    PermutedSums,
    corrected_pairs,
    exact_p,
    hoeffding_bound,
    holm,
    randomisation_test,
    rank_intervals,
)
from tests.evaluation.real_collections import SHARED

Values = NDArray[np.float64]


def scores(queries: int, systems: int, seed: int = 0) -> Values:
    """Values by query as measures give them: many of a query alike, and some 0."""
    random = np.random.default_rng(seed)
    values = np.clip(random.random((queries, 1)) + random.normal(0, 0.25, (queries, systems)), 0, 1)
    return np.round(values, 4)


def scipy_p(a: Values, b: Values, permutations: int = 10_000) -> float:
    found = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        rng=np.random.default_rng(7),
    )
    return float(found.pvalue)


def monte_carlo_error(p: float, draws: int = 10_000) -> float:
    """Return the tolerance for two estimates of p: 4.5 standard errors of their difference, and one draw."""
    return 4.5 * np.sqrt(2 * max(p * (1 - p), 1 / draws) / draws) + 1 / draws


# --- Randomisation -------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [30, 300])
def test_p_values_are_those_of_scipy_within_monte_carlo_error(queries: int) -> None:
    values = scores(queries, 6)
    values[:, 5] = values[:, 0] + 0.03
    found = PermutedSums(values, seed=3).p_values(0)
    for system in range(1, 6):
        expected = scipy_p(values[:, system], values[:, 0])
        assert found[system] == pytest.approx(expected, abs=monte_carlo_error(expected)), system


@pytest.mark.parametrize("queries", [2, 5, 11])
def test_few_queries_are_enumerated_exactly(queries: int) -> None:
    values = scores(queries, 4, seed=queries)
    found = randomisation_test(values, 0)
    for system in range(1, 4):
        differences = values[:, system] - values[:, 0]
        patterns = itertools.product([-1, 1], repeat=queries)
        sums = [abs(float(np.dot(signs, differences))) for signs in patterns]
        expected = np.mean([total >= abs(differences.sum()) - 1e-12 for total in sums])
        assert found[system] == pytest.approx(expected, abs=1e-12)
        assert found[system] == pytest.approx(scipy_p(values[:, system], values[:, 0]), abs=1e-12)


def test_only_queries_that_differ_count_towards_enumeration() -> None:
    values = np.zeros((500, 2))
    values[:3, 1] = 0.2
    assert randomisation_test(values, 0)[1] == pytest.approx(2 / 8)


def test_patterns_that_tie_with_the_observed_difference_are_counted() -> None:
    # Differences of ±0.1 are not exact in binary: sums that tie by arithmetic differ in their last bits.
    values = np.full((40, 2), 0.3)
    values[:20, 1] += 0.1
    values[20:24, 1] -= 0.1
    expected = stats.binomtest(20, 24, 0.5).pvalue
    assert randomisation_test(values, 0)[1] == pytest.approx(expected, abs=monte_carlo_error(expected))


@pytest.mark.parametrize("datasets", [7, 10, 12])
def test_ties_of_published_decimals_count_in_exact_tests(datasets: int) -> None:
    generator = np.random.default_rng(5)
    signs = np.array(list(itertools.product((1, -1), repeat=datasets)))
    for _ in range(100):
        baseline = generator.integers(200, 600, datasets)
        differences = np.round(generator.normal(15, 25, datasets)).astype(int)
        expected = np.mean(np.abs(signs @ differences) >= abs(differences.sum()))
        values = np.column_stack([baseline, baseline + differences]) / 1000
        assert randomisation_test(values, 0)[1] == pytest.approx(expected, abs=1e-12)


def test_a_p_value_is_never_zero_and_equal_systems_have_one_of_one() -> None:
    values = scores(200, 3)
    values[:, 1] = values[:, 0]
    values[:, 2] = values[:, 0] + 1
    found = randomisation_test(values, 0, permutations=999)
    assert found[:2].tolist() == [1.0, 1.0]
    assert 0 < found[2] < 1 / 1000


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=12))
def test_the_bound_is_never_below_the_exact_p_value(differences: list[float]) -> None:
    bound = hoeffding_bound(np.array(differences)[:, None])[0]
    assert bound >= exact_p(differences) - 1e-12


def test_on_a_board_of_a_thousand_what_is_plainly_worse_is_not_with_the_best() -> None:
    # 10,000 permutations alone tell no p-value below 0.0001, which Holm takes to 0.1 there.
    values = np.tile(scores(60, 1), (1, 1000))
    values[:, 1:] -= 0.3 + 0.05 * np.random.default_rng(1).random((60, 999))
    against_best = PermutedSums(values).p_values(0)
    against_best[0] = np.nan
    assert (holm(against_best)[1:] < 0.05).all()


def test_the_same_test_from_either_side() -> None:
    board = PermutedSums(scores(80, 5), seed=9)
    assert board.p_values(1)[3] == board.p_values(3)[1]


@pytest.mark.parametrize("queries", [6, 50, 333])
def test_p_values_and_intervals_are_the_same_to_the_last_bit_whatever_else_is_on_the_board(
    queries: int,
) -> None:
    # Thirds and tenths are not exact in binary; matrix products of other widths add them in other orders.
    random = np.random.default_rng(queries)
    values = random.integers(0, 10, (queries, 41)) / random.choice([3.0, 7.0, 10.0], (queries, 1)) / 4
    values[:, 7] = values[:, 3] + np.where(random.random(queries) < 0.5, 0.1, -0.1)
    whole, ends = PermutedSums(values, seed=1).p_values(3), intervals(values, resamples=2000, seed=1)
    for others in ([], [0], list(range(12)), list(range(20, 41))):
        kept = [3, *(place for place in others if place not in (3, 7, 30)), 7, 30]
        part = PermutedSums(values[:, kept], seed=1).p_values(0)
        of_part = intervals(values[:, kept], resamples=2000, seed=1)
        assert part[-2:].tobytes() == whole[[7, 30]].tobytes()
        for end, of_whole in zip(of_part, ends, strict=True):
            assert end[-2:].tobytes() == of_whole[[7, 30]].tobytes()


# --- Intervals -----------------------------------------------------------------------------------


def test_intervals_are_scipys_percentile_intervals_within_monte_carlo_error() -> None:
    values = scores(50, 4)
    low, high = intervals(values, seed=5)
    for system in range(4):
        found = stats.bootstrap(
            (values[:, system],), np.mean, method="percentile", rng=np.random.default_rng(8)
        ).confidence_interval
        error = 0.08 * values[:, system].std() / np.sqrt(50)
        assert (low[system], high[system]) == pytest.approx((found.low, found.high), abs=error)


def test_a_system_without_variation_has_no_width() -> None:
    low, high = intervals(np.full((30, 1), 0.25), resamples=200)
    assert (low[0], high[0]) == pytest.approx((0.25, 0.25))


def test_intervals_do_not_depend_on_other_systems() -> None:
    values = scores(60, 3)
    together = intervals(values, resamples=500, seed=2)
    alone = intervals(values[:, [1]], resamples=500, seed=2)
    assert (alone[0][0], alone[1][0]) == pytest.approx((together[0][1], together[1][1]))


@pytest.mark.parametrize("values", [np.zeros((0, 2)), np.zeros(5)])
def test_intervals_need_queries(values: Values) -> None:
    with pytest.raises(ValueError, match="queries, systems"):
        intervals(values)


# --- Holm ----------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    # m = 4: 0.01 · 4, then 0.02 · 3, then 0.03 · 2, then max(0.06, 0.04 · 1).
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_missing_tests_are_no_tests() -> None:
    adjusted = holm([0.01, np.nan, 0.2])
    assert adjusted[[0, 2]] == pytest.approx([0.02, 0.2])
    assert np.isnan(adjusted[1])
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    for level in (0.01, 0.05, 0.3):
        rejected = np.zeros(len(p_values), bool)
        for step, place in enumerate(order):
            if p_values[place] * (len(p_values) - step) > level:
                break
            rejected[place] = True
        assert ((adjusted <= level) == rejected).all()
    assert (adjusted >= np.asarray(p_values)).all()
    assert (adjusted <= 1).all()


# --- All pairs -----------------------------------------------------------------------------------


def by_enumeration(values: Values) -> Values:
    """Corrected p-values of all pairs by the definition: every sign pattern, and the statistics one by one."""
    queries, systems = values.shape
    pairs = list(itertools.combinations(range(systems), 2))
    differences = np.column_stack([values[:, a] - values[:, b] for a, b in pairs])
    lengths = np.sqrt((differences**2).sum(axis=0))
    signs = np.array(list(itertools.product([-1, 1], repeat=queries)))
    drawn = np.abs(signs @ differences) / lengths
    observed = np.abs(differences.sum(axis=0)) / lengths
    found, least = np.ones((systems, systems)), 0.0
    for pair in np.argsort(-observed):
        not_clearer = observed <= observed[pair] + 1e-9
        greatest = drawn[:, not_clearer].max(axis=1)
        least = max(least, float(np.mean(greatest >= observed[pair] - 1e-9)))
        a, b = pairs[pair]
        found[a, b] = found[b, a] = least
    return found


def test_corrected_pairs_are_those_of_the_definition_within_monte_carlo_error() -> None:
    values = scores(MAX_EXACT + 1, 5, seed=3) + np.array([0, 0, 0.1, 0.3, 0.5])
    expected = by_enumeration(values)
    found = corrected_pairs(PermutedSums(values, seed=2), patterns=10_000)
    assert (expected < 0.05).any()
    for place, p in np.ndenumerate(expected):
        assert found[place] == pytest.approx(p, abs=monte_carlo_error(p)), place


@pytest.mark.parametrize("queries", [6, 7, 11])
def test_few_queries_use_all_patterns_so_that_no_seed_changes_corrected_pairs(queries: int) -> None:
    """Published decimals have many equal statistics; 30 systems have blocks of two pairs."""
    values = np.round(scores(queries, 30, seed=queries) + np.linspace(0, 0.9, 30), 2)
    sums = PermutedSums(values)
    found = corrected_pairs(sums)
    assert (found == corrected_pairs(PermutedSums(values, seed=2), patterns=10)).all()
    assert found == pytest.approx(by_enumeration(values), abs=1e-12)
    assert found.min() >= 2 / 2**queries
    assert (found < 0.05).any()
    for anchor in range(30):
        assert (found[anchor] >= sums.p_values(anchor)).all()


def test_a_pair_is_never_corrected_to_less_than_its_own_p_value() -> None:
    values = scores(40, 12) + np.linspace(0, 0.2, 12)
    sums = PermutedSums(values, seed=2)
    found = corrected_pairs(sums, patterns=10_000)
    for anchor in range(12):
        raw = sums.p_values(anchor)
        assert (found[anchor] >= raw - monte_carlo_error(0.05)).all()


def test_systems_of_equal_values_are_never_apart() -> None:
    values = scores(60, 4)
    values[:, 2] = values[:, 0]
    values[:, 3] = values[:, 0] + 0.4
    found = corrected_pairs(PermutedSums(values))
    assert found[0, 2] == found[2, 0] == 1
    assert found[0, 3] < 0.01


# --- Ranks ---------------------------------------------------------------------------------------


def test_ranks_are_what_tests_of_all_pairs_leave_open() -> None:
    # 0 is not separable from 1, and 1 not from 2, but 0 is from 2; 3 is behind all.
    p = np.array([[1, 0.5, 0.001, 0.001], [0.5, 1, 0.5, 0.001], [0.001, 0.5, 1, 0.001], [0.001] * 3 + [1]])
    first, last = rank_intervals([0.9, 0.8, 0.7, 0.1], p)
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [(1, 2), (1, 3), (2, 3), (4, 4)]


def test_a_system_separated_from_the_best_cannot_be_first_whatever_lower_scores_leave_open() -> None:
    # The second differs little and is separated from the first; the third differs widely, and is not.
    p = np.ones((3, 3))
    p[0, 1] = p[1, 0] = 0.001
    first, last = rank_intervals([0.9, 0.8, 0.7], p)
    assert first.tolist() == [1, 2, 1]
    assert last.tolist() == [2, 3, 3]


@given(st.integers(0, 10_000), st.integers(2, 12))
def test_rank_intervals_include_the_rank(seed: int, systems: int) -> None:
    random = np.random.default_rng(seed)
    means = np.round(random.random(systems), 1)
    p = random.choice([0.01, 0.9], (systems, systems))
    first, last = rank_intervals(means, np.minimum(p, p.T))
    ranks = np.array([1 + np.count_nonzero(means > mean) for mean in means])
    assert (first <= ranks).all()
    assert (ranks <= last).all()


def test_the_order_of_systems_does_not_matter_to_ranks() -> None:
    values = scores(100, 8) + np.linspace(0, 0.4, 8)

    def ranks(of: Values) -> list[tuple[int, int]]:
        found = rank_intervals(of.mean(axis=0), corrected_pairs(PermutedSums(of)))
        return list(zip(*(ends.tolist() for ends in found), strict=True))

    assert ranks(values) == ranks(values[:, ::-1])[::-1]
    assert ranks(values)[-1][0] == 1
    assert ranks(values)[0][0] > 4


# --- Pairs ---------------------------------------------------------------------------------------


def test_wins_ties_and_losses_by_query() -> None:
    values = np.array([[0.5, 0.6], [0.5, 0.5 + 1e-12], [0.5, 0.4], [0.5, 0.9]])
    counts = count_wins(values, 0)
    assert [int(count[1]) for count in counts] == [2, 1, 1]
    assert [int(count[1]) for count in count_wins(values, 0, lower_is_better=True)] == [1, 1, 2]
    assert [int(count[0]) for count in counts] == [0, 4, 0]


def test_a_pair_says_all_of_its_difference() -> None:
    values = scores(60, 2)
    found = compare_paired(values[:, 0], values[:, 1])
    back = compare_paired(values[:, 1], values[:, 0])
    assert found.difference == pytest.approx((values[:, 0] - values[:, 1]).mean())
    assert found.low < found.difference < found.high
    assert found.p == randomisation_test(values, 1)[0]
    assert (found.wins, found.ties, found.losses) == (back.losses, back.ties, back.wins)
    assert found.wins + found.ties + found.losses == 60


def test_a_pair_needs_the_same_queries() -> None:
    with pytest.raises(ValueError, match="same queries"):
        compare_paired([0.1, 0.2], [0.1])


# --- Real runs -----------------------------------------------------------------------------------


def test_trec_covid_runs_have_scipys_intervals_and_p_values() -> None:
    folder = SHARED / "data" / "trec-covid-round1"
    if not folder.exists():
        pytest.skip(f"trec-covid-round1 is not at {folder} (RUNBOARD_SHARED names its folder)")
    qrels = read_qrels(folder / "qrels.txt")
    target = ScoringTarget(qrels, qrels.query_ids, hidden=False)
    paths = sorted((folder / "runs").glob("*.txt.gz"))
    names = [path.name.removesuffix(".txt.gz") for path in paths]
    values = np.column_stack([score_run(path, target, ["nDCG@10"]).per_query[:, 0] for path in paths])
    assert values.shape == (30, 18)
    low, high = intervals(values, seed=1)
    sums = PermutedSums(values, seed=1)
    best, bm25 = names.index("run1"), names.index("PS-r1-bm25all")
    assert values.mean(axis=0).argmax() == best
    for anchor in (best, bm25):
        found = sums.p_values(anchor)
        for system in range(0, 18, 3):
            expected = scipy_p(values[:, system], values[:, anchor])
            assert found[system] == pytest.approx(expected, abs=monte_carlo_error(expected)), names[system]
    for system in (best, bm25):
        expected = stats.bootstrap(
            (values[:, system],), np.mean, method="percentile", rng=np.random.default_rng(8)
        ).confidence_interval
        error = 0.08 * values[:, system].std() / np.sqrt(30)
        assert (low[system], high[system]) == pytest.approx((expected.low, expected.high), abs=error)
    first, last = rank_intervals(values.mean(axis=0), corrected_pairs(sums))
    ranks = {name: (low, high) for name, low, high in zip(names, first.tolist(), last.tolist(), strict=True)}
    assert ranks["run1"] == (1, 5)
    assert ranks["OHSU_RUN2"] == (1, 7)
    assert ranks["PS-r1-bm25all"] == (2, 13)
    assert ranks["BRPHJ_NLP2"] == (15, 18)
