"""Values on a grid on which their sums are exact, in whatever order they are added.

A sum of floating-point numbers depends on the order of its terms, and a matrix product adds in an order that depends on
how many columns it has. So the last bits of a system's sums, and now and then a p-value, would change with what else is
on the board. Multiples of a power of two whose sums stay below 2^53 have exact sums (IEEE 754).
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]

#: Sums of values of 1 at most have so many bits at most: what is left of 53 is for values a little greater.
_BITS = 50


def spacing(queries: int) -> float:
    """The distance of neighbours on the grid for so many queries: 2^−37 (7e−12) for 7,000."""
    return 2.0 ** (ceil(log2(queries)) - _BITS)


def round_to_grid(values: ArrayLike) -> Values:
    """Values of the shape (queries, systems), each moved to the nearest point of the grid.

    Sums over queries, with any whole weights that sum to the number of queries in size, are exact for values between
    −8 and 8. Raises ValueError for another shape, and without a query.
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 2 or not len(found):
        raise ValueError("values must have the shape (queries, systems), with a query at least")
    unit = spacing(len(found))
    rounded: Values = np.round(found / unit) * unit
    return rounded
