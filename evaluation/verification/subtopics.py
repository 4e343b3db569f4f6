"""References for measures over subtopics, one query at a time, as in TREC's ndeval with α = β = 0.5."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import islice
from math import log2

from evaluation.verification.references import RankedQuery

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


def _compute_gain(document: Sequence[str], seen: dict[str, int]) -> float:
    gain = 0.0
    for subtopic in document:
        gain += 0.5 ** seen.get(subtopic, 0)
    return gain


def _list_gains(documents: _Relevant) -> Iterator[float]:
    """Yield the gain of each document of a ranking."""
    seen: dict[str, int] = {}
    for document in documents:
        yield _compute_gain(document, seen)
        seen.update((subtopic, seen.get(subtopic, 0) + 1) for subtopic in document)


def _rank_ideally(documents: _Relevant) -> Iterator[Sequence[str]]:
    """Yield documents, given in order of their ids, greedily by gain; of equal gains, the last id is first.

    Gains only decrease, so that the highest of the earlier gains is the next one if it is still valid.
    """
    seen: dict[str, int] = {}
    heap = [(-float(len(document)), -place) for place, document in enumerate(documents)]
    heapify(heap)
    while heap and heap[0][0] < 0:
        gain, place = heap[0]
        document = documents[-place]
        if -_compute_gain(document, seen) != gain:
            heapreplace(heap, (-_compute_gain(document, seen), place))
            continue
        yield document
        heapreplace(heap, (0.0, place))
        seen.update((subtopic, seen.get(subtopic, 0) + 1) for subtopic in document)


@dataclass(frozen=True)
class NoveltyGain:
    """Sum of gains, times the discounts of their ranks, and divided by that of an ideal ranking."""

    discount: str
    normalized: bool = False

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        judged = _list_relevant(query.judged_subtopics, level)
        ideal: _Relevant = [sorted({name for document in judged for name in document})] * (k or _DEPTH)
        ranked = _list_relevant(query.subtopics, level)
        value, highest = (
            sum(
                gain * _DISCOUNTS[self.discount](rank)
                for rank, gain in enumerate(islice(_list_gains(documents), k or _DEPTH), 1)
            )
            for documents in (ranked, list(_rank_ideally(judged)) if self.normalized else ideal)
        )
        return value / highest if highest else 0.0


@dataclass(frozen=True)
class IntentAware:
    """Mean over the subtopics of a measure of the ranks of relevant documents, their total number, and the cutoff."""

    measure: Callable[[Sequence[int], int, int], float]

    def __call__(self, query: RankedQuery, k: int | None, level: int) -> float:
        judged, ranked = _list_relevant(query.judged_subtopics, level), _list_relevant(query.subtopics[:k], level)
        values = []
        for subtopic in {name for document in judged for name in document}:
            ranks = [rank for rank, document in enumerate(ranked, 1) if subtopic in document]
            values.append(self.measure(ranks, sum(subtopic in document for document in judged), k or 0))
        return sum(values) / len(values) if values else 0.0


precision = IntentAware(lambda ranks, total, k: len(ranks) / k)
average_precision = IntentAware(lambda ranks, total, k: sum(n / rank for n, rank in enumerate(ranks, 1)) / total)
recall = IntentAware(lambda ranks, total, k: float(bool(ranks)))
