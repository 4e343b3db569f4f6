"""The compiled parts of BM25: turning token streams into postings, and adding up scores.

All of it stands in one file, because numba keeps machine code until the file of a function changes. Every function
releases the GIL. Compiling takes a few seconds once for each machine; the machine code is kept on disk where there is a
folder for it.

A key of a search has the bits of the float32 score above and the rank of the document below, changed by a mask
(ASCENDING or DESCENDING ids among equal scores), so that greater keys come first. An array of keys has room for more
than are wanted: two or three times make sieving rare.

Indices of a search are unsigned, because numba makes signed ones check for negative values, which costs a third. It
compiles `search` once without and once with `norms`, each without the other's branch.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from evaluation.engines.base import Floats, Numbers, Ranks

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Return the function as machine code, which releases the GIL and divides by zero as numpy does."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep machine code in: compile in every process
        return cast(Function, numba.njit(**options)(function))


Frequency = TypeVar("Frequency", np.uint16, np.float32)
#: The field of each row of a query; encoded lengths (fields × documents); what a length contributes (fields × 256).
Norms = tuple[NDArray[np.uint64], NDArray[np.uint8], Floats]

#: Scores are added up for this many documents at a time, so that the sums stay in the processor's cache.
BLOCK_SIZE = 8_192
_BLOCK = np.uint64(BLOCK_SIZE)
_ONE = np.uint64(1)
_NO_DOCUMENT = np.uint64(2**63)
#: Room for candidates beyond what is wanted; see `search`.
SPARE_KEYS = 1000
#: Sums are compared with the lowest score that still counts in strips of this length.
_STRIP = 64
#: Masks of ranks in keys that decide the order of document ids among equal scores.
ASCENDING, DESCENDING = np.uint64(0), np.uint64(0xFFFFFFFF)
#: A sum rounded to float32 is at most this much above the sum.
_ROUNDING = 1.0 - 2.0**-23


@compiled
def count_postings(
    tokens: NDArray[np.int32],
    ends: Numbers,
    fields: int,
    document_frequencies: Numbers,
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


@compiled
def fill_postings(
    tokens: NDArray[np.int32],
    ends: Numbers,
    fields: int,
    first_document: int,
    offsets: Numbers,
    documents: Ranks,
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


@compiled
def append_postings(
    numbers: NDArray[np.int32],
    offsets: Numbers,
    documents: Ranks,
    frequencies: NDArray[Frequency],
    cursors: Numbers,
    all_documents: Ranks,
    all_frequencies: NDArray[Frequency],
) -> None:
    """Copy a shard's postings behind those of earlier shards, and move the cursors on.

    `numbers[t]` is the number that the shard's term t has in the whole index. Weights may stand for frequencies.
    """
    for term in range(len(numbers)):
        cursor = cursors[numbers[term]]
        for position in range(offsets[term], offsets[term + 1]):
            all_documents[cursor] = documents[position]
            all_frequencies[cursor] = frequencies[position]
            cursor += 1
        cursors[numbers[term]] = cursor


@compiled
def _select_greatest(keys: NDArray[np.uint64], count: int, wanted: int) -> None:
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


@compiled
def _places_above(strips: NDArray[np.float64], least: float, places: NDArray[np.int32]) -> int:
    """Write the places of the sums above `least` to `places`; return how many there are.

    Written so that the compiler makes vector instructions of the counting, and no branch of the writing.
    """
    found = np.uint64(0)
    for strip in range(strips.shape[0]):
        above = 0
        for place in range(_STRIP):
            above += strips[strip, place] > least
        if above:
            for place in range(_STRIP):
                places[found] = strip * _STRIP + place
                found += np.uint64(strips[strip, place] > least)
    return int(found)


@compiled
def _nearest_document(documents: Ranks, cursors: NDArray[np.uint64], ends: NDArray[np.uint64]) -> np.uint64:
    """Return the lowest document that any row comes to next, _NO_DOCUMENT when all rows are at their ends."""
    nearest = _NO_DOCUMENT
    for row in range(len(cursors)):
        if cursors[row] < ends[row]:
            nearest = min(nearest, np.uint64(documents[cursors[row]]))
    return nearest


@compiled
def _gather(
    strips: NDArray[np.float64],
    first: np.uint64,
    ranks: Ranks,
    wanted: int,
    places: NDArray[np.int32],
    keys: NDArray[np.uint64],
    found: int,
    least_key: np.uint64,
    mask: np.uint64,
) -> tuple[int, np.uint64]:
    """Write the keys of a block's positive sums that are above `least_key` behind the `found` that are in `keys`.

    `first` is the block's first document. When `keys` is full, the best `wanted` stay, and `least_key` rises to the
    least of them. Returns both numbers as they are now; see `search` for keys and `mask`.
    """
    score = np.empty(1, np.float32)
    bits = score.view(np.uint32)
    bits[0] = np.uint32(least_key >> np.uint64(32))
    least_sum = np.float64(score[0]) * _ROUNDING
    sums = strips.reshape(-1)
    for place in places[: _places_above(strips, least_sum, places)]:
        score[0] = sums[place]
        below = np.uint64(ranks[first + np.uint64(place)]) ^ mask
        key = (np.uint64(bits[0]) << np.uint64(32)) | below
        if key > least_key:
            keys[found] = key
            found += 1
            if found == len(keys):
                _select_greatest(keys, found, wanted)
                found = wanted
                least_key = keys[wanted - 1]
    return found, least_key


@compiled
def search(
    documents: Ranks,
    values: NDArray[Frequency],
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    weights: Floats,
    norms: Norms | None,
    ranks: Ranks,
    wanted: int,
    sums: NDArray[np.float64],
    keys: NDArray[np.uint64],
    mask: np.uint64,
) -> int:
    """Score all documents for one query, and leave the keys of the best `wanted` in `keys`, in no order.

    Row r of the query is a term (in a field): its postings are `documents` and `values` [starts[r]:ends[r]], its weight
    is `weights[r]`. Without `norms`, values are weights too, and a score is a dot product, in float64, of which only
    positive ones are found. With them, values are frequencies and the weight is boost × idf: a term adds
    weight − weight / (1 + frequency × inverse norm), in float32, and terms are added in float64, as in Lucene.

    `sums` holds BLOCK_SIZE zeros before and after. Returns the number of keys.
    """
    cursors = starts.copy()
    found, least_key = 0, np.uint64(0)
    places = np.empty(BLOCK_SIZE, np.int32)
    strips = sums.reshape((BLOCK_SIZE // _STRIP, _STRIP))
    one = np.float32(1)
    if norms is not None:
        row_fields, lengths, inverse_norms = norms
    while True:
        nearest = _nearest_document(documents, cursors, ends)
        if nearest == _NO_DOCUMENT:
            break
        first = nearest - nearest % _BLOCK
        behind = first + _BLOCK
        for row in range(len(cursors)):
            cursor, end, weight = cursors[row], ends[row], weights[row]
            if norms is None:
                while cursor < end:
                    document = np.uint64(documents[cursor])
                    if document >= behind:
                        break
                    sums[document - first] += np.float64(weight) * np.float64(values[cursor])
                    cursor += _ONE
            else:
                lengths_here, norms_here = lengths[row_fields[row]], inverse_norms[row_fields[row]]
                while cursor < end:
                    document = np.uint64(documents[cursor])
                    if document >= behind:
                        break
                    weighted = np.float32(values[cursor]) * norms_here[lengths_here[document]]
                    sums[document - first] += weight - weight / (one + weighted)
                    cursor += _ONE
            cursors[row] = cursor
        found, least_key = _gather(strips, first, ranks, wanted, places, keys, found, least_key, mask)
        sums[:] = 0.0
    if found > wanted:
        _select_greatest(keys, found, wanted)
    return min(found, wanted)


@compiled
def keep_most_frequent(
    documents: Ranks,
    frequencies: NDArray[np.uint16],
    numbers: Ranks,
    cursors: Numbers,
    ends: Numbers,
    first: int,
    behind: int,
    kept_terms: Ranks,
    kept_frequencies: NDArray[np.uint16],
) -> None:
    """Fill, for documents `first` to `behind` − 1, the terms with the highest frequencies, in descending order.

    Row r is the term `numbers[r]`, whose postings not yet seen are [cursors[r]:ends[r]]; cursors move on. Of equally
    frequent terms the first in the vocabulary comes first.
    """
    kept = kept_terms.shape[1]
    for row in range(len(numbers)):
        cursor = cursors[row]
        while cursor < ends[row] and documents[cursor] < behind:
            document = documents[cursor] - first
            frequency = frequencies[cursor]
            place = kept
            while place > 0 and kept_frequencies[document, place - 1] < frequency:
                place -= 1
            for later in range(kept - 1, place, -1):
                kept_terms[document, later] = kept_terms[document, later - 1]
                kept_frequencies[document, later] = kept_frequencies[document, later - 1]
            if place < kept:
                kept_terms[document, place] = numbers[row]
                kept_frequencies[document, place] = frequency
            cursor += 1
        cursors[row] = cursor


def read_keys(keys: NDArray[np.uint64], mask: np.uint64) -> tuple[Ranks, Floats]:
    """Return the ranks and the scores of the keys of a search, best first."""
    best = np.sort(keys)[::-1]
    scores = (best >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return best.astype(np.uint32) ^ np.uint32(mask), scores


@compiled
def write_order_into_scores(scores: Floats) -> None:
    """Make descending scores distinct, as Anserini's ScoreTiesAdjusterReranker and output do.

    Each score is rounded to 1e-4. If it is at most 1e-4 below its predecessor, it is reduced by 1e-6 for each earlier
    score of the tie. Anserini's runs have six decimals. Above 16, float32 is not precise enough, and a few ties remain.
    """
    tied = 0
    before = np.float32(np.inf)
    for place in range(len(scores)):
        score = np.float32(np.floor(np.float64(scores[place]) * 1e4 + 0.5) / 1e4)
        if before - score > np.float32(1e-4):
            tied = 0
        else:
            tied += 1
            score -= np.float32(1e-6) * np.float32(tied)
        before = score
        scores[place] = np.float32(np.floor(np.float64(score) * 1e6 + 0.5) / 1e6)


@lru_cache(maxsize=1)
def load() -> None:
    """Compile everything, or load what was compiled before, so that no timing contains it."""
    ends, offsets, cursors = np.ones(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)
    documents, frequencies, weights = np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.ones(1, np.float32)
    count_postings(np.zeros(1, np.int32), ends, 1, offsets[1:], np.zeros(1, np.int32))
    fill_postings(np.zeros(1, np.int32), ends, 1, 0, offsets, documents, frequencies)
    append_postings(np.zeros(1, np.int32), offsets, documents, weights, cursors, documents, weights)
    kept = documents.reshape(1, 1).copy(), frequencies.reshape(1, 1).copy()
    keep_most_frequent(documents, frequencies, documents, cursors, ends, 0, 1, *kept)
    rows = np.zeros(1, np.uint64), np.ones(1, np.uint64), weights
    sums, keys = np.zeros(BLOCK_SIZE, np.float64), np.empty(8, np.uint64)
    lengths, norms = np.ones((1, 1), np.uint8), np.ones((1, 256), np.float32)
    search(documents, frequencies, *rows, (rows[0], lengths, norms), documents, 1, sums, keys, ASCENDING)
    search(documents, weights, *rows, None, documents, 1, sums, keys, DESCENDING)
    write_order_into_scores(weights)
