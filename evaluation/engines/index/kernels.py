"""Compiled functions of BM25, which convert token streams to postings and compute scores.

They are all in this file, because numba caches machine code until the file of a function changes. Every function
releases the GIL. Compilation takes a few seconds once per machine; machine code is cached on disk if there is a folder
for it. This module is imported on first use, because importing numba takes half the time of importing all engines.

The key of a search result combines the bits of the float32 score (high) with the rank of the document (low), which is
masked by ASCENDING or DESCENDING for the order of ids among equal scores. Larger keys are better. An array of keys has
spare room: with two or three times the requested number, selection is rare.

Indices are unsigned, because numba checks signed ones for negative values, which takes a third more time. It compiles
`search` separately with and without `norms`, and removes the other branch.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from evaluation.engines.base import Floats, Norms, Numbers, Ranks

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function to machine code that releases the GIL and divides by zero like NumPy."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # without a cache folder, every process compiles
        return cast(Function, numba.njit(**options)(function))


Frequency = TypeVar("Frequency", np.uint16, np.float32)

#: Number of documents that are scored at a time, so that their sums stay in the processor's cache.
BLOCK_SIZE = 8_192
_BLOCK = np.uint64(BLOCK_SIZE)
_ONE = np.uint64(1)
_NO_DOCUMENT = np.uint64(2**63)
#: Spare room for keys beyond the requested number; see `search`.
SPARE_KEYS = 1000
#: Number of sums that are compared with the score threshold at a time.
_STRIP = 64
#: Masks of ranks in keys, for the order of document ids among equal scores.
ASCENDING, DESCENDING = np.uint64(0), np.uint64(0xFFFFFFFF)
#: Factor that bounds a sum from below by its value rounded to float32.
_ROUNDING = 1.0 - 2.0**-23


@compiled
def count_postings(
    tokens: NDArray[np.int32],
    ends: Numbers,
    fields: int,
    document_frequencies: Numbers,
    lengths: NDArray[np.int32],
) -> None:
    """Count the documents of each term and the tokens of each document.

    Args:
        tokens: Term numbers, -1 for stop words, of consecutive documents and their fields.
        ends: End of each segment s, which is field s % fields of document s // fields.
        fields: Number of fields.
        document_frequencies: Output by term, to which counts are added.
        lengths: Output by segment.
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

    Documents are numbered from `first_document`. Frequencies above 65,535 are stored as 65,535.
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
    """Append a shard's postings to the postings of earlier shards and advance the cursors.

    `numbers[t]` is the number of the shard's term t in the whole index. Weights can take the place of frequencies.
    """
    for term in range(len(numbers)):
        cursor = cursors[numbers[term]]
        for position in range(offsets[term], offsets[term + 1]):
            all_documents[cursor] = documents[position]
            all_frequencies[cursor] = frequencies[position]
            cursor += 1
        cursors[numbers[term]] = cursor


@compiled
def _select_largest(keys: NDArray[np.uint64], count: int, selection_size: int) -> None:
    """Move the `selection_size` largest of keys[:count] to the front, with the smallest of them last (quickselect)."""
    low, high = 0, count - 1
    target = selection_size - 1
    while low < high:
        middle = (low + high) // 2
        first, second, third = keys[low], keys[middle], keys[high]
        pivot = max(min(first, second), min(max(first, second), third))
        lower, upper = low, high
        while lower <= upper:
            while keys[lower] > pivot:
                lower += 1
            while keys[upper] < pivot:
                upper -= 1
            if lower <= upper:
                keys[lower], keys[upper] = keys[upper], keys[lower]
                lower += 1
                upper -= 1
        if target <= upper:
            high = upper
        elif target >= lower:
            low = lower
        else:
            return


@compiled
def _find_above(strips: NDArray[np.float64], threshold: float, indices: NDArray[np.int32]) -> int:
    """Write the indices of sums above `threshold` to `indices`, and return their number.

    The compiler vectorizes the counting and avoids branches in the writing.
    """
    count = np.uint64(0)
    for strip in range(strips.shape[0]):
        above_count = 0
        for index in range(_STRIP):
            above_count += strips[strip, index] > threshold
        if above_count:
            for index in range(_STRIP):
                indices[count] = strip * _STRIP + index
                count += np.uint64(strips[strip, index] > threshold)
    return int(count)


@compiled
def _find_next_document(documents: Ranks, cursors: NDArray[np.uint64], ends: NDArray[np.uint64]) -> np.uint64:
    """Return the lowest next document of any row, or _NO_DOCUMENT if all rows have ended."""
    lowest = _NO_DOCUMENT
    for row in range(len(cursors)):
        if cursors[row] < ends[row]:
            lowest = min(lowest, np.uint64(documents[cursors[row]]))
    return lowest


@compiled
def _add_keys(
    strips: NDArray[np.float64],
    first: np.uint64,
    ranks: Ranks,
    result_size: int,
    indices: NDArray[np.int32],
    keys: NDArray[np.uint64],
    key_count: int,
    threshold: np.uint64,
    mask: np.uint64,
) -> tuple[int, np.uint64]:
    """Append the keys of a block's positive sums above `threshold` to `keys`.

    When `keys` is full, the best `result_size` are retained, and `threshold` becomes the smallest of them.

    Args:
        strips: Sums of the block.
        first: First document of the block.
        ranks: Ranks of all documents.
        result_size: Number of requested documents.
        indices: Buffer for indices.
        keys: Keys of previous blocks, and output.
        key_count: Number of keys.
        threshold: Smallest key that is still relevant.
        mask: Mask of ranks, see the module.

    Returns:
        The new values of `key_count` and `threshold`.
    """
    score = np.empty(1, np.float32)
    bits = score.view(np.uint32)
    bits[0] = np.uint32(threshold >> np.uint64(32))
    least_sum = np.float64(score[0]) * _ROUNDING
    sums = strips.reshape(-1)
    for index in indices[: _find_above(strips, least_sum, indices)]:
        score[0] = sums[index]
        low_bits = np.uint64(ranks[first + np.uint64(index)]) ^ mask
        key = (np.uint64(bits[0]) << np.uint64(32)) | low_bits
        if key > threshold:
            keys[key_count] = key
            key_count += 1
            if key_count == len(keys):
                _select_largest(keys, key_count, result_size)
                key_count = result_size
                threshold = keys[result_size - 1]
    return key_count, threshold


@compiled
def search(
    documents: Ranks,
    values: NDArray[Frequency],
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    weights: Floats,
    norms: Norms | None,
    ranks: Ranks,
    result_size: int,
    sums: NDArray[np.float64],
    keys: NDArray[np.uint64],
    mask: np.uint64,
) -> int:
    """Score all documents for one query, and write the keys of the best `result_size` to `keys`, unordered.

    Row r of the query is a term (in a field) with the postings `documents` and `values` [starts[r]:ends[r]] and the
    weight `weights[r]`. Without `norms`, values are weights, and scores are dot products in float64, of which only
    positive ones are returned. With `norms`, values are frequencies and weights are boost × idf: a term contributes
    weight − weight / (1 + frequency × inverse norm) in float32, and terms are added in float64, as in Lucene.

    `sums` must contain BLOCK_SIZE zeros, and contains zeros again afterwards. Returns the number of keys.
    """
    cursors = starts.copy()
    key_count, threshold = 0, np.uint64(0)
    indices = np.empty(BLOCK_SIZE, np.int32)
    strips = sums.reshape((BLOCK_SIZE // _STRIP, _STRIP))
    one = np.float32(1)
    if norms is not None:
        row_fields, lengths, inverse_norms = norms
    while True:
        next_document = _find_next_document(documents, cursors, ends)
        if next_document == _NO_DOCUMENT:
            break
        first = next_document - next_document % _BLOCK
        stop = first + _BLOCK
        for row in range(len(cursors)):
            cursor, end, weight = cursors[row], ends[row], weights[row]
            if norms is None:
                while cursor < end:
                    document = np.uint64(documents[cursor])
                    if document >= stop:
                        break
                    sums[document - first] += np.float64(weight) * np.float64(values[cursor])
                    cursor += _ONE
            else:
                lengths_here, norms_here = lengths[row_fields[row]], inverse_norms[row_fields[row]]
                while cursor < end:
                    document = np.uint64(documents[cursor])
                    if document >= stop:
                        break
                    weighted = np.float32(values[cursor]) * norms_here[lengths_here[document]]
                    sums[document - first] += weight - weight / (one + weighted)
                    cursor += _ONE
            cursors[row] = cursor
        key_count, threshold = _add_keys(strips, first, ranks, result_size, indices, keys, key_count, threshold, mask)
        sums[:] = 0.0
    if key_count > result_size:
        _select_largest(keys, key_count, result_size)
    return min(key_count, result_size)


@compiled
def collect_most_frequent(
    documents: Ranks,
    frequencies: NDArray[np.uint16],
    term_numbers: Ranks,
    cursors: Numbers,
    ends: Numbers,
    first: int,
    stop: int,
    top_terms: Ranks,
    top_frequencies: NDArray[np.uint16],
) -> None:
    """Write the terms with the highest frequencies in documents `first` to `stop` − 1 to the rows of `top_terms`.

    Row r of the input is the term `term_numbers[r]`, with the remaining postings [cursors[r]:ends[r]]; cursors are
    advanced. Each row of the output is in descending order of `top_frequencies`, and equally frequent terms are in
    the order of the vocabulary.
    """
    term_count = top_terms.shape[1]
    for row in range(len(term_numbers)):
        cursor = cursors[row]
        while cursor < ends[row] and documents[cursor] < stop:
            document = documents[cursor] - first
            frequency = frequencies[cursor]
            slot = term_count
            while slot > 0 and top_frequencies[document, slot - 1] < frequency:
                slot -= 1
            for position in range(term_count - 1, slot, -1):
                top_terms[document, position] = top_terms[document, position - 1]
                top_frequencies[document, position] = top_frequencies[document, position - 1]
            if slot < term_count:
                top_terms[document, slot] = term_numbers[row]
                top_frequencies[document, slot] = frequency
            cursor += 1
        cursors[row] = cursor


def read_keys(keys: NDArray[np.uint64], mask: np.uint64) -> tuple[Ranks, Floats]:
    """Return the ranks and scores of the keys of a search, best first."""
    sorted_keys = np.sort(keys)[::-1]
    scores = (sorted_keys >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return sorted_keys.astype(np.uint32) ^ np.uint32(mask), scores


@compiled
def write_order_into_scores(scores: Floats) -> None:
    """Make descending scores distinct, like Anserini's ScoreTiesAdjusterReranker and its output.

    Each score is rounded to 1e-4. If it is at most 1e-4 below its predecessor, it is reduced by 1e-6 for each earlier
    score of the tie. Anserini's runs have six decimals. Above 16, float32 is not precise enough, and a few ties
    remain.
    """
    tie_count = 0
    previous = np.float32(np.inf)
    for index in range(len(scores)):
        score = np.float32(np.floor(np.float64(scores[index]) * 1e4 + 0.5) / 1e4)
        if previous - score > np.float32(1e-4):
            tie_count = 0
        else:
            tie_count += 1
            score -= np.float32(1e-6) * np.float32(tie_count)
        previous = score
        scores[index] = np.float32(np.floor(np.float64(score) * 1e6 + 0.5) / 1e6)


@compiled
def score_codes(
    documents: Numbers,
    starts: Numbers,
    counts: Ranks,
    codes: NDArray[np.uint8],
    list_bytes: int,
    products: Floats,
    tables: Floats,
    scores: Floats,
) -> None:
    """Fill `scores` with the MaxSim of documents, -inf for documents without vectors.

    `products` (centroids × query vectors) and `tables` (pieces × values × query vectors) are inner products of the
    query vectors with centroids and codes. The products of a document vector are a row of `products` plus rows of
    `tables`. Without pieces, vectors are approximated by their centroids.
    """
    size = products.shape[1]
    best, sums = np.empty(size, np.float32), np.empty(size, np.float32)
    for index in range(len(documents)):
        best[:] = -np.inf
        start = starts[documents[index]]
        for row in range(start, start + counts[documents[index]]):
            number = np.int64(0)
            for byte in range(list_bytes):
                number |= np.int64(codes[row, byte]) << (8 * byte)
            for query_vector in range(size):
                sums[query_vector] = products[number, query_vector]
            for piece in range(tables.shape[0]):
                value = codes[row, list_bytes + piece]
                for query_vector in range(size):
                    sums[query_vector] += tables[piece, value, query_vector]
            for query_vector in range(size):
                best[query_vector] = max(best[query_vector], sums[query_vector])
        total = 0.0
        for query_vector in range(size):
            total += best[query_vector]
        scores[index] = total


@lru_cache(maxsize=1)
def load() -> None:
    """Compile the functions of term indexes, or load their machine code, so that timings do not include it."""
    ends, offsets, cursors = np.ones(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)
    documents, frequencies, weights = np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.ones(1, np.float32)
    count_postings(np.zeros(1, np.int32), ends, 1, offsets[1:], np.zeros(1, np.int32))
    fill_postings(np.zeros(1, np.int32), ends, 1, 0, offsets, documents, frequencies)
    append_postings(np.zeros(1, np.int32), offsets, documents, weights, cursors, documents, weights)
    outputs = documents.reshape(1, 1).copy(), frequencies.reshape(1, 1).copy()
    collect_most_frequent(documents, frequencies, documents, cursors, ends, 0, 1, *outputs)
    rows = np.zeros(1, np.uint64), np.ones(1, np.uint64), weights
    sums, keys = np.zeros(BLOCK_SIZE, np.float64), np.empty(8, np.uint64)
    lengths, norms = np.ones((1, 1), np.uint8), np.ones((1, 256), np.float32)
    search(documents, frequencies, *rows, (rows[0], lengths, norms), documents, 1, sums, keys, ASCENDING)
    search(documents, weights, *rows, None, documents, 1, sums, keys, DESCENDING)
    write_order_into_scores(weights)
