"""References for measures over subtopics, one query at a time, as in TREC's ndeval with α = β = 0.5."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import log2

from evaluation.verification.references import RankedQuery

#: Depth of measures without cutoff.
_DEPTH = 64
#: Relevant subtopics of each document of a ranking.
Relevant = Sequence[Sequence[str]]


def _relevant_subtopics(documents: Sequence[Mapping[str, int]], level: int) -> Relevant:
    return [[subtopic for subtopic, grade in sorted(graded.items()) if grade >= level] for graded in documents]


def _count(documents: Relevant) -> int:
    return len({subtopic for document in documents for subtopic in document})


def _compute_gain(document: Sequence[str], seen: Mapping[str, int]) -> float:
    gain = 0.0
    for subtopic in document:
        gain += 0.5 ** seen.get(subtopic, 0)
    return gain


def _list_gains(documents: Relevant) -> Iterator[float]:
    """Yield the gain of each document of a ranking."""
    seen: dict[str, int] = {}
    for document in documents:
        yield _compute_gain(document, seen)
        seen.update({subtopic: seen.get(subtopic, 0) + 1 for subtopic in document})


def _rank_ideally(documents: Relevant) -> Iterator[float]:
    """Yield the gains of the greedy ranking of documents in order of their ids; of equal gains, the last id is first.

    Gains only decrease, so that the highest of the earlier gains is the next one if it is still valid.
    """
    seen: dict[str, int] = {}
    heap = [(-float(len(document)), -place) for place, document in enumerate(documents) if document]
    heapify(heap)
    while heap:
        gain, place = heap[0]
        document = documents[-place]
        current_gain = -_compute_gain(document, seen)
        if current_gain != gain:
            heapreplace(heap, (current_gain, place))
            continue
        heappop(heap)
        yield -gain
        seen.update({subtopic: seen.get(subtopic, 0) + 1 for subtopic in document})


@dataclass(frozen=True)
class NoveltyGain:
    """Sum of gains, times the discounts of their ranks, and divided by that of an ideal ranking."""

    discount: Callable[[int], float]
    normalized: bool = False

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        depth = k or _DEPTH
        judged = _relevant_subtopics(query.judged_subtopics, level)

        def add(gains: Iterator[float]) -> float:
            return sum(gain * self.discount(rank) for rank, gain in enumerate(islice(gains, depth), 1))

        ideal = add(_rank_ideally(judged) if self.normalized else (_count(judged) * 0.5**i for i in range(depth)))
        return add(_list_gains(_relevant_subtopics(query.subtopics, level))) / ideal if ideal else 0.0


alpha_dcg, alpha_ndcg = (NoveltyGain(lambda rank: 1 / log2(rank + 1), normalized) for normalized in (False, True))
err_ia, nerr_ia = (NoveltyGain(lambda rank: 1 / rank, normalized) for normalized in (False, True))
nrbp, nnrbp = (NoveltyGain(lambda rank: 0.5 ** (rank - 1), normalized) for normalized in (False, True))


def subtopic_precision(query: RankedQuery, k: int | None, level: int) -> float:
    """Return the number of relevant subtopics of the first k documents, by k and the number of subtopics."""
    count = _count(_relevant_subtopics(query.judged_subtopics, level))
    found = sum(map(len, _relevant_subtopics(query.subtopics[:k], level)))
    return found / ((k or 1) * count) if count else 0.0


def subtopic_average_precision(query: RankedQuery, k: int | None, level: int) -> float:
    """Return average precision for each subtopic separately, averaged over the subtopics."""
    judged, ranked = (_relevant_subtopics(each, level) for each in (query.judged_subtopics, query.subtopics))
    values = []
    for subtopic in {name for document in judged for name in document}:
        ranks = [rank for rank, document in enumerate(ranked, 1) if subtopic in document]
        relevant = sum(subtopic in document for document in judged)
        values.append(sum(found / rank for found, rank in enumerate(ranks, 1)) / relevant)
    return sum(values) / len(values) if values else 0.0


def subtopic_recall(query: RankedQuery, k: int | None, level: int) -> float:
    """Return the share of subtopics to which one of the first k documents is relevant."""
    count = _count(_relevant_subtopics(query.judged_subtopics, level))
    return _count(_relevant_subtopics(query.subtopics[:k], level)) / count if count else 0.0
