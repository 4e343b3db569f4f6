"""What centroids are learned from: how many lists a collection gets, and which of its vectors are a sample of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Vectors that a centroid is learned from. faiss wants 39 of them, and takes no more than 256.
VECTORS_PER_LIST = 64
#: Vectors that codes are learned from; faiss takes no more than 256 for each of 256 values.
CODES_LEARNED_FROM = 65_536
#: Numbers of the vectors that centroids are learned from: 2 GiB of float32. It bounds the lists of great collections
#: (10,922 of 768 dimensions). 138 million vectors would get 46,990, learned from 9 GiB in twenty times the time.
_LEARNED_NUMBERS = 2**29


def lists_for(count: int, dimension: int, wanted: int = 0, most: int = 2**31) -> int:
    """How many lists so many vectors are kept in: `wanted`, or 4 √count, as far as there are vectors to learn them."""
    learnable = min(count, _LEARNED_NUMBERS // dimension) // VECTORS_PER_LIST
    return max(min(wanted or 4 * math.isqrt(count), learnable, most), 1)


def sample_rows(arrays: Sequence[NDArray[Any]], wanted: int) -> NDArray[np.float32]:
    """`wanted` rows at equal distances through arrays that stand for one (all where there are no more)."""
    starts = np.cumsum([0, *map(len, arrays)])
    count = int(starts[-1])
    rows = np.arange(min(wanted, count)) * count // max(min(wanted, count), 1)
    sample = np.empty((len(rows), arrays[0].shape[1]), np.float32)
    edges = np.searchsorted(rows, starts).tolist()
    for array, first, start, end in zip(arrays, starts.tolist(), edges[:-1], edges[1:], strict=False):
        sample[start:end] = array[rows[start:end] - first]
    return sample
