"""References for measures over subtopics, one query at a time, as in TREC's ndeval with α = β = 0.5."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice, repeat
from math import log2

from evaluation.verification.references import RankedQuery, Reference

#: Depth of measures without cutoff.
_DEPTH = 64
#: Relevant subtopics of each document.
_Relevant = Sequence[Sequence[str]]

_DISCOUNTS: dict[str, Callable[[int], float]] = {
    "DCG": lambda rank: 1 / log2(rank + 1),
    "ERR": lambda rank: 1 / rank,
    "RBP": lambda rank: 0.5 ** (rank - 1),
}


def _list_relevant(documents: Sequence[Mapping[str, int]], level: int) -> _Relevant:
    return [[subtopic for subtopic, grade in sorted(graded.items()) if grade >= level] for graded in documents]


class _SubtopicCounts(Counter[str]):
    """Numbers of earlier documents by subtopic."""

    def gain(self, document: Sequence[str]) -> float:
        gain = 0.0
        for subtopic in document:
            gain += 0.5 ** self[subtopic]
        return gain


def _rank_ideally(documents: _Relevant) -> Iterator[Sequence[str]]:
    """Yield documents, given in order of their ids, greedily by gain; of equal gains, the last id is first.

    Gains only decrease, so the highest earlier gain is the next one if it is still valid.
    """
    seen = _SubtopicCounts()
    heap = [(-float(len(document)), -place) for place, document in enumerate(documents)]
    heapify(heap)
    while heap:
        gain, place = heappop(heap)
        document = documents[-place]
        if seen.gain(document) == -gain:
            yield document
            seen.update(document)
        else:
            heappush(heap, (-seen.gain(document), place))


@dataclass(frozen=True)
class NoveltyGain:
    """Discounted sum of gains, divided by that of an ideal ranking."""

    discount: str
    normalized: bool = False

    def add_gains(self, documents: Iterable[Sequence[str]]) -> float:
        """Return the sum over a ranking."""
        seen, value = _SubtopicCounts(), 0.0
        for rank, document in enumerate(documents, 1):
            value += seen.gain(document) * _DISCOUNTS[self.discount](rank)
            seen.update(document)
        return value

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        judged, depth = _list_relevant(query.judged_subtopics, level), k or _DEPTH
        all_subtopics = sorted({name for document in judged for name in document})
        ideal = self.add_gains(islice(_rank_ideally(judged) if self.normalized else repeat(all_subtopics), depth))
        return self.add_gains(_list_relevant(query.subtopics[:depth], level)) / ideal if ideal else 0.0


def _intent_aware(measure: Callable[[Sequence[int], int, int], float]) -> Reference:
    """Return the mean over subtopics of a measure of the ranks of relevant documents, their total, and the cutoff."""

    def average(query: RankedQuery, k: int | None, level: int) -> float:
        judged, ranked = _list_relevant(query.judged_subtopics, level), _list_relevant(query.subtopics[:k], level)
        values = []
        for subtopic in {name for document in judged for name in document}:
            ranks = [rank for rank, document in enumerate(ranked, 1) if subtopic in document]
            values.append(measure(ranks, sum(subtopic in document for document in judged), k or 0))
        return sum(values) / len(values) if values else 0.0

    return average


precision = _intent_aware(lambda ranks, total, k: len(ranks) / k)
average_precision = _intent_aware(lambda ranks, total, k: sum(n / rank for n, rank in enumerate(ranks, 1)) / total)
success = _intent_aware(lambda ranks, total, k: float(bool(ranks)))
