"""Many tests at once: Holm's step-down correction.

S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6(2), 1979. The
chance of a single false finding among all tests of a family stays below the level, whatever their dependence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: What the correction is called on pages and in captions.
CORRECTION = "Holm"


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values of one family, shape (tests,); missing ones (NaN) stay missing and do not count as tests.

    The i-th smallest of m is the greatest of (m − j + 1) · p₍ⱼ₎ over j ≤ i, at most 1.
    """
    raw = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(raw.shape, np.nan)
    there = np.flatnonzero(~np.isnan(raw))
    order = there[np.argsort(raw[there], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * raw[order]))
    return adjusted
