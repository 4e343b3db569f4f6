"""Formulas of measures over subtopics, as in TREC's ndeval with α = β = 0.5.

Only subtopics with a relevant document count. At rank 1, ndeval does not divide ERR-IA and α-DCG by the highest gain;
here all ranks have the same definition.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.subtopics import Subtopics
from evaluation.measures.formulas import JudgedRankings, Values, divide

#: Depth of measures without cutoff, and depth from which gains of repeated subtopics are 0.
_DEPTH, _MAX_REPETITIONS = 64, 1100

#: Discounts by rank of DCG, ERR, and RBP with a persistence of 0.5.
DISCOUNTS: dict[str, Callable[[NDArray[np.int64]], Values]] = {
    "DCG": lambda rank: 1 / np.log2(rank + 1),
    "ERR": lambda rank: 1 / rank,
    "RBP": lambda rank: np.exp2(1.0 - rank),
}


def _split_by_subtopic(ranking: JudgedRankings) -> tuple[Subtopics, JudgedRankings]:
    """Return the judgments by subtopic, and the judged documents of each query, with a row for each subtopic."""
    subtopics = ranking.subtopics
    if subtopics is None:
        raise ValueError("the measure requires judgments by subtopic, but there are none")
    first, counts = (edges[ranking.judgement_number] for edges in (subtopics.offsets, np.diff(subtopics.offsets)))
    source = np.repeat(np.arange(len(counts)), counts)
    number = subtopics.judgement_numbers[np.arange(len(source)) + np.repeat(first + counts - np.cumsum(counts), counts)]
    order = np.argsort(subtopics.qrels.rows[number], kind="stable")
    rows, grade = subtopics.qrels.rows[number[order]], subtopics.qrels.grades[number[order]].astype(np.int64)
    separate = {"qrels": subtopics.qrels, "query": rows, "rank": ranking.rank[source[order]], "grade": grade}
    return subtopics, replace(ranking, **separate)


@dataclass(frozen=True)
class IntentAware:
    """Mean of a measure over the subtopics of a query."""

    formula: Callable[[JudgedRankings, int | None, int], Values]

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        subtopics, separate = _split_by_subtopic(ranking)
        total = ranking.query_sums(self.formula(separate, k, level), subtopics.query)
        return divide(total, ranking.query_sums(separate.relevant_totals(level) > 0, subtopics.query))


@dataclass(frozen=True)
class NoveltyGain:
    """Discounted gain, where the document after c others that are relevant to a subtopic gains 0.5^c for it.

    It is divided by that of the ideal ranking if `normalized`, and otherwise by that of documents that are relevant to
    all subtopics.
    """

    discount: str
    normalized: bool = False

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """Return the quotient for each query, or 0 if no document is relevant to a subtopic."""
        (subtopics, separate), discount, depth = _split_by_subtopic(ranking), DISCOUNTS[self.discount], k or _DEPTH
        relevant = separate.relevant(level) & (separate.rank <= depth)
        gains: Values = relevant * np.exp2(1.0 - separate.running_counts(relevant)) * discount(separate.rank)
        gain = ranking.query_sums(separate.query_sums(gains), subtopics.query)
        if self.normalized:
            row, rank, ideal_gain = _rank_ideally(subtopics, level, depth)
            return divide(gain, ranking.query_sums(ideal_gain * discount(rank), row.astype(np.int64)))
        ranks = np.arange(1, min(depth, _MAX_REPETITIONS) + 1)
        highest = np.sum(np.exp2(1.0 - ranks) * discount(ranks))
        return divide(gain, ranking.query_sums(separate.relevant_totals(level) > 0, subtopics.query) * highest)


@lru_cache(maxsize=64)
def _rank_ideally(subtopics: Subtopics, level: int, depth: int) -> NDArray[np.float64]:
    """Return query rows, ranks, and gains of ideal rankings of `depth` documents at most, shape (3, documents).

    The next document is always one with the highest gain; of several, the one with the highest id, as in ndeval. An
    optimal ranking is NP-complete (Clarke et al., SIGIR 2008).
    """
    is_relevant = subtopics.qrels.grades[subtopics.judgement_numbers] >= level
    subtopic = subtopics.qrels.rows[subtopics.judgement_numbers[is_relevant]]
    judgement = np.repeat(np.arange(len(subtopics.offsets) - 1), np.diff(subtopics.offsets))[is_relevant]
    _, first, document = np.unique(judgement, return_index=True, return_inverse=True)
    row, weights, remaining = subtopics.query[subtopic[first]], np.ones(len(subtopics.query)), np.ones(len(first))
    last, rankings = np.flatnonzero(np.diff(row, append=-1)), [np.zeros((3, 0))]
    for rank in range(1, depth + 1):
        gains = np.bincount(document, weights[subtopic], len(first)) * remaining
        best = np.lexsort((gains, row))[last]
        best = best[gains[best] > 0]
        if not len(best):
            break
        rankings.append(np.stack([row[best], np.full(len(best), rank), gains[best]]))
        weights[subtopic[np.isin(document, best)]] *= 0.5
        remaining[best] = 0
    return np.concatenate(rankings, axis=1)
