"""The compiled parts of BM25: turning token streams into postings, and adding up scores.

All of it stands in one file, because numba keeps machine code until the file of a function changes. Every
function releases the GIL. Compiling takes a few seconds once for each machine and is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])

#: Scores are added up for this many documents at a time, so that the sums stay in the processor's cache.
BLOCK_SIZE = 16_384
#: Sums are compared with the lowest score that still counts in strips of this length.
_STRIP = 32
#: A sum rounded to float32 is at most this much above the sum.
_ROUNDING = 1.0 - 2.0**-23


def _compiled(function: Function) -> Function:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep machine code in: compile in every process
        return cast(Function, numba.njit(**options)(function))


@_compiled
def count_postings(
    tokens: NDArray[np.int32],
    ends: NDArray[np.int64],
    fields: int,
    document_frequencies: NDArray[np.int64],
    lengths: NDArray[np.int32],
) -> None:
    """Count the documents of each term, and the tokens of each document.

    `tokens` are term numbers, -1 for a stop word, of one document after another, and of its fields in turn;
    `ends[s]` is where segment s, which is field s % fields of document s // fields, ends. Adds to
    `document_frequencies` (by term), and fills `lengths` (by segment).
    """
    last = np.full(len(document_frequencies), -1, np.int32)
    start = 0
    for segment in range(len(ends)):
        document = segment // fields
        length = 0
        for position in range(start, ends[segment]):
            term = tokens[position]
            if term >= 0:
                length += 1
                if last[term] != document:
                    last[term] = document
                    document_frequencies[term] += 1
        lengths[segment] = length
        start = ends[segment]


@_compiled
def fill_postings(
    tokens: NDArray[np.int32],
    ends: NDArray[np.int64],
    fields: int,
    first_document: int,
    offsets: NDArray[np.int64],
    documents: NDArray[np.int32],
    frequencies: NDArray[np.uint16],
) -> None:
    """Write the postings of each term t to `documents` and `frequencies` [offsets[t]:offsets[t + 1]].

    Documents are numbered from `first_document`. A frequency above 65,535 is written as 65,535.
    """
    cursors = offsets[:-1].copy()
    last = np.full(len(cursors), -1, np.int32)
    start = 0
    for segment in range(len(ends)):
        document = segment // fields
        for position in range(start, ends[segment]):
            term = tokens[position]
            if term < 0:
                continue
            if last[term] != document:
                last[term] = document
                documents[cursors[term]] = first_document + document
                frequencies[cursors[term]] = 1
                cursors[term] += 1
            elif frequencies[cursors[term] - 1] < 65_535:
                frequencies[cursors[term] - 1] += np.uint16(1)
        start = ends[segment]


@_compiled
def append_postings(
    numbers: NDArray[np.int32],
    offsets: NDArray[np.int64],
    documents: NDArray[np.int32],
    frequencies: NDArray[np.uint16],
    cursors: NDArray[np.int64],
    all_documents: NDArray[np.int32],
    all_frequencies: NDArray[np.uint16],
) -> None:
    """Copy a shard's postings behind those of earlier shards, and move the cursors on.

    `numbers[t]` is the number that the shard's term t has in the whole index.
    """
    for term in range(len(numbers)):
        cursor = cursors[numbers[term]]
        for position in range(offsets[term], offsets[term + 1]):
            all_documents[cursor] = documents[position]
            all_frequencies[cursor] = frequencies[position]
            cursor += 1
        cursors[numbers[term]] = cursor


@_compiled
def _keep_greatest(keys: NDArray[np.uint64], count: int, wanted: int) -> None:
    """Move the `wanted` greatest of keys[:count] to the front, the least of them last (quickselect)."""
    low, high = 0, count - 1
    place = wanted - 1
    while low < high:
        middle = (low + high) // 2
        first, second, third = keys[low], keys[middle], keys[high]
        pivot = max(min(first, second), min(max(first, second), third))
        left, right = low, high
        while left <= right:
            while keys[left] > pivot:
                left += 1
            while keys[right] < pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            return


@_compiled
def search(
    documents: NDArray[np.int32],
    frequencies: NDArray[np.uint16],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    weights: NDArray[np.float32],
    row_fields: NDArray[np.int64],
    lengths: NDArray[np.uint8],
    inverse_norms: NDArray[np.float32],
    ranks: NDArray[np.uint32],
    wanted: int,
    sums: NDArray[np.float64],
    keys: NDArray[np.uint64],
) -> int:
    """Score all documents for one query, and leave the best `wanted` in `keys`, the best first.

    Row r of the query is a term in a field: its postings are `documents` and `frequencies`
    [starts[r]:ends[r]], its weight (boost × idf) is `weights[r]`, its field `row_fields[r]`. `lengths` (fields ×
    documents) holds encoded lengths, `inverse_norms` (fields × 256) what a length contributes. A term adds
    weight − weight / (1 + frequency × inverse norm), in float32, and terms are added in float64, as in Lucene.

    A key has the bits of the float32 score above, and 2³² − 1 − rank of the document below, so that greater keys
    come first: by score, and among equal scores by `ranks`. Returns how many keys there are. `sums` holds
    BLOCK_SIZE values and must be zero, and is zero again afterwards; `keys` has room for 2 × wanted + 4096.
    """
    rows = len(starts)
    cursors = starts.copy()
    found = 0
    least_score = np.float32(0)
    least_sum = 0.0
    least_key = np.uint64(0)
    score_bits = np.zeros(1, np.float32)
    as_integer = score_bits.view(np.uint32)
    one = np.float32(1)
    while True:
        nearest = np.int64(2**62)
        for row in range(rows):
            if cursors[row] < ends[row]:
                nearest = min(nearest, np.int64(documents[cursors[row]]))
        if nearest == 2**62:
            break
        first = nearest - nearest % BLOCK_SIZE
        behind = min(first + BLOCK_SIZE, len(ranks))
        for row in range(rows):
            cursor = cursors[row]
            end = ends[row]
            weight = weights[row]
            lengths_here = lengths[row_fields[row]]
            norms_here = inverse_norms[row_fields[row]]
            while cursor < end:
                document = documents[cursor]
                if document >= behind:
                    break
                frequency = np.float32(frequencies[cursor])
                score = weight - weight / (one + frequency * norms_here[lengths_here[document]])
                sums[document - first] += score
                cursor += 1
            cursors[row] = cursor
        for strip in range(0, BLOCK_SIZE, _STRIP):
            candidates = False
            for place in range(strip, strip + _STRIP):
                candidates |= sums[place] > least_sum
            if candidates:
                for place in range(strip, strip + _STRIP):
                    score = np.float32(sums[place])
                    if score >= least_score and score > 0:
                        score_bits[0] = score
                        below = np.uint64(0xFFFFFFFF) - np.uint64(ranks[first + place])
                        key = (np.uint64(as_integer[0]) << np.uint64(32)) | below
                        if key > least_key:
                            keys[found] = key
                            found += 1
                            if found == len(keys):
                                _keep_greatest(keys, found, wanted)
                                found = wanted
                                least_key = keys[wanted - 1]
                                as_integer[0] = np.uint32(least_key >> np.uint64(32))
                                least_score = score_bits[0]
                                least_sum = np.float64(least_score) * _ROUNDING
        sums[:] = 0.0
    if found > wanted:
        _keep_greatest(keys, found, wanted)
        found = wanted
    kept = np.sort(keys[:found])
    for place in range(found):
        keys[place] = kept[found - 1 - place]
    return found


@lru_cache(maxsize=1)
def load() -> None:
    """Compile everything, or load what was compiled before, so that no timing contains it."""
    ends = np.ones(1, np.int64)
    offsets = np.zeros(2, np.int64)
    documents, frequencies = np.zeros(1, np.int32), np.zeros(1, np.uint16)
    count_postings(np.zeros(1, np.int32), ends, 1, offsets[1:], np.zeros(1, np.int32))
    fill_postings(np.zeros(1, np.int32), ends, 1, 0, offsets, documents, frequencies)
    search(
        documents,
        frequencies,
        offsets[:1],
        ends,
        np.ones(1, np.float32),
        np.zeros(1, np.int64),
        np.ones((1, 1), np.uint8),
        np.ones((1, 256), np.float32),
        np.zeros(1, np.uint32),
        1,
        np.zeros(BLOCK_SIZE, np.float64),
        np.empty(8, np.uint64),
    )
