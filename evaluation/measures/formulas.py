"""Formulas of measures, computed for all queries at once. Sums are in order of rank, so that values equal trec_eval's.

`k` is the cutoff (None for no cutoff), and `level` the lowest relevant grade. Queries that are missing in the run or
have no relevant documents score 0.

`JudgedRankings` contains the inputs of all measures: grades and ranks of the judged documents of all queries.

The upper bounds at the end are the highest possible scores over all grades of the unjudged documents among the first
k. They follow the residual of rank-biased precision (Moffat & Zobel, TOIS 27(1), 2008), where a score over incomplete
judgments is the lower end of a range, and all unjudged documents are relevant at the upper end. In measures that are
divided by an ideal value (nDCG, R, R_cap), a further relevant document increases both numerator and denominator, so
the maximum may be elsewhere: if a run ranks all three relevant documents first, its nDCG is 1, and another relevant
document at rank 10 can only reduce it. The bound is therefore the maximum over all assignments of grades in use. It
is valid for every completion of the judgments, because documents below rank k can only reduce the score.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.answers import FoundAnswers
from evaluation.judgements.qrels import Qrels
from evaluation.judgements.subtopics import Subtopics

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
#: Function from rankings, the cutoff, and the relevance level to a value for each query.
Formula = Callable[["JudgedRankings", int | None, int], Values]


@dataclass(frozen=True)
class JudgedRankings:
    """Judged documents of a run in trec_eval's order, truncated to the run's depth.

    Attributes:
        qrels: Relevance judgments.
        query: Row in the qrels for each retrieved judged document, ascending.
        rank: Rank of each of these documents from 1, ascending within a query.
        grade: Grade of each of these documents.
        elsewhere_query: Row in the qrels for each retrieved document that is judged for other queries only.
        elsewhere_rank: Rank of each of these documents.
        retrieved: Number of retrieved documents for each query.
        relevance_level: Lowest relevant grade for binary measures that do not specify one.
        answers: Positions of answers in the texts, if known.
        response_scores: Scores of the responses of an answer run, by measure; None for other runs.
        citations: Rankings of the cited documents; None for other runs.
        judgement_number: Number of the judgment of each retrieved judged document.
        pooled: Row in the qrels and rank of each retrieved document with a negative grade, which means pooled but not
            judged. Shape (2, documents), sorted.
        subtopics: Judgments by subtopic, if known.
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
    response_scores: Mapping[str, Values] | None = None
    citations: "JudgedRankings | None" = None
    judgement_number: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    pooled: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    subtopics: Subtopics | None = None

    @property
    def queries(self) -> int:
        return len(self.qrels.query_ids)

    def query_sums(self, weights: Values | Flags, rows: NDArray[np.int64] | None = None) -> Values:
        """Return the sum of weights of retrieved judged documents for each query, added in order of rank."""
        sums: Values = np.bincount(self.query if rows is None else rows, weights, self.queries).astype(np.float64)
        return sums

    def relevant(self, level: int) -> Flags:
        """Return which of the retrieved judged documents are relevant."""
        return self.grade >= level

    def relevant_totals(self, level: int) -> Values:
        """Return the number of relevant documents for each query."""
        cached_values = self.qrels.cached_values
        if (key := f"relevant from {level}") not in cached_values:
            relevant = np.bincount(self.qrels.rows, self.qrels.grades >= level, self.queries)
            cached_values[key] = relevant.astype(np.float64)
        return cached_values[key]

    def running_counts(self, flags: Flags) -> NDArray[np.int64]:
        """Return the number of flagged documents up to each retrieved judged document of a query, inclusive."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
        first = np.searchsorted(self.query, self.query, side="left")
        counts: NDArray[np.int64] = total[1:] - total[first]
        return counts


def divide(numerator: Values, denominator: Values) -> Values:
    """Return quotients, or 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)


def _is_within(ranking: JudgedRankings, k: int | None) -> Flags:
    return np.ones(len(ranking.rank), np.bool_) if k is None else ranking.rank <= k


def _count_relevant(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    return ranking.query_sums(ranking.relevant(level) & _is_within(ranking, k))


def _discount(gains: Values, ranks: NDArray[np.int64]) -> Values:
    return gains / np.log2(ranks + 1)


def ndcg(ranking: JudgedRankings, k: int | None, level: int, exponential: bool = False) -> Values:
    """Return nDCG@k: the sum of gain / log2(rank + 1), divided by that of the ideal ranking.

    The gain is the grade, or 2^grade − 1 if `exponential` is set. Järvelin & Kekäläinen, TOIS 20(4), 2002; ndcg_cut
    of trec_eval.
    """

    def compute_gains(grades: NDArray[np.int64]) -> Values:
        gains = np.maximum(grades, 0).astype(np.float64)
        return np.exp2(gains) - 1 if exponential else gains

    gain = ranking.query_sums(_discount(compute_gains(ranking.grade), ranking.rank) * _is_within(ranking, k))
    cached_values = ranking.qrels.cached_values
    if (key := f"ideal gain at {k}, exponential: {exponential}") not in cached_values:
        rows, grades = ranking.qrels.rows, ranking.qrels.grades.astype(np.int64)
        order = np.lexsort((-grades, rows))
        ideal_rank = np.arange(len(order)) - ranking.qrels.offsets[rows] + 1  # rows are already sorted
        ideal_gain = _discount(compute_gains(grades[order]), ideal_rank)
        if k is not None:
            ideal_gain = ideal_gain * (ideal_rank <= k)
        cached_values[key] = ranking.query_sums(ideal_gain, rows)
    return divide(gain, cached_values[key])


def _count_displayed(ranking: JudgedRankings, k: int | None) -> Values:
    return (ranking.retrieved if k is None else np.minimum(ranking.retrieved, k)).astype(np.float64)


def average_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return AP@k: the sum of precision at the ranks of relevant documents, divided by their total number."""
    relevant = ranking.relevant(level)
    precision = ranking.running_counts(relevant) / ranking.rank * (relevant & _is_within(ranking, k))
    return divide(ranking.query_sums(precision), ranking.relevant_totals(level))


def reciprocal_rank(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return 1 / rank of the first relevant document among the first k."""
    relevant = ranking.relevant(level)
    first = relevant & (ranking.running_counts(relevant) == 1) & _is_within(ranking, k)
    return ranking.query_sums(first / ranking.rank)


def precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the number of relevant documents among the first k, divided by k."""
    return _count_relevant(ranking, k, level) / (k or 1)


def recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the number of relevant documents among the first k, divided by the number of relevant documents."""
    return divide(_count_relevant(ranking, k, level), ranking.relevant_totals(level))


def capped_recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the number of relevant documents among the first k, divided by min(k, number of relevant documents)."""
    possible = ranking.relevant_totals(level)
    return divide(_count_relevant(ranking, k, level), possible if k is None else np.minimum(possible, k))


def success(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return 1 if a relevant document is among the first k, otherwise 0."""
    return (_count_relevant(ranking, k, level) > 0).astype(np.float64)


def f1(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the harmonic mean of P@k and R@k: twice the number of relevant documents among the first k, by k + R."""
    assert k is not None
    return divide(2 * _count_relevant(ranking, k, level), k + ranking.relevant_totals(level))


def answer(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return 1 if the text of one of the first k documents contains an answer, otherwise 0."""
    assert k is not None
    return (_get_answers(ranking).rank <= k).astype(np.float64)


def answer_within_tokens(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return 1 if the first k thousand tokens of the ranking's concatenated texts contain an answer, otherwise 0."""
    assert k is not None
    return (_get_answers(ranking).tokens <= 1000 * k).astype(np.float64)


@dataclass(frozen=True)
class ResponseScore:
    """Score of the responses by a measure of `evaluation.judgements.responses`."""

    measure: str

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        assert ranking.response_scores is not None
        return ranking.response_scores[self.measure]


@dataclass(frozen=True)
class CitationMeasure:
    """A measure of rankings, applied to the citations of an answer run."""

    formula: Formula

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        assert ranking.citations is not None
        return self.formula(ranking.citations, k, level)


def _get_answers(ranking: JudgedRankings) -> FoundAnswers:
    if ranking.answers is None:
        raise ValueError("the measure requires answers in texts, but there are none")
    return ranking.answers


def expected_reciprocal_rank(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return ERR@k: the sum over ranks of the probability that the user stops there, divided by the rank.

    A document satisfies the user with probability (2^grade − 1) / 2^m, where m is the highest grade of the qrels, at
    least 4. Chapelle et al., CIKM 2009; with grades up to 4, values equal those of gdeval.pl.
    """
    highest = max(4, int(ranking.qrels.grades.max(initial=0)))
    satisfied = (np.exp2(np.maximum(ranking.grade, 0).astype(np.float64)) - 1) / 2.0**highest
    passed = np.concatenate([np.zeros(1), np.cumsum(np.log1p(-satisfied))])
    first = np.searchsorted(ranking.query, ranking.query, side="left")
    stops = satisfied * np.exp(passed[:-1] - passed[first])
    return ranking.query_sums(stops / ranking.rank * _is_within(ranking, k))


@dataclass(frozen=True)
class InterpolatedPrecision:
    """Highest precision at any rank where recall is at least `recall`."""

    recall: float

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """Return the highest precision, with the required number of relevant documents rounded as in trec_eval."""
        relevant = ranking.relevant(level)
        found = ranking.running_counts(relevant)
        required = np.floor(self.recall * ranking.relevant_totals(level) + 0.9)
        values = np.zeros(ranking.queries)
        counted = relevant & (found >= required[ranking.query])
        np.maximum.at(values, ranking.query[counted], found[counted] / ranking.rank[counted])
        return values


def set_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the share of relevant documents among all retrieved ones."""
    return divide(_count_relevant(ranking, None, level), ranking.retrieved.astype(np.float64))


def relative_set_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the number of relevant retrieved documents, divided by the highest possible number."""
    possible = np.minimum(ranking.relevant_totals(level), ranking.retrieved)
    return divide(_count_relevant(ranking, None, level), possible)


def set_f1(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the harmonic mean of precision and recall of the set of retrieved documents."""
    return divide(2 * _count_relevant(ranking, None, level), ranking.retrieved + ranking.relevant_totals(level))


def set_average_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the product of precision and recall of the set of retrieved documents."""
    return set_precision(ranking, k, level) * recall(ranking, None, level)


def r_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return precision at the number of relevant documents."""
    possible = ranking.relevant_totals(level)
    retrieved = ranking.query_sums(ranking.relevant(level) & (ranking.rank <= possible[ranking.query]))
    return divide(retrieved, possible)


def bpref(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return bpref as in trec_eval, from the share of judged non-relevant documents ranked above each relevant one.

    Buckley & Voorhees, SIGIR 2004: (1 / R) Σ (1 − min(N above r, R) / min(N, R)) over retrieved relevant documents r.
    """
    relevant = ranking.relevant(level)
    possible = ranking.relevant_totals(level)
    not_relevant = np.diff(ranking.qrels.offsets) - possible
    non_relevant_above = ranking.running_counts(~relevant).astype(np.float64)
    bound = possible[ranking.query]
    share = divide(np.minimum(non_relevant_above, bound), np.minimum(bound, not_relevant[ranking.query]))
    return divide(ranking.query_sums((1 - share) * relevant), possible)


def inferred_average_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return infAP as in trec_eval, which estimates precision from the judged sample of the pool.

    Above a relevant document, the share of relevant documents in the pool is estimated by their share among judged
    documents (Yilmaz & Aslam, CIKM 2006). Documents outside the pool count as not relevant.
    """
    relevant = ranking.relevant(level)
    relevant_above = ranking.running_counts(relevant) - 1.0
    judged_above = ranking.running_counts(np.ones_like(relevant)) - 1.0
    pooled, first = ranking.pooled[0] * _MAX_CUTOFF + ranking.pooled[1], ranking.query * _MAX_CUTOFF
    pooled_above = judged_above + np.searchsorted(pooled, first + ranking.rank) - np.searchsorted(pooled, first)
    share = (relevant_above + 1e-5) / (judged_above + 2e-5)  # INFAP_EPSILON of trec_eval
    precision = (1 + pooled_above * share) / ranking.rank
    return divide(ranking.query_sums(precision * relevant), ranking.relevant_totals(level))


@dataclass(frozen=True)
class RankBiasedPrecision:
    """Expected share of relevant documents for a user who continues with probability `persistence`, 0 < p < 1.

    Moffat & Zobel, TOIS 27(1), 2008.
    """

    persistence: float

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """Return (1 − p) times the sum of p^(rank − 1) over the relevant documents among the first k."""
        weights = (1 - self.persistence) * self.persistence ** (ranking.rank - 1).astype(np.float64)
        return ranking.query_sums(weights * (ranking.relevant(level) & _is_within(ranking, k)))


def judged(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the share of judged documents among the first min(k, retrieved)."""
    return divide(ranking.query_sums(_is_within(ranking, k)), _count_displayed(ranking, k))


def hole(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the share of unjudged documents among the first min(k, retrieved)."""
    size = _count_displayed(ranking, k)
    return divide(size - ranking.query_sums(_is_within(ranking, k)), size)


def hole_anywhere(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return Hole@k of BEIR, where documents judged for any query count as judged."""
    size = _count_displayed(ranking, k)
    is_within = np.ones(len(ranking.elsewhere_rank), np.bool_) if k is None else ranking.elsewhere_rank <= k
    judged_count = ranking.query_sums(_is_within(ranking, k)) + ranking.query_sums(is_within, ranking.elsewhere_query)
    return divide(size - judged_count, size)


#: Values in a grid of grades for unjudged documents and for ranks after the end of a ranking.
_UNJUDGED, _NOTHING = -1, -2
#: Cutoff of measures without one, greater than the length of any ranking.
_MAX_CUTOFF = 2**31


def _grades_by_rank(ranking: JudgedRankings, k: int | None) -> NDArray[np.int64]:
    """Return the grades at the first k ranks, shape (queries, k), with `_UNJUDGED` and `_NOTHING` for missing ones."""
    depth = max(1, min(int(ranking.retrieved.max(initial=0)), k or _MAX_CUTOFF))
    grid = np.where(np.arange(depth) < ranking.retrieved[:, None], _UNJUDGED, _NOTHING)
    is_in_grid = ranking.rank <= depth
    grid[ranking.query[is_in_grid], ranking.rank[is_in_grid] - 1] = ranking.grade[is_in_grid]
    return grid


@dataclass(frozen=True)
class _CompletedRankings(JudgedRankings):
    """Rankings of the first k documents with unjudged ones as relevant; `added_counts` is their number by query."""

    added_counts: Values = field(default_factory=lambda: np.zeros(0))

    def relevant_totals(self, level: int) -> Values:
        return super().relevant_totals(level) + self.added_counts


def all_relevant(formula: Formula) -> Formula:
    """Return a function for the upper bound of a measure that further relevant documents cannot reduce.

    The bound is the score if all unjudged documents among the first k are relevant.
    """

    def bound(ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """Return the scores of the first k documents, with unjudged ones as relevant."""
        grid = _grades_by_rank(ranking, k)
        unjudged = grid == _UNJUDGED
        rows, ranks = np.nonzero(grid != _NOTHING)
        values = {field_.name: getattr(ranking, field_.name) for field_ in fields(ranking)}
        values |= {"query": rows, "rank": ranks + 1, "grade": np.where(unjudged, level, grid)[rows, ranks]}
        return formula(_CompletedRankings(**values, added_counts=unjudged.sum(axis=1).astype(np.float64)), k, level)

    return bound


def upper_ndcg(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the highest nDCG@k over all grades of the unjudged documents.

    With D(n) = Σ_{i≤n} 1 / log₂(i + 1) and r_t documents of grade t or higher, the ideal gain is Σ_t D(min(k, r_t)),
    where a step of one grade counts 1. The first unjudged documents should have the highest grades, so an assignment
    consists of the number j_t of unjudged documents with grade t or higher, for each t. The maximum of gain / ideal
    gain is computed by Dinkelbach's method (Management Science 13(7), 1967): if it is v, the maximum of gain − v ·
    ideal gain is 0. This is a sum over t with terms that can be maximized separately. The resulting j_t decrease with
    t, as required, because r_t does.
    """
    grid = _grades_by_rank(ranking, k)
    levels = np.unique(np.maximum(ranking.qrels.grades, 0))
    levels = levels[levels > 0] if levels.max(initial=0) > 0 else np.array([max(level, 1)])
    steps = np.diff(levels, prepend=0).astype(np.float64)
    discounts = 1 / np.log2(np.arange(grid.shape[1]) + 2)
    unjudged = grid == _UNJUDGED
    max_unjudged = int(unjudged.sum(axis=1).max(initial=0))
    # The sums of discounts of each query's first 0, 1, … unjudged documents; −∞ for more than the query has.
    added_gains = np.full((len(grid), max_unjudged + 1), -np.inf)
    added_gains[:, 0] = 0.0
    rows, ranks = np.nonzero(unjudged)
    positions = np.cumsum(unjudged, axis=1)[rows, ranks]
    added_gains[rows, positions] = np.cumsum(np.where(unjudged, discounts, 0.0), axis=1)[rows, ranks]
    judged_gains = np.stack([np.where(grid >= grade, discounts, 0.0).sum(axis=1) for grade in levels])
    cumulated_discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(k or grid.shape[1]) + 2))])
    relevant_counts = np.stack([ranking.relevant_totals(int(grade)).astype(np.int64) for grade in levels])
    best = np.zeros(len(grid))
    while True:
        gain, ideal = np.zeros_like(best), np.zeros_like(best)
        for step, judged_gain, relevant_count in zip(steps, judged_gains, relevant_counts, strict=True):
            counts = np.minimum(relevant_count[:, None] + np.arange(max_unjudged + 1), len(cumulated_discounts) - 1)
            choice = np.argmax(added_gains - best[:, None] * cumulated_discounts[counts], axis=1)[:, None]
            gain += step * (judged_gain + np.take_along_axis(added_gains, choice, 1)[:, 0])
            ideal += step * cumulated_discounts[np.take_along_axis(counts, choice, 1)[:, 0]]
        candidate = divide(gain, ideal)
        if not np.any(candidate > best + 1e-15):
            return best
        best = np.maximum(best, candidate)
