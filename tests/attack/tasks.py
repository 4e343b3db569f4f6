"""Scores that a group of accounts attacks: rankings by nDCG@10 (hidden qrels), and answers by exact match.

For each query the group has two candidates and wants to know which of them is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.attack.prober import DEEPEST_GAIN, DEPTH, POOL, QUERIES, Rankings, honest, synthetic_collection

Values = NDArray[np.float64]
#: The other ranking of a query begins with this number of documents from after rank 10.
PROMOTED = 4
#: Shares of queries that an honest system answers correctly, and those for which only the other answer is correct.
PLAIN_CORRECT, OTHER_CORRECT = 0.35, 0.3
#: Shares of queries that a closed-book system answers correctly, where the honest answer, the other answer, and
#: neither is correct: in all 0.15.
CLOSED_BOOK = (0.3, 0.1, 0.04)


@dataclass(frozen=True)
class Systems:
    """Values by query of both candidates and of the baseline, and the numbers of relevant documents: (QUERIES,)."""

    totals: NDArray[np.int64]
    plain: Values
    other: Values
    baseline: Values

    @property
    def change(self) -> Values:
        """Difference between the other candidate and the honest one."""
        return self.other - self.plain


@dataclass(frozen=True)
class Task:
    """A measure under attack.

    Attributes:
        draw: Function from a seed to the systems on a synthetic collection.
        honest_score: Score that the group expects of its first candidates.
        quality: Least, most frequent, and largest gain of honest teams over the baseline before `observe`.
        observe: Function from the sum of the baseline's values and gains to values of the measure.
        scale: Gain of the better candidates everywhere, relative to that of rankings.
    """

    draw: Callable[[int], Systems]
    honest_score: float
    quality: tuple[float, float, float]
    observe: Callable[[Values], Values]
    scale: float = 1.0


def other_ranking() -> list[int]:
    """The alternative of each query, in the honest run's order of documents."""
    first = list(range(DEEPEST_GAIN, DEEPEST_GAIN + PROMOTED))
    return first + [document for document in range(DEPTH) if document not in first]


def rankings(choice: NDArray[np.bool_]) -> Rankings:
    """The run that takes the other ranking where `choice` (QUERIES,) says so."""
    plain, other = honest(), other_ranking()
    return {query: other if choice[query] else plain[query] for query in range(QUERIES)}


def draw_rankings(seed: int) -> Systems:
    """Return the values of an honest ranking, of another one, and of BM25, which finds the same documents later."""
    collection = synthetic_collection(seed)
    return Systems(
        collection.totals,
        collection.values(honest()),
        collection.values(rankings(np.ones(QUERIES, bool))),
        collection.values({query: ranking[::-1] for query, ranking in honest().items()}),
    )


def draw_answers(seed: int) -> Systems:
    """Return exact matches of an honest answer, of another one, and of a closed-book answer.

    Answers that more documents contain are easier to find.
    """
    random = np.random.default_rng(seed)
    totals = np.clip(np.round(random.lognormal(np.log(3), 0.7, QUERIES)), 1, POOL).astype(int)
    ease = 0.7 + 0.28 * np.log2(totals) / np.log2(3)
    place = random.random(QUERIES)
    plain = place < PLAIN_CORRECT * ease
    other = ~plain & (place < (PLAIN_CORRECT + OTHER_CORRECT) * ease)
    known = np.select([plain, other], CLOSED_BOOK[:2], CLOSED_BOOK[2])
    return Systems(totals, *(column.astype(float) for column in (plain, other, random.random(QUERIES) < known)))


#: Tasks by primary measure.
TASKS = {
    "nDCG@10": Task(draw_rankings, 0.33, (-0.02, 0.1, 0.2), lambda values: np.clip(values, 0.0, 1.0)),
    "EM": Task(draw_answers, 0.35, (0.0, 0.25, 0.5), lambda values: (values > 0.5).astype(float), scale=6.0),
}
