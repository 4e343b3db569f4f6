"""Tiers of systems that cannot be told apart from the best of their tier.

"Not separable" is no equivalence: of three systems the first may not differ from the second, nor the second from the
third, and yet the first differ from the third. So each tier has one fixed anchor, its best system, and says one thing
only: its members could not be separated from that anchor. Two systems of a tier may differ from each other, and a
system of the next tier need not differ from one of this tier other than the anchor.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.correction import holm

#: Names of the tiers, best first; systems behind the last one have none.
LETTERS = ascii_lowercase


def tiers(
    scores: ArrayLike, p_values: Callable[[int], NDArray[np.float64]], *, level: float = 0.05
) -> list[str]:
    """A letter for each system, "" behind the last.

    `scores` has the shape (systems,), higher being better; `p_values(anchor)` gives the uncorrected p-value of each
    system against the anchor. Of equal scores the first one is the anchor. In each tier the tests of all systems that
    remain against the anchor are one family, corrected after Holm; those not below `level` are in its tier.
    """
    oriented = np.asarray(scores, dtype=np.float64)
    found = [""] * len(oriented)
    remaining = np.arange(len(oriented))
    for letter in LETTERS:
        if not len(remaining):
            break
        anchor = int(remaining[np.argmax(oriented[remaining])])
        others = remaining[remaining != anchor]
        adjusted = holm(p_values(anchor)[others])
        for member in (anchor, *others[adjusted >= level]):
            found[member] = letter
        remaining = others[adjusted < level]
    return found
