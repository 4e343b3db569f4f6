"""Formulas of measures over subtopics, as in TREC's ndeval with α = β = 0.5.

Only subtopics with a relevant document count. At rank 1, ndeval does not divide ERR-IA and α-DCG by the highest gain;
here all ranks have the same definition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

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


def _separate(ranking: JudgedRankings) -> tuple[Subtopics, JudgedRankings]:
    """Return the judgments by subtopic, and the ranking of each query with a row for each of its subtopics."""
    subtopics = ranking.subtopics
    if subtopics is None:
        raise ValueError("the measure requires judgments by subtopic, but there are none")
    first, counts = subtopics.offsets[ranking.judgement], np.diff(subtopics.offsets)[ranking.judgement]
    source = np.repeat(np.arange(len(counts)), counts)
    place = subtopics.places[np.arange(len(source)) + np.repeat(first - (np.cumsum(counts) - counts), counts)]
    order = np.argsort(subtopics.qrels.rows[place], kind="stable")
    place, rank, nothing = place[order], ranking.rank[source[order]], np.zeros(0, np.int64)
    grade, retrieved = subtopics.qrels.grades[place].astype(np.int64), ranking.retrieved[subtopics.query]
    rows = subtopics.qrels.rows[place]
    return subtopics, JudgedRankings(subtopics.qrels, rows, rank, grade, nothing, nothing, retrieved)


@dataclass(frozen=True)
class IntentAware:
    """Mean of a measure over the subtopics of a query."""

    formula: Callable[[JudgedRankings, int | None, int], Values]

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        subtopics, separate = _separate(ranking)
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
        (subtopics, separate), discount, depth = _separate(ranking), DISCOUNTS[self.discount], k or _DEPTH
        relevant = separate.relevant(level) & (separate.rank <= depth)
        gains: Values = relevant * np.exp2(1.0 - separate.running_counts(relevant)) * discount(separate.rank)
        gain = ranking.query_sums(separate.query_sums(gains), subtopics.query)
        if self.normalized:
            row, rank, ideal_gain = _rank_ideally(subtopics, level, depth)
            return divide(gain, ranking.query_sums(ideal_gain * discount(rank), row.astype(np.int64)))
        ranks = np.arange(1, min(depth, _MAX_REPETITIONS) + 1)
        highest = np.sum(np.exp2(1.0 - ranks) * discount(ranks))
        return divide(gain, ranking.query_sums(separate.relevant_totals(level) > 0, subtopics.query) * highest)


def _rank_ideally(subtopics: Subtopics, level: int, depth: int) -> NDArray[np.float64]:
    """Return query rows, ranks, and gains of ideal rankings of `depth` documents at most, shape (3, documents).

    The next document is always one with the highest gain; of several, the one with the highest id, as in ndeval. An
    optimal ranking is NP-complete (Clarke et al., SIGIR 2008).
    """
    if (key := (level, depth)) in subtopics.ideal_gains:
        return subtopics.ideal_gains[key]
    relevant = subtopics.qrels.grades[subtopics.places] >= level
    judgement = np.repeat(np.arange(len(subtopics.offsets) - 1), np.diff(subtopics.offsets))[relevant]
    subtopic = subtopics.qrels.rows[subtopics.places[relevant]]
    row, weights = subtopics.query[subtopic], np.ones(len(subtopics.query))
    rankings: list[tuple[int, int, float]] = []
    for start, end in pairwise(np.flatnonzero(np.diff(row, prepend=-1, append=-1)).tolist()):
        numbers = subtopic[start:end]
        document = np.cumsum(np.diff(judgement[start:end], prepend=judgement[start]) > 0)
        remaining = np.ones(document[-1] + 1, np.bool_)
        for rank in range(1, min(depth, len(remaining)) + 1):
            gains = np.where(remaining, np.bincount(document, weights[numbers]), -1.0)
            best = len(gains) - 1 - int(np.argmax(gains[::-1]))
            rankings.append((int(row[start]), rank, float(gains[best])))
            weights[numbers[document == best]] *= 0.5
            remaining[best] = False
    subtopics.ideal_gains[key] = np.array(rankings, np.float64).reshape(-1, 3).T
    return subtopics.ideal_gains[key]
