"""The Ladder mechanism for updates of a competition's board, adapted to retrieval measures.

A. Blum and M. Hardt, The Ladder: a reliable leaderboard for machine learning competitions, ICML 2015
(arXiv:1502.04585). Their mechanism reveals a new score only if it exceeds the best one revealed so far by a step η.
Otherwise it shows the best one again. In their parameter-free variant the step is the standard error of the difference,
paired by example. Here both must be exceeded: with the difference d_q on query q of n between the new result and the
best revealed one,

    revealed  ⇔  mean(d) > max(η, c·SE),   SE = sd(d) / √n,   sd with n − 1,   η = 0.01,   c = max(1, √(2 ln k)),

for the k-th result of a participant. The best of k results that differ only by noise is on average less than √(2 ln k)
standard errors above the mean (the expected maximum of k Gaussians), so repeated attempts do not help.

One query changes a mean over n queries by at most 1 / n, so probes of a single query out of a hundred are
useless. The bound of the paper is weak for the sizes of test collections (about 0.33 for 323 queries and 365
results). Quotas and the private part are the main protection, and the Ladder slows down climbing by noise.
"""

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

#: The step η, in units of the measure.
STEP = 0.01
#: Rounding step of the public part of a competition's board, about the standard error of a difference. The decisive
#: private part has three decimals. The mechanism of the paper also rounds to its step.
PUBLIC_STEP = 0.02
#: Rounding step of secondary measures on boards that are ranked by a measure of answer runs. Per-query values of 0 or
#: 1, as of exact match, reveal more than graded ones.
RESPONSE_STEP = 0.1
#: Minimum gains of a young team after its first result, in units of the measure and in standard errors, because several
#: young teams may collude. The second one matters for measures with large differences between queries, such as exact
#: match.
YOUNG_STEP, YOUNG_ERRORS = 0.05, 4.0
#: Tolerance for rounding errors of a gain that equals the step; published values have three decimals.
_NOISE = 1e-9


def paired_standard_error(new: ArrayLike, best: ArrayLike) -> float:
    """Return the standard error of the mean difference of two systems on the same queries.

    Args:
        new: Values of the new result, shape (queries,).
        best: Values of the best result, shape (queries,).

    Returns:
        The standard error, 0 for a single query.

    Raises:
        ValueError: The shapes differ or there are no queries.
    """
    first, second = np.asarray(new, dtype=np.float64), np.asarray(best, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(
            f"the values of both systems must be on the same queries, but have shapes {first.shape} and {second.shape}"
        )
    differences = first - second
    return float(differences.std(ddof=1) / sqrt(len(differences))) if len(differences) > 1 else 0.0


def needed_gain(standard_error: float, *, tries: int = 0, is_young: bool = False) -> float:
    """Return the gain that a result must exceed over the best revealed one, after `tries` earlier results.

    With k = `tries` + 1, the best of k results may be √(2 ln k) standard errors above the others by chance. `is_young`
    requires the larger gain of a young team after its first result.
    """
    step, errors = (YOUNG_STEP, YOUNG_ERRORS) if is_young else (STEP, 1.0)
    return max(step, max(errors, sqrt(2 * log(tries + 1))) * standard_error)


def is_improvement(
    new_mean: float, best_mean: float, standard_error: float, *, tries: int = 0, is_young: bool = False
) -> bool:
    """Return whether to reveal the new result. Means are as published, and higher ones are better."""
    return new_mean - best_mean > needed_gain(standard_error, tries=tries, is_young=is_young) + _NOISE
