"""When a competition's board moves: the Ladder's idea, for measures of retrieval.

A. Blum and M. Hardt, The Ladder: a reliable leaderboard for machine learning competitions, ICML 2015
(arXiv:1502.04585). Their mechanism tells a team a new score only where it beats the best one told so far by a step η,
and else repeats that one; their parameter-free variant takes for the step the standard error of the difference, paired
by example. Here both must be passed: with d_q the difference on query q of n, between the new result and the best one
that was told,

    told  ⇔  mean(d) > max(η, c·SE),   SE = sd(d) / √n,   sd with n − 1,   η = 0.01,   c = max(1, √(2 ln k)),

for the k-th result of a party. Of k results that differ by noise alone the best lies below √(2 ln k) standard errors
on average (the expected maximum of k Gaussians), so that trying often is no way up.

One query moves a mean over n by 1 / n at most, so on a hundred queries a probe of one query tells nothing. The bound of
the paper says little at the sizes of test collections (about 0.33 for 323 queries and 365 results): quotas and the
private part carry the weight, the Ladder makes climbing by noise slow.
"""

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

#: The step η, in the measure's own unit.
STEP = 0.01
#: The steps in which a competition's board shows its public part, about the standard error of a difference there: the
#: private part, which decides, has three decimals. The paper's mechanism rounds to its step, too.
PUBLIC_STEP = 0.02
#: The step of a young team after its first result: several of these that work together read as one.
YOUNG_STEP = 0.05
#: What rounding may make of a gain that is the step itself: published values have three decimals.
_NOISE = 1e-9


def paired_standard_error(new: ArrayLike, best: ArrayLike) -> float:
    """Return the standard error of the mean difference of two systems on the same queries, arrays of shape (queries,).

    0 for a single query, which has no deviation. Raises ValueError where the shapes differ or there is no query.
    """
    first, second = np.asarray(new, dtype=np.float64), np.asarray(best, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(f"two systems need values on the same queries, not {first.shape} and {second.shape}")
    differences = first - second
    return float(differences.std(ddof=1) / sqrt(len(differences))) if len(differences) > 1 else 0.0


def needed_gain(standard_error: float, *, tries: int = 0, step: float = STEP) -> float:
    """Return what a gain over the best result told so far has to exceed; the party had `tries` results before.

    The best of so many tries, and one more, may be √(2 ln k) standard errors above the others by chance.
    """
    return max(step, max(1.0, sqrt(2 * log(tries + 1))) * standard_error)


def is_improvement(
    new_mean: float, best_mean: float, standard_error: float, *, tries: int = 0, step: float = STEP
) -> bool:
    """Return whether the new result is told: means as they are published, higher being better."""
    return new_mean - best_mean > needed_gain(standard_error, tries=tries, step=step) + _NOISE
