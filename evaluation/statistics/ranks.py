"""Between which ranks a system lies, as far as tests of all pairs tell.

Mogstad, Romano, Shaikh & Wilhelm, Inference for Ranks, Review of Economic Studies 91(1), 2024: where the pairwise tests
bound the chance of a single false finding, the ranks 1 + (systems that are better) to n − (systems that are worse)
hold all true ranks at once with that confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ranks = NDArray[np.int64]


def rank_intervals(scores: ArrayLike, p_values: ArrayLike, *, level: float = 0.05) -> tuple[Ranks, Ranks]:
    """The first and the last rank that each system may have, two arrays of shape (systems,).

    `scores` has the shape (systems,), higher being better; `p_values`, of shape (systems, systems), are corrected over
    all pairs. Pairs spread differently, so that a system might be held to worse ranks than one that scores below it. So
    that both ends follow the scores, the first rank is the least of those of all that score no higher, and the last one
    the greatest of all that score no lower: intervals grow by this, which keeps the confidence.
    """
    oriented = np.asarray(scores, dtype=np.float64)
    apart = np.asarray(p_values, dtype=np.float64) < level
    higher = oriented[None, :] > oriented[:, None]
    first = 1 + np.count_nonzero(apart & higher, axis=1)
    last = len(oriented) - np.count_nonzero(apart & higher.T, axis=1)
    order = np.argsort(-oriented, kind="stable")
    first[order] = np.minimum.accumulate(first[order][::-1])[::-1]
    last[order] = np.maximum.accumulate(last[order])
    for equal in np.unique(oriented):
        alike = oriented == equal
        first[alike], last[alike] = first[alike].min(), last[alike].max()
    return first, last
