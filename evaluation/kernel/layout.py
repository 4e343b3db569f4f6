"""What the compiled functions and their Python callers share: named arrays, and the places in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel.text import PADDING, Bytes

Integers = NDArray[np.int64]
Numbers = NDArray[np.int32]
Words = NDArray[np.uint64]

# --- places in `state`, which outlives a call
(POSITION, LINE, COUNT, QUERY, QUERY_LENGTH, GROUP_START, QUERIES, DESCENDING, SELF_MATCH, PREVIOUS_RANK, GIVEN,
 SCORE_START, SCORE_END, LAST_TEXT_LINE, CUT_LINES, CHECKED_LINES, TAG, TAGS, OUTPUT, STATE_SIZE) = range(20)  # fmt: skip

# --- places in `options`
(MAX_LINE, MAX_ID, MAX_DEPTH, DROP_SELF_MATCHES, KNOWN_QUERIES, ANY_QUERY, CHECK_ENCODING, CHECK_DOCUMENTS,
 ELSEWHERE_DEPTH, OPTIONS_SIZE) = range(10)  # fmt: skip

# --- rows of `noted`: how often (place 0), and the first five line numbers
(BLANK, LINE_LENGTH, ENCODING, FIELDS, IDENTIFIER, SCORE, DUPLICATE, UNKNOWN_DOCUMENT, UNKNOWN_QUERY, DEPTH, RANK_ORDER,
 TIED, NEW_TAG, CODES) = range(14)  # fmt: skip
NAMED_LINES = 5

# --- why `read_lines` returned
DONE, NEEDS_ROOM, NEEDS_SCORE, NOT_GROUPED, TOO_MANY_QUERIES = range(5)

#: Distinct tags that are remembered.
MAX_TAGS = 16
#: Grade of a document that is judged for another query only.
ELSEWHERE = -1


class Lines(NamedTuple):
    """The lines of one query, as columns. `start` and `length` place the document id in the buffer; `number` is the
    line's 1-based number in the file; the rest is working space: a hash table, and the lines whose rank is wanted."""

    first: Words
    second: Words
    hash: Words
    start: Integers
    length: Numbers
    score: NDArray[np.float32]
    number: Integers
    table: Numbers
    tracked: Numbers
    grade: Numbers
    before: Numbers


class Queries(NamedTuple):
    """Every query id seen, numbered: the dataset's own first. `slots` holds number + 1, 0 where empty."""

    slots: Numbers
    first: Words
    second: Words
    start: Integers
    text: Bytes
    seen: NDArray[np.uint8]
    retrieved: Numbers
    current: Bytes


class Judged(NamedTuple):
    """Judgements by query: a hash table each, one after the other (see `JudgedTable`)."""

    row: Numbers
    slot_offset: Integers
    slots: Numbers
    first: Words
    second: Words
    start: Integers
    text: Bytes
    grade: Numbers


class Ids(NamedTuple):
    """A set of ids: two words per slot, and the bytes of those that do not fit a slot (see `identifiers.py`)."""

    slots: Words
    long_ids: Bytes


class Tags(NamedTuple):
    """The distinct tags, in the order seen."""

    text: Bytes
    start: Integers


class Output(NamedTuple):
    """(query number, rank, grade) of every judged document retrieved, grouped by query; ranks are 1-based."""

    query: Numbers
    rank: Numbers
    grade: Numbers


def new_lines(room: int) -> Lines:
    """Columns for `room` lines."""
    table = 1 << max(4, (2 * room - 1).bit_length())
    return Lines(
        np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.uint64),
        np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.float32),
        np.empty(room, np.int64), np.empty(table, np.int32),
        np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room + 1, np.int32),
    )  # fmt: skip


def grown_lines(lines: Lines, room: int) -> Lines:
    """The same columns with more room."""
    grown = new_lines(room)
    for new, old in zip(grown[:7], lines[:7], strict=True):
        new[: len(old)] = old
    return grown


def new_queries(room: int, longest_id: int) -> Queries:
    """A table for `room` query ids. Its memory is reserved, and taken up only as ids come."""
    start = np.empty(room + 1, np.int64)
    start[0] = 0
    return Queries(
        np.zeros(1 << (2 * room - 1).bit_length(), np.int32), np.empty(room, np.uint64), np.empty(room, np.uint64),
        start, np.empty(room * longest_id + PADDING, np.uint8), np.zeros(room, np.uint8), np.zeros(room, np.int32),
        np.zeros(longest_id + PADDING, np.uint8),
    )  # fmt: skip


def padded(text: bytes) -> Bytes:
    """Bytes as an array that may be read by words."""
    array = np.zeros(len(text) + PADDING, np.uint8)
    array[: len(text)] = np.frombuffer(text, np.uint8)
    return array
