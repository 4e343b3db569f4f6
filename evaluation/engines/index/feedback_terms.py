"""What relevance feedback needs of each document: its most frequent terms, kept beside an inverted index.

RM3 cuts every feedback document to its most frequent eligible terms before it does anything else, and which these are
depends on the document and the corpus alone. So they are found once, from the postings: 6 bytes a term kept, in
`feedback_terms.npy` (documents × terms, uint32: numbers of terms) and `feedback_frequencies.npy` (uint16, descending;
0 where a document has no more).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from evaluation.engines.index.compiling import compiled
from evaluation.engines.index.inverted_index import InvertedIndex

TERMS_FILE, FREQUENCIES_FILE = "feedback_terms.npy", "feedback_frequencies.npy"
#: Documents are looked at so many at a time, so that what is written lies together.
_DOCUMENTS_AT_ONCE = 65_536
#: Which terms may expand a query: Anserini's rules, which stand in for a list of stop words.
_ELIGIBLE_ENGLISH = re.compile(r"[a-z0-9]{2,20}")
_SHORTEST, _LONGEST = 2, 20
_GREATEST_SHARE = np.float32(0.1)


def write_feedback_terms(index: InvertedIndex, kept: int, english: bool) -> None:
    """Write the `kept` most frequent eligible terms of each document beside the index (of one field)."""
    shape = (index.document_count, kept)
    terms = open_memmap(index.folder / TERMS_FILE, mode="w+", dtype=np.uint32, shape=shape)
    frequencies = open_memmap(index.folder / FREQUENCIES_FILE, mode="w+", dtype=np.uint16, shape=shape)
    eligible = _eligible(index, english)
    cursors, ends = index.offsets[eligible].copy(), index.offsets[eligible + 1].copy()
    for first in range(0, index.document_count, _DOCUMENTS_AT_ONCE):
        behind = min(first + _DOCUMENTS_AT_ONCE, index.document_count)
        some_terms = np.zeros((behind - first, kept), np.uint32)
        some_frequencies = np.zeros((behind - first, kept), np.uint16)
        _keep_most_frequent(
            index.documents,
            index.frequencies,
            eligible.astype(np.uint32),
            cursors,
            ends,
            first,
            behind,
            some_terms,
            some_frequencies,
        )
        terms[first:behind], frequencies[first:behind] = some_terms, some_frequencies
    terms.flush()
    frequencies.flush()


def read_feedback_terms(folder: Path) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """(numbers of terms, frequencies), documents × terms kept, mapped from the index's folder."""
    return np.load(folder / TERMS_FILE, mmap_mode="r"), np.load(folder / FREQUENCIES_FILE, mmap_mode="r")


def load() -> None:
    """Compile, or load what was compiled before, so that no timing contains it."""
    _keep_most_frequent(
        np.zeros(1, np.uint32),
        np.ones(1, np.uint16),
        np.zeros(1, np.uint32),
        np.zeros(1, np.int64),
        np.ones(1, np.int64),
        0,
        1,
        np.zeros((1, 1), np.uint32),
        np.zeros((1, 1), np.uint16),
    )


def _eligible(index: InvertedIndex, english: bool) -> NDArray[np.int64]:
    """Numbers of the terms that may expand a query: of 2 to 20 characters, in at most a tenth of the documents.

    English ones must be plain letters and digits; in other languages that would leave nothing.
    """
    share = np.diff(index.offsets).astype(np.float32) / np.float32(max(index.document_count, 1))
    well_formed = np.fromiter(
        (
            bool(_ELIGIBLE_ENGLISH.fullmatch(term)) if english else _SHORTEST <= len(term) <= _LONGEST
            for term in index.terms()
        ),
        np.bool_,
        len(share),
    )
    return np.flatnonzero(well_formed & (share <= _GREATEST_SHARE))


@compiled
def _keep_most_frequent(
    documents: NDArray[np.uint32],
    frequencies: NDArray[np.uint16],
    numbers: NDArray[np.uint32],
    cursors: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    behind: int,
    kept_terms: NDArray[np.uint32],
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
