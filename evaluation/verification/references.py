"""The measures that pytrec_eval does not have, each as its source writes it, for one query at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RankedQuery:
    """A query's ranking, best first: the grade of each document (-1 if it is not judged for the query), and whether
    it is judged for any query (empty where no measure asks). `judged` are all grades of the query, in no order."""

    grades: NDArray[np.int64]
    anywhere: NDArray[np.bool_]
    judged: NDArray[np.int64]


_RANK_BIASED = re.compile(r"RBP\(p=([0-9.]+)\)")
#: Value of a ranking at a cutoff (None for none), documents being relevant from a grade on.
Reference = Callable[[RankedQuery, int | None, int], float]


def capped_recall(query: RankedQuery, k: int | None, level: int) -> float:
    """BEIR (Thakur et al., 2021), appendix G: R_cap@k = relevant documents among the first k / min(k, R)."""
    relevant = int((query.judged >= level).sum())
    possible = relevant if k is None else min(k, relevant)
    return float((query.grades[:k] >= level).sum()) / possible if possible else 0.0


def judged_share(query: RankedQuery, k: int | None, level: int) -> float:
    """ir_measures, Judged@k: documents judged for the query, of those among the first k."""
    return float((query.grades[:k] >= 0).mean()) if len(query.grades) else 0.0


def hole(query: RankedQuery, k: int | None, level: int) -> float:
    """Documents not judged for the query, of those among the first k."""
    return float((query.grades[:k] < 0).mean()) if len(query.grades) else 0.0


def hole_anywhere(query: RankedQuery, k: int | None, level: int) -> float:
    """BEIR, table 4: Hole@k = documents judged for no query, of those among the first k."""
    return float((~query.anywhere[:k]).mean()) if len(query.grades) else 0.0


def exponential_ndcg(query: RankedQuery, k: int | None, level: int) -> float:
    """Burges et al. (ICML 2005): DCG = Σ (2^g - 1) / log2(i + 1), divided by that of the ideal ranking."""

    def dcg(grades: NDArray[np.int64]) -> float:
        gains = 2.0 ** np.maximum(grades[:k], 0) - 1
        return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())

    ideal = dcg(np.sort(query.judged)[::-1])
    return dcg(query.grades) / ideal if ideal else 0.0


def rank_biased_precision(persistence: float) -> Reference:
    """Moffat & Zobel (TOIS 27(1), 2008): RBP = (1 - p) Σ rel_i · p^(i - 1), for one persistence p."""

    def reference(query: RankedQuery, k: int | None, level: int) -> float:
        relevant = query.grades[:k] >= level
        return float((1 - persistence) * (relevant * persistence ** np.arange(len(relevant))).sum())

    return reference


#: The one measure that asks what is judged for other queries.
HOLE_ANYWHERE = "Hole(beir)"

#: By the name of the measure without its cutoff and level; RBP is there for each p, see `reference_of`.
REFERENCES: dict[str, Reference] = {
    "R_cap": capped_recall,
    "Judged": judged_share,
    "Hole": hole,
    HOLE_ANYWHERE: hole_anywhere,
    "nDCG(dcg='exp-log2')": exponential_ndcg,
}


def reference_of(family: str) -> Reference | None:
    """The reference of a family of measures, None where there is none."""
    if found := _RANK_BIASED.fullmatch(family):
        return rank_biased_precision(float(found[1]))
    return REFERENCES.get(family)
