"""How far two orders of the same systems agree, and how far two judges of the same documents do."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float | None:
    """Kendall's τ-b of two lists of scores (Kendall, Biometrika 33(3), 1945), as scipy.stats.kendalltau finds it.

    Pairs in the same order less those in the other, over the geometric mean of the pairs that either list does not tie.
    None for fewer than two, and where a list ties all.
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    agreeing, told_by_x, told_by_y = 0, 0, 0
    for place in range(len(x) - 1):
        of_x, of_y = np.sign(x[place + 1 :] - x[place]), np.sign(y[place + 1 :] - y[place])
        agreeing += int(of_x @ of_y)
        told_by_x += int(np.count_nonzero(of_x))
        told_by_y += int(np.count_nonzero(of_y))
    return agreeing / sqrt(told_by_x * told_by_y) if told_by_x and told_by_y else None


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Cohen's κ of two judges (Educational and Psychological Measurement 20(1), 1960), as scikit-learn finds it.

    `pairs` are the grades of each document by the one and by the other. κ = (p_o − p_e) / (1 − p_e): p_o is the share
    of equal grades, p_e that of two judges who draw grades as often as these give them. None without pairs, and where
    both give one and the same grade to all: nothing can be said of chance then.
    """
    if not pairs:
        return None
    grades: NDArray[np.int64] = np.array(pairs, np.int64)
    equal = float(np.mean(grades[:, 0] == grades[:, 1]))
    shares = [(grades == each).mean(axis=0) for each in np.unique(grades)]
    by_chance = float(sum(share[0] * share[1] for share in shares))
    return (equal - by_chance) / (1 - by_chance) if by_chance < 1 else None
