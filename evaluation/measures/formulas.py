"""The formulas, each over all queries at once. Sums run in order of rank, as trec_eval's do, so that values agree.

`k` is the cutoff (None for none), `level` the lowest grade that is relevant. A query that the run misses, or that has
no relevant document, gets 0 from every one of them.

`JudgedRankings` has what every measure is computed from: grades and ranks of the judged documents of all queries in
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.answers import FoundAnswers
from evaluation.judgements.qrels import Qrels

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class JudgedRankings:
    """Judged documents of a run, in trec_eval's order, cut to the run's depth.

    `query`, `rank` (1-based), `grade`: one entry per judged document retrieved, grouped by query (row of the
    qrels), ranks rising within it. `elsewhere_query`, `elsewhere_rank`: documents judged for other queries only.
    `retrieved`: per query how many documents the run has. `relevance_level`: the lowest grade that is relevant for
    binary measures, where a measure does not say it itself. `answers` says where texts have answers, where that is
    known.
    """

    qrels: Qrels
    query: NDArray[np.int64]
    rank: NDArray[np.int64]
    grade: NDArray[np.int64]
    elsewhere_query: NDArray[np.int64]
    elsewhere_rank: NDArray[np.int64]
    retrieved: NDArray[np.int64]
    relevance_level: int = 1
    answers: FoundAnswers | None = None

    @property
    def queries(self) -> int:
        """How many judged queries there are."""
        return len(self.qrels.query_ids)

    def per_query(self, weights: Values | Flags, where: NDArray[np.int64] | None = None) -> Values:
        """Sums by query of one weight per judged document retrieved, added up in order of rank."""
        sums: Values = np.bincount(self.query if where is None else where, weights, self.queries).astype(
            np.float64
        )
        return sums

    def relevant(self, level: int) -> Flags:
        """Which of the retrieved judged documents are relevant."""
        return self.grade >= level

    def relevant_judged(self, level: int) -> Values:
        """Per query, how many documents are relevant."""
        computed = self.qrels.computed
        if (key := f"relevant from {level}") not in computed:
            relevant = np.bincount(self.qrels.rows, self.qrels.grades >= level, self.queries)
            computed[key] = relevant.astype(np.float64)
        return computed[key]

    def counted_so_far(self, flags: Flags) -> NDArray[np.int64]:
        """For each judged document retrieved, how many flagged ones its query has up to it, itself included."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
        first = np.searchsorted(self.query, self.query, side="left")
        counts: NDArray[np.int64] = total[1:] - total[first]
        return counts


def divide(numerator: Values, denominator: Values) -> Values:
    """Quotients, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)


def _within(ranking: JudgedRankings, k: int | None) -> Flags:
    return np.ones(len(ranking.rank), np.bool_) if k is None else ranking.rank <= k


def _relevant_within(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    return ranking.per_query(ranking.relevant(level) & _within(ranking, k))


def _discounted(gains: Values, ranks: NDArray[np.int64]) -> Values:
    return gains / np.log2(ranks + 1)


def _ndcg(ranking: JudgedRankings, k: int | None, exponential: bool) -> Values:
    def gain_of(grades: NDArray[np.int64]) -> Values:
        gains = np.maximum(grades, 0).astype(np.float64)
        return np.exp2(gains) - 1 if exponential else gains

    gained = ranking.per_query(_discounted(gain_of(ranking.grade), ranking.rank) * _within(ranking, k))
    computed = ranking.qrels.computed
    if (key := f"ideal gain at {k}, exponential: {exponential}") not in computed:
        rows, grades = ranking.qrels.rows, ranking.qrels.grades.astype(np.int64)
        order = np.lexsort((-grades, rows))
        ideal_rank = np.arange(len(order)) - ranking.qrels.offsets[rows] + 1  # rows are sorted already
        ideal_gain = _discounted(gain_of(grades[order]), ideal_rank)
        if k is not None:
            ideal_gain = ideal_gain * (ideal_rank <= k)
        computed[key] = ranking.per_query(ideal_gain, rows)
    return divide(gained, computed[key])


def _shown(ranking: JudgedRankings, k: int | None) -> Values:
    return (ranking.retrieved if k is None else np.minimum(ranking.retrieved, k)).astype(np.float64)


def ndcg(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Discounted gain (the grade over log2(rank + 1)) by that of the best possible ranking."""
    return _ndcg(ranking, k, exponential=False)


def ndcg_exponential(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """The same with gain 2^grade - 1."""
    return _ndcg(ranking, k, exponential=True)


def average_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Precision at the rank of each relevant document retrieved, summed, by the number of relevant documents."""
    relevant = ranking.relevant(level)
    precision = ranking.counted_so_far(relevant) / ranking.rank * (relevant & _within(ranking, k))
    return divide(ranking.per_query(precision), ranking.relevant_judged(level))


def reciprocal_rank(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """1 / rank of the first relevant document."""
    relevant = ranking.relevant(level)
    first = relevant & (ranking.counted_so_far(relevant) == 1) & _within(ranking, k)
    return ranking.per_query(first / ranking.rank)


def precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Relevant documents among the first k, by k."""
    return _relevant_within(ranking, k, level) / (k or 1)


def recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Relevant documents among the first k, by the relevant documents there are."""
    return divide(_relevant_within(ranking, k, level), ranking.relevant_judged(level))


def capped_recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Relevant documents among the first k, by what could be found there."""
    possible = ranking.relevant_judged(level)
    return divide(_relevant_within(ranking, k, level), possible if k is None else np.minimum(possible, k))


def success(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """1 where a relevant document is among the first k."""
    return (_relevant_within(ranking, k, level) > 0).astype(np.float64)


def f1(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """The harmonic mean of P@k and R@k: twice the relevant documents among the first k, by k and all relevant ones."""
    assert k is not None
    return divide(2 * _relevant_within(ranking, k, level), k + ranking.relevant_judged(level))


def answer(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Whether the text of one of the first k documents has an answer."""
    assert k is not None
    return (_answers(ranking).rank <= k).astype(np.float64)


def answer_within_tokens(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Whether the first k thousand tokens of the ranking's texts, one behind the other, have an answer."""
    assert k is not None
    return (_answers(ranking).tokens <= 1000 * k).astype(np.float64)


def _answers(ranking: JudgedRankings) -> FoundAnswers:
    if ranking.answers is None:
        raise ValueError("the measure looks for answers in texts, and there are none")
    return ranking.answers


def r_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Precision at the number of relevant documents."""
    possible = ranking.relevant_judged(level)
    found = ranking.per_query(ranking.relevant(level) & (ranking.rank <= possible[ranking.query]))
    return divide(found, possible)


def bpref(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """For each relevant document retrieved, the share of (as many) judged non-relevant ones that are not above it."""
    relevant = ranking.relevant(level)
    possible = ranking.relevant_judged(level)
    not_relevant = np.diff(ranking.qrels.offsets) - possible
    above = ranking.counted_so_far(~relevant).astype(np.float64)
    bound = possible[ranking.query]
    share = divide(np.minimum(above, bound), np.minimum(bound, not_relevant[ranking.query]))
    return divide(ranking.per_query((1 - share) * relevant), possible)


@dataclass(frozen=True)
class RankBiasedPrecision:
    """The expected share of relevant documents for a reader who goes on to the next one with probability
    `persistence`, 0 < p < 1."""

    persistence: float

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """(1 - p) times p^(rank - 1), summed over the relevant documents."""
        weights = (1 - self.persistence) * self.persistence ** (ranking.rank - 1).astype(np.float64)
        return ranking.per_query(weights * (ranking.relevant(level) & _within(ranking, k)))


def judged(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Judged documents among the first min(k, retrieved), by that number."""
    return divide(ranking.per_query(_within(ranking, k)), _shown(ranking, k))


def hole(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Unjudged documents among the first min(k, retrieved), by that number."""
    shown = _shown(ranking, k)
    return divide(shown - ranking.per_query(_within(ranking, k)), shown)


def hole_anywhere(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """The same, where a document judged for any query counts as judged."""
    shown = _shown(ranking, k)
    elsewhere = np.ones(len(ranking.elsewhere_rank), np.bool_) if k is None else ranking.elsewhere_rank <= k
    known = ranking.per_query(_within(ranking, k)) + ranking.per_query(elsewhere, ranking.elsewhere_query)
    return divide(shown - known, shown)
