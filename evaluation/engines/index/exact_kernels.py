"""The compiled parts of exact search: sieving blocks of scores, and exact inner products.

All of it stands in one file, because numba keeps machine code until the file of a function changes. Every
function releases the GIL, so that threads can share the queries among them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evaluation.engines.index.kernels import compiled

#: Scores are compared with the lowest that still counts in strips of this length.
_STRIP = 64


@compiled
def greatest(values: NDArray[np.float32], place: int) -> float:
    """The value at `place` of the descending order (quickselect); `values` are moved about."""
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        first, second, third = values[low], values[middle], values[high]
        pivot = max(min(first, second), min(max(first, second), third))
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return float(values[place])


@compiled
def _thin_out(
    scores: NDArray[np.float32], documents: NDArray[np.int64], found: int, wanted: int, margin: np.float32
) -> tuple[int, np.float32]:
    """Drop what cannot be among the best `wanted`; return how many are left, and the lowest score that may be."""
    least = greatest(scores[:found].copy(), wanted - 1) - margin
    left = 0
    for place in range(found):
        if scores[place] >= least:
            scores[left] = scores[place]
            documents[left] = documents[place]
            left += 1
    return left, least


@compiled
def sieve(
    block: NDArray[np.float32],
    first_document: int,
    columns: NDArray[np.int64],
    wanted: int,
    margins: NDArray[np.float32],
    least: NDArray[np.float32],
    scores: NDArray[np.float32],
    documents: NDArray[np.int64],
    found: NDArray[np.int64],
) -> bool:
    """Gather the candidates of each query (row) from a block of scores (queries × documents, C order).

    `columns[q]` is where row q is taken up; behind it, every score of at least `least[q]` is written to
    `scores[q, found[q]]`, and its document's number to `documents`. When a row is full it is thinned out to those that
    are at most `margins[q]` below its `wanted`-th, and `least` raised. A row in which that leaves less than a quarter
    free is left at its column. Returns whether all rows came to their ends.
    """
    complete = True
    capacity = scores.shape[1]
    width = block.shape[1]
    for query in range(block.shape[0]):
        row = block[query]
        lowest = least[query]
        count = found[query]
        column = columns[query]
        while column < width:
            end = min(column + _STRIP, width)
            if end - column == _STRIP:
                above = 0
                for place in range(column, end):
                    above += row[place] >= lowest
                if above == 0:
                    column = end
                    continue
            if count + _STRIP > capacity:
                count, lowest = _thin_out(scores[query], documents[query], count, wanted, margins[query])
                if count > capacity - capacity // 4:
                    complete = False
                    break
            for place in range(column, end):
                if row[place] >= lowest:
                    scores[query, count] = row[place]
                    documents[query, count] = first_document + place
                    count += 1
            column = end
        columns[query] = column
        found[query] = count
        least[query] = lowest
    return complete


@compiled
def inner_products(
    query: NDArray[np.float32], vectors: NDArray[np.float32], products: NDArray[np.float32]
) -> None:
    """Inner products of the query with each row, added up in float64 in a fixed order, and rounded to float32.

    Products of float32 are exact in float64, and so many sums of them are accurate to some 10⁻¹³: the result is that
    of real arithmetic, rounded, wherever that does not lie within 10⁻¹³ of the middle of two floats.
    """
    dimensions = vectors.shape[1]
    for row in range(vectors.shape[0]):
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        place = 0
        while place + 4 <= dimensions:
            first += np.float64(query[place]) * np.float64(vectors[row, place])
            second += np.float64(query[place + 1]) * np.float64(vectors[row, place + 1])
            third += np.float64(query[place + 2]) * np.float64(vectors[row, place + 2])
            fourth += np.float64(query[place + 3]) * np.float64(vectors[row, place + 3])
            place += 4
        while place < dimensions:
            first += np.float64(query[place]) * np.float64(vectors[row, place])
            place += 1
        products[row] = np.float32((first + second) + (third + fourth))


@lru_cache(maxsize=1)
def load() -> None:
    """Compile everything, or load what was compiled before, so that no timing contains it."""
    numbers = np.zeros(1, np.int64)
    zeros = np.zeros((1, 2 * _STRIP), np.float32)
    sieve(
        zeros,
        0,
        numbers.copy(),
        1,
        zeros[0, :1].copy(),
        zeros[0, :1].copy(),
        np.zeros((1, 256), np.float32),
        np.zeros((1, 256), np.int64),
        numbers.copy(),
    )
    inner_products(zeros[0], zeros, np.zeros(1, np.float32))
