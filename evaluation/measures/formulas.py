"""The formulas, each over all queries at once. Sums run in order of rank, as trec_eval's do, so that values agree.

`k` is the cutoff (None for none), `level` the lowest grade that is relevant. A query that the run misses, or that has
no relevant document, gets 0 from every one of them.

`JudgedRankings` has what every measure is computed from: grades and ranks of the judged documents of all queries in
arrays.

The bounds at the end are the most that a score could be, whatever grades the unjudged documents among the first k would
get. The idea is that of the residual of rank-biased precision (Moffat & Zobel, TOIS 27(1), 2008): a score over
incomplete judgements is one end of a range. There every unjudged document counts as relevant at the other end. Where a
score is divided by what could be found (nDCG, R, R_cap), a further relevant document raises both sides of the fraction,
and all of them relevant need not be the most: three relevant documents that a run ranks first, and nothing else, are an
nDCG of 1, which another relevant document at rank 10 can only lower. So the bound here is the maximum over all
assignments of grades that the judgements use. It holds for every way in which these judgements could be completed,
since a document that is not among the first k can only lower the score.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields

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
        """Add up by query one weight per judged document retrieved, in order of rank."""
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


def ndcg(ranking: JudgedRankings, k: int | None, level: int, exponential: bool = False) -> Values:
    """Return the discounted gain (gain over log2(rank + 1)) by that of the best possible ranking.

    The gain is the grade, or if `exponential` 2^grade - 1.
    """

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
    """Return the harmonic mean of P@k and R@k: twice the relevant documents among the first k, by k + R."""
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
    """Return Hole, where a document judged for any query counts as judged."""
    shown = _shown(ranking, k)
    elsewhere = np.ones(len(ranking.elsewhere_rank), np.bool_) if k is None else ranking.elsewhere_rank <= k
    known = ranking.per_query(_within(ranking, k)) + ranking.per_query(elsewhere, ranking.elsewhere_query)
    return divide(shown - known, shown)


Bound = Callable[[JudgedRankings, int | None, int], Values]
#: What a cell of the grid has: a rank with an unjudged document, and one behind the end of a ranking.
_UNJUDGED, _NOTHING = -1, -2
#: A cutoff beyond every ranking, where there is none.
_DEEPEST = 2**31


def _grades_by_rank(ranking: JudgedRankings, k: int | None) -> NDArray[np.int64]:
    """Return the grades at the first k ranks, shape (queries, k); `_UNJUDGED` and `_NOTHING` where there is none."""
    depth = max(1, min(int(ranking.retrieved.max(initial=0)), k or _DEEPEST))
    grid = np.where(np.arange(depth) < ranking.retrieved[:, None], _UNJUDGED, _NOTHING)
    within = ranking.rank <= depth
    grid[ranking.query[within], ranking.rank[within] - 1] = ranking.grade[within]
    return grid


@dataclass(frozen=True)
class _Completed(JudgedRankings):
    """A run's first k documents with the unjudged ones judged relevant, `added` of them for each query."""

    added: Values = field(default_factory=lambda: np.zeros(0))

    def relevant_judged(self, level: int) -> Values:
        """Per query, how many documents are relevant."""
        return super().relevant_judged(level) + self.added


def all_relevant(formula: Bound) -> Bound:
    """Return the bound of a measure that no further relevant document in the first k lowers: all of them relevant."""

    def bound(ranking: JudgedRankings, k: int | None, level: int) -> Values:
        grid = _grades_by_rank(ranking, k)
        unjudged = grid == _UNJUDGED
        rows, ranks = np.nonzero(grid != _NOTHING)
        given = {each.name: getattr(ranking, each.name) for each in fields(ranking)}
        given |= {"query": rows, "rank": ranks + 1, "grade": np.where(unjudged, level, grid)[rows, ranks]}
        return formula(_Completed(**given, added=unjudged.sum(axis=1).astype(np.float64)), k, level)

    return bound


def upper_ndcg(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the highest nDCG@k over all grades of the unjudged documents.

    With D(n) = Σ_{i≤n} 1 / log₂(i + 1) and r_t documents of grade t or higher, the ideal gain is Σ_t D(min(k, r_t)), a
    step of one grade counting 1. Of unjudged documents the first ones get the higher grades, so an assignment is for
    each t how many of them, j_t, have t or more. The maximum of gain / ideal gain is found by Dinkelbach's method
    (Management Science 13(7), 1967): where it is v, the maximum of gain − v · ideal gain is 0, and this is a sum over
    t, of which each term is maximised by itself. The j_t then fall as t rises, as they must, because r_t does.
    """
    grid = _grades_by_rank(ranking, k)
    levels = np.unique(np.maximum(ranking.qrels.grades, 0))
    levels = levels[levels > 0] if levels.max(initial=0) > 0 else np.array([max(level, 1)])
    steps = np.diff(levels, prepend=0).astype(np.float64)
    discounts = 1 / np.log2(np.arange(grid.shape[1]) + 2)
    unjudged = grid == _UNJUDGED
    most = int(unjudged.sum(axis=1).max(initial=0))
    gained = _first(np.where(unjudged, discounts, 0.0), unjudged, most)
    known = np.stack([np.where(grid >= each, discounts, 0.0).sum(axis=1) for each in levels])
    cumulated = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(k or grid.shape[1]) + 2))])
    there = np.stack([ranking.relevant_judged(int(each)).astype(np.int64) for each in levels])
    best = np.zeros(len(grid))
    while True:
        gain, ideal = np.zeros_like(best), np.zeros_like(best)
        for step, found, of_level in zip(steps, known, there, strict=True):
            possible = np.minimum(of_level[:, None] + np.arange(most + 1), len(cumulated) - 1)
            chosen = np.argmax(gained - best[:, None] * cumulated[possible], axis=1)[:, None]
            gain += step * (found + np.take_along_axis(gained, chosen, 1)[:, 0])
            ideal += step * cumulated[np.take_along_axis(possible, chosen, 1)[:, 0]]
        better = divide(gain, ideal)
        if not np.any(better > best + 1e-15):
            return best
        best = np.maximum(best, better)


def _first(discounts: Values, unjudged: NDArray[np.bool_], most: int) -> Values:
    """Per query, what the first 0, 1, … `most` unjudged documents add; −∞ for more than it has."""
    sums = np.full((len(discounts), most + 1), -np.inf)
    sums[:, 0] = 0.0
    rows, ranks = np.nonzero(unjudged)
    place = np.cumsum(unjudged, axis=1)[rows, ranks]
    sums[rows, place] = np.cumsum(discounts, axis=1)[rows, ranks]
    return sums
