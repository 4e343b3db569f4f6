"""The most that a score could be, whatever grades the unjudged documents among the first k would get.

The idea is that of the residual of rank-biased precision (Moffat & Zobel, TOIS 27(1), 2008): a score over
incomplete judgements is one end of a range. There every unjudged document counts as relevant at the other end. Where a
score is divided by what could be found (nDCG, R, R_cap), a further relevant document raises both sides of the fraction,
and all of them relevant need not be the most: three relevant documents that a run ranks first, and nothing else, are an
nDCG of 1, which another relevant document at rank 10 can only lower. So the bound here is the maximum over all
assignments of grades that the judgements use. It holds for every way in which these judgements could be completed,
since a document that is not among the first k can only lower the score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from evaluation.measures import formulas
from evaluation.measures.formulas import JudgedRankings, Values, divide

Bound = Callable[[JudgedRankings, int | None, int], Values]
#: What a cell of the grid has: a rank with an unjudged document, and one behind the end of a ranking.
_UNJUDGED, _NOTHING = -1, -2
#: A cutoff beyond every ranking, where there is none.
_DEEPEST = 2**31


def _grades_by_rank(ranking: JudgedRankings, k: int | None) -> NDArray[np.int64]:
    """The grades at the first k ranks, shape (queries, k); `_UNJUDGED` and `_NOTHING` where there is none."""
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


def _all_relevant(formula: Bound) -> Bound:
    """The bound of a measure that a further relevant document among the first k never lowers: all of them relevant."""

    def bound(ranking: JudgedRankings, k: int | None, level: int) -> Values:
        grid = _grades_by_rank(ranking, k)
        unjudged = grid == _UNJUDGED
        rows, ranks = np.nonzero(grid != _NOTHING)
        given = {each.name: getattr(ranking, each.name) for each in fields(ranking)}
        given |= {"query": rows, "rank": ranks + 1, "grade": np.where(unjudged, level, grid)[rows, ranks]}
        return formula(_Completed(**given, added=unjudged.sum(axis=1).astype(np.float64)), k, level)

    return bound


def ndcg(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """The highest nDCG@k over all grades of the unjudged documents.

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


#: By the name of a measure that has a cutoff: the bound of it.
BOUNDS: dict[str, Bound] = {
    "nDCG": ndcg,
    "P": _all_relevant(formulas.precision),
    "R": _all_relevant(formulas.recall),
    "R_cap": _all_relevant(formulas.capped_recall),
    "RR": _all_relevant(formulas.reciprocal_rank),
    "Success": _all_relevant(formulas.success),
}
