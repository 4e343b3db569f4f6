"""What every measure is computed from: grades and ranks of the judged documents, for all queries in one array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.judgements.qrels import Qrels

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Ranking:
    """Judged documents of a run, in trec_eval's order, cut to the run's depth.

    `query`, `rank` (1-based), `grade`: one entry per judged document retrieved, grouped by query (row of the
    qrels), ranks rising within it. `elsewhere_query`, `elsewhere_rank`: documents judged for other queries only.
    `retrieved`: per query how many documents the run has. `relevance_level`: the lowest grade that is relevant for
    binary measures, where a measure does not say it itself.
    """

    qrels: Qrels
    query: NDArray[np.int64]
    rank: NDArray[np.int64]
    grade: NDArray[np.int64]
    elsewhere_query: NDArray[np.int64]
    elsewhere_rank: NDArray[np.int64]
    retrieved: NDArray[np.int64]
    relevance_level: int = 1

    @property
    def queries(self) -> int:
        """How many judged queries there are."""
        return len(self.qrels.query_ids)

    def per_query(self, weights: Values | Flags, where: NDArray[np.int64] | None = None) -> Values:
        """Sums by query of one weight per judged document retrieved, added up in order of rank."""
        sums: Values = np.bincount(self.query if where is None else where, weights, self.queries).astype(
            np.float64
        )
        return sums

    def relevant(self, level: int) -> Flags:
        """Which of the retrieved judged documents are relevant."""
        return self.grade >= level

    def relevant_judged(self, level: int) -> Values:
        """Per query, how many documents are relevant."""
        return np.bincount(self.qrels.rows, self.qrels.grades >= level, self.queries).astype(np.float64)

    def counted_so_far(self, flags: Flags) -> NDArray[np.int64]:
        """For each judged document retrieved, how many flagged ones its query has up to it, itself included."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
        first = np.searchsorted(self.query, self.query, side="left")
        counts: NDArray[np.int64] = total[1:] - total[first]
        return counts


def ratio(numerator: Values, denominator: Values) -> Values:
    """Quotients, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)
