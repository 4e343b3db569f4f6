"""Formulas of measures over subtopics, as defined by TREC's ndeval with α = β = 0.5.

A document is relevant to a subtopic from grade `level` on. Only subtopics with a relevant document count. At rank 1,
ndeval does not divide ERR-IA and α-DCG by the gain of an ideal document; here all ranks have the same definition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.subtopics import Subtopics
from evaluation.measures.formulas import JudgedRankings, Values, divide

#: α, the share of gain that a subtopic loses with each relevant document.
_REDUNDANCY = 0.5
#: Depth of measures without cutoff. Later documents change values by less than 2^-64.
_DEPTH = 64
#: Number of documents after which the gain of a subtopic is 0 in double precision.
_MAX_REPETITIONS = 1100

IdealRanking = tuple[NDArray[np.int64], NDArray[np.int64], Values]
Discount = Callable[[NDArray[np.int64]], Values]


def reciprocal_rank_discount(rank: NDArray[np.int64]) -> Values:
    """Return the discount of ERR."""
    return 1 / rank


def logarithmic_discount(rank: NDArray[np.int64]) -> Values:
    """Return the discount of DCG."""
    return 1 / np.log2(rank + 1)


def geometric_discount(rank: NDArray[np.int64]) -> Values:
    """Return the discount of RBP with the persistence β = 0.5."""
    values: Values = np.exp2(1.0 - rank)
    return values


class _Coverage(NamedTuple):
    """Relevant subtopics of retrieved documents, sorted by subtopic and rank.

    Attributes:
        query: Row in the qrels.
        rank: Rank of the document.
        subtopic: Number of the subtopic.
        earlier: Number of relevant documents for the subtopic at higher ranks.
    """

    query: NDArray[np.int64]
    rank: NDArray[np.int64]
    subtopic: NDArray[np.int64]
    earlier: NDArray[np.int64]


def _get_subtopics(ranking: JudgedRankings) -> Subtopics:
    if ranking.subtopics is None:
        raise ValueError("the measure requires judgments by subtopic, but there are none")
    return ranking.subtopics


def _find_coverage(ranking: JudgedRankings, k: int | None, level: int) -> _Coverage:
    """Return the relevant subtopics of the first k documents."""
    subtopics = _get_subtopics(ranking)
    first, counts = subtopics.offsets[ranking.judgement], np.diff(subtopics.offsets)[ranking.judgement]
    place = np.repeat(np.arange(len(counts)), counts)
    entry = np.arange(len(place)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    selected = subtopics.grades[entry] >= level
    if k is not None:
        selected &= ranking.rank[place] <= k
    place, subtopic = place[selected], subtopics.subtopic[entry[selected]]
    order = np.argsort(subtopic, kind="stable")
    place, subtopic = place[order], subtopic[order]
    earlier = np.arange(len(subtopic)) - np.searchsorted(subtopic, subtopic)
    return _Coverage(ranking.query[place], ranking.rank[place], subtopic, earlier)


def _relevant_totals(ranking: JudgedRankings, level: int) -> tuple[Values, Values]:
    """Return the number of relevant documents of each subtopic, and the number of subtopics of each query."""
    subtopics = _get_subtopics(ranking)
    totals = np.bincount(subtopics.subtopic, subtopics.grades >= level, len(subtopics.query)).astype(np.float64)
    return totals, ranking.query_sums(totals > 0, subtopics.query)


def _rank_ideally(subtopics: Subtopics, level: int, depth: int) -> IdealRanking:
    """Return query rows, ranks, and gains of ideal rankings of `depth` documents at most.

    The next document is always one with the highest gain; of several, the one with the highest id, as in ndeval. An
    optimal ranking is NP-complete (Clarke et al., SIGIR 2008).
    """
    if (level, depth) in subtopics.cached_rankings:
        return subtopics.cached_rankings[level, depth]
    judgement = np.repeat(np.arange(len(subtopics.offsets) - 1), np.diff(subtopics.offsets))
    relevant = subtopics.grades >= level
    judgement, subtopic = judgement[relevant], subtopics.subtopic[relevant]
    row = subtopics.query[subtopic]
    weights = np.ones(len(subtopics.query))
    rankings: list[tuple[int, int, float]] = []
    edges = np.flatnonzero(np.diff(row, prepend=-1, append=-1))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        numbers = subtopic[start:end]
        document = np.cumsum(np.diff(judgement[start:end], prepend=judgement[start]) > 0)
        remaining = np.ones(document[-1] + 1, np.bool_)
        for rank in range(1, min(depth, len(remaining)) + 1):
            gains = np.where(remaining, np.bincount(document, weights[numbers]), -1.0)
            best = len(gains) - 1 - int(np.argmax(gains[::-1]))
            rankings.append((int(row[start]), rank, float(gains[best])))
            weights[numbers[document == best]] *= 1 - _REDUNDANCY
            remaining[best] = False
    columns = np.array(rankings).reshape(-1, 3).T
    result = columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2]
    subtopics.cached_rankings[level, depth] = result
    return result


@dataclass(frozen=True)
class NoveltyGain:
    """Discounted gain, where a document gains (1 − α)^c for each subtopic that c earlier documents are relevant to.

    It is divided by that of the ideal ranking if `normalized`, and otherwise by that of documents that are relevant to
    all subtopics.
    """

    discount: Discount
    normalized: bool = False

    def __call__(self, ranking: JudgedRankings, k: int | None, level: int) -> Values:
        """Return the quotient for each query, or 0 if no document is relevant to a subtopic."""
        coverage, depth = _find_coverage(ranking, k, level), k or _DEPTH
        gains = (1 - _REDUNDANCY) ** coverage.earlier * self.discount(coverage.rank)
        value = ranking.query_sums(gains, coverage.query)
        if self.normalized:
            row, rank, gain = _rank_ideally(_get_subtopics(ranking), level, depth)
            return divide(value, ranking.query_sums(gain * self.discount(rank), row))
        ranks = np.arange(1, min(depth, _MAX_REPETITIONS) + 1)
        highest = float(np.sum((1 - _REDUNDANCY) ** (ranks - 1) * self.discount(ranks)))
        return divide(value, _relevant_totals(ranking, level)[1] * highest)


def subtopic_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return P-IA@k, the mean of P@k over the subtopics."""
    coverage = _find_coverage(ranking, k, level)
    found = ranking.query_sums(np.ones(len(coverage.rank)), coverage.query)
    return divide(found / (k or 1), _relevant_totals(ranking, level)[1])


def subtopic_average_precision(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return MAP-IA, the mean of AP over the subtopics."""
    coverage = _find_coverage(ranking, k, level)
    totals, subtopic_counts = _relevant_totals(ranking, level)
    precision = (coverage.earlier + 1) / coverage.rank / totals[coverage.subtopic]
    return divide(ranking.query_sums(precision, coverage.query), subtopic_counts)


def subtopic_recall(ranking: JudgedRankings, k: int | None, level: int) -> Values:
    """Return the share of subtopics that one of the first k documents is relevant to."""
    coverage = _find_coverage(ranking, k, level)
    return divide(ranking.query_sums(coverage.earlier == 0, coverage.query), _relevant_totals(ranking, level)[1])
