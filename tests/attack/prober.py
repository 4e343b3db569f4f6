"""A submitter who reads hidden judgements off the scores, and the synthetic collection that is attacked.

The collection: 323 queries with pools of 100 documents, of which R are relevant (median 15, mean 21), and an honest
run of nDCG@10 0.33. The prober is stronger than any that is likely: it knows each query's R, how many
queries a mean is over, and with which precision it is given. It changes one query of its best run at a time, weighs all
65,536 patterns of relevance of the sixteen documents concerned against the score that comes back, and sorts each query
by what it has learnt. Told "no significant change", it changes many queries at once, and keeps what was rewarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

QUERIES = 323
POOL = 100
#: Of each query as many documents are submitted: enough for nDCG@10 and for what is probed.
DEPTH = 20
DEEPEST_GAIN = 10
#: Documents whose relevance one probe asks for: the present first ten, and so many of the next.
FURTHER = 6
#: After so many answers without a number it changes many queries at once.
PATIENCE = 3
DISCOUNTS = 1.0 / np.log2(np.arange(2, DEEPEST_GAIN + 2))
#: All patterns of relevance of the documents that a probe concerns, one a row.
PATTERNS = ((np.arange(1 << (DEEPEST_GAIN + FURTHER))[:, None] >> np.arange(DEEPEST_GAIN + FURTHER)) & 1).astype(
    np.float64
)

Rankings = dict[int, list[int]]


@dataclass(frozen=True)
class Collection:
    """Which of each query's pooled documents are relevant: (queries, POOL) of 0 and 1, documents in the run's order."""

    relevant: NDArray[np.int8]

    @property
    def totals(self) -> NDArray[np.int64]:
        """R of each query."""
        return self.relevant.sum(axis=1, dtype=np.int64)

    def values(self, rankings: Mapping[int, Sequence[int]]) -> NDArray[np.float64]:
        """nDCG@10 of each query, binary gains (Järvelin and Kekäläinen, 2002)."""
        first = np.array([rankings[query][:DEEPEST_GAIN] for query in range(QUERIES)])
        gains = np.take_along_axis(self.relevant, first, axis=1) @ DISCOUNTS
        return np.asarray(gains / ideal(self.totals))


def ideal(totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """The best DCG@10 that queries with so many relevant documents allow."""
    return np.asarray(np.cumsum(DISCOUNTS)[np.minimum(totals, DEEPEST_GAIN) - 1])


def synthetic_collection(seed: int = 1) -> Collection:
    """Relevance of documents in the order in which an honest system ranks them."""
    random = np.random.default_rng(seed)
    totals = np.clip(np.round(random.lognormal(np.log(16), 1.15, QUERIES)), 1, 90).astype(int)
    relevant = np.zeros((QUERIES, POOL), dtype=np.int8)
    for query, total in enumerate(totals):
        scores = random.normal(size=POOL)
        scores[:total] += 0.45
        relevant[query] = (np.arange(POOL) < total)[np.argsort(-scores)]
    return Collection(relevant)


def honest() -> Rankings:
    """The run that the prober begins with."""
    return {query: list(range(DEPTH)) for query in range(QUERIES)}


@dataclass
class Prober:
    """What it knows: of each document how likely it is relevant, and the best run that it was told a score of.

    `shown` is the number of queries that a mean is over; `precision` the width of the rounding, 0 for none.
    """

    totals: NDArray[np.int64]
    shown: int
    precision: float
    seed: int = 2
    best: Rankings = field(default_factory=honest)
    told: float | None = None
    unmoved: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.order = list(self.random.permutation(QUERIES))
        share = self.totals[:, None] / POOL
        # An honest system ranks relevant documents earlier, though not by much.
        self.belief = np.clip(share * np.linspace(1.9, 0.3, POOL)[None, :], 0.01, 0.97)
        self.public = np.full(QUERIES, self.shown / QUERIES)
        self.asked: list[int] = []
        self.learnt: set[int] = set()
        self.sent = honest()

    def next_run(self) -> Rankings:
        """The run to submit: first the honest one, then the best one with something changed."""
        self.sent = {query: list(ranking) for query, ranking in self.best.items()}
        self.asked = []
        if self.told is None:
            return self.sent
        if self.unmoved >= PATIENCE:
            self.asked = [int(query) for query in self.random.choice(QUERIES, 60, replace=False)]
            for query in self.asked:
                self.sent[query] = self._guess(query)
        else:
            self.asked = [int(self.order.pop())] if self.order else []
            for query in self.asked:
                self.sent[query] = self._probe(query)
        return self.sent

    def learn(self, score: float | None) -> None:
        """What came back; None: nothing that tells the run from the best one."""
        if self.told is None:
            self.told = score
            return
        if score is None:
            self.unmoved += 1
            return
        self.unmoved = 0
        if len(self.asked) == 1:
            self._weigh(self.asked[0], score - self.told)
        elif score > self.told:
            self.best, self.told = self.sent, score

    def final(self) -> Rankings:
        """The run that it believes to be its best: each query sorted by what was learnt of it."""
        return {query: self._sorted(query) if query in self.learnt else self.best[query] for query in self.best}

    def _probe(self, query: int) -> list[int]:
        """The documents after the first ten come first, then the first of these."""
        ranking = self.best[query]
        further = ranking[DEEPEST_GAIN : DEEPEST_GAIN + FURTHER]
        return [*further, *ranking[:DEEPEST_GAIN], *ranking[DEEPEST_GAIN + FURTHER :]]

    def _guess(self, query: int) -> list[int]:
        ranking = self.best[query]
        drawn = self.random.random(DEPTH) < self.belief[query][ranking]
        return [doc for doc, up in zip(ranking, drawn, strict=True) if up] + [
            doc for doc, up in zip(ranking, drawn, strict=True) if not up
        ]

    def _weigh(self, query: int, change: float) -> None:
        """Bayes' rule over all patterns, and over whether the query is among those that are shown."""
        documents = self.best[query][: DEEPEST_GAIN + FURTHER]
        prior = self.belief[query][documents]
        weights = np.exp(PATTERNS @ np.log(prior) + (1 - PATTERNS) @ np.log(1 - prior))
        before = PATTERNS[:, :DEEPEST_GAIN] @ DISCOUNTS
        after = (
            PATTERNS[:, DEEPEST_GAIN:] @ DISCOUNTS[:FURTHER]
            + PATTERNS[:, : DEEPEST_GAIN - FURTHER] @ DISCOUNTS[FURTHER:]
        )
        predicted = (after - before) / ideal(self.totals[[query]])[0] / self.shown
        width = max(self.precision, 1e-9)
        fits = np.clip(1.0 - np.abs(predicted - change) / width, 0.0, None)  # both ends were rounded: a triangle
        of_public = weights * fits * self.public[query]
        of_private = weights * max(0.0, 1.0 - abs(change) / width) * (1 - self.public[query])
        total = float(of_public.sum() + of_private.sum())
        if total <= 0:
            return
        self.belief[query][documents] = np.clip(((of_public + of_private) @ PATTERNS) / total, 0.001, 0.999)
        self.public[query] = float(of_public.sum()) / total
        self.learnt.add(query)

    def _sorted(self, query: int) -> list[int]:
        ranking = self.best[query]
        return sorted(ranking, key=lambda document: -self.belief[query][document])
