"""The most that a score could be, whatever grades the unjudged documents among the first k would get.

The idea is that of the residual of rank-biased precision (Moffat & Zobel, TOIS 27(1), 2008, section 3.3): a score over
incomplete judgements is one end of a range. There every unjudged document counts as relevant at the other end. Where a
score is divided by what could be found (nDCG, R, R_cap), a further relevant document raises both sides of the fraction,
and all of them relevant need not be the most: three relevant documents that a run ranks first, and nothing else, are an
nDCG of 1, which another relevant document at rank 10 can only lower. So the bound here is the maximum over all
assignments of grades that the judgements use. It holds for every way in which these judgements could be completed,
since a document that is not among the first k can only lower the score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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


def _counts(ranking: JudgedRankings, k: int | None, level: int) -> tuple[Values, Values, Values]:
    """Per query: relevant documents among the first k, unjudged ones there, and relevant ones that there are."""
    grid = _grades_by_rank(ranking, k)
    found = (grid >= level).sum(axis=1).astype(np.float64)
    return found, (grid == _UNJUDGED).sum(axis=1).astype(np.float64), ranking.relevant_judged(level)


def precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """P@k with every unjudged document relevant."""
    found, unjudged, _ = _counts(ranking, k, level)
    return (found + unjudged) / (k or 1)


def success(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Success@k with every unjudged document relevant."""
    found, unjudged, _ = _counts(ranking, k, level)
    return (found + unjudged > 0).astype(np.float64)


def recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """R@k with every unjudged document relevant: it is never less, since no more was found than there is."""
    found, unjudged, possible = _counts(ranking, k, level)
    return divide(found + unjudged, possible + unjudged)


def capped_recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """R_cap@k with every unjudged document relevant, for the same reason."""
    found, unjudged, possible = _counts(ranking, k, level)
    possible = possible + unjudged
    return divide(found + unjudged, possible if k is None else np.minimum(possible, k))


def reciprocal_rank(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """1 / rank of the first document that is relevant or unjudged."""
    grid = _grades_by_rank(ranking, k)
    may_be = (grid >= level) | (grid == _UNJUDGED)
    return np.where(may_be.any(axis=1), 1 / (may_be.argmax(axis=1) + 1.0), 0.0)


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
    "P": precision,
    "R": recall,
    "R_cap": capped_recall,
    "RR": reciprocal_rank,
    "Success": success,
}
