"""What the compiled functions and their Python callers share: the places of values in memory, in 64-bit words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]

#: Words are loaded whole, so up to this many bytes behind a text are looked at.
PADDING = 16

# --- `state` of the reader. Addresses are of arrays that the caller keeps alive.
(POSITION, STOP, LINE, FIRST_NUMBER, NUMBERS, FIELD_SPACE, ROWS, ROOM, COUNT, ISSUES, ISSUES_ROOM, ISSUE_COUNT, QUERY,
 QUERY_LENGTH, QUERY_KNOWN, TAG, TAG_LENGTH, SEED, MAX_LINE, MAX_ID, PREVIOUS_RANK, DESCENDING, SELF_MATCH, PREFETCHED,
 PREFETCHED_MASK, POWERS, GIVEN, GIVEN_SCORE, TABLE, TABLE_MASK, JUDGED_FROM, JUDGED_TO, JUDGED_TEXT,
 JUDGED_OFFSETS, FOUND, FOUND_COUNT, LAST_TEXT, STATE_SIZE) = range(38)  # fmt: skip

# --- a row: one line of the query at hand
(FIRST, SECOND, HASH, START, LENGTH, SCORE, NUMBER, FLAG, ROW_SIZE) = range(9)
ROW_BYTES = 8 * ROW_SIZE

# --- a judgement whose document the run has: its number, the document's rank (0: not known yet), the row
FOUND_JUDGEMENT, FOUND_RANK, FOUND_ROW, FOUND_SIZE = range(4)

# --- what may be noted of a line
(BLANK, LINE_LENGTH, FIELDS, IDENTIFIER, BAD_SCORE, UNKNOWN_QUERY, RANK_ORDER, TIED, ENCODING, DUPLICATE,
 UNKNOWN_DOCUMENT, DEPTH, CODES) = range(1, 14)  # fmt: skip

# --- why the reader stopped in front of a line
DONE, NEW_QUERY, NEW_TAG, NEEDS_ROOM, NEEDS_SCORE, ISSUES_FULL = range(6)

#: What the upper byte of a key's second word is, as a signed number, for ids longer than 16 bytes. UTF-8 has no such
#: byte, so that no short id looks like a long one.
LONG_MARK = -1
LONG_ID = LONG_MARK << 56
SHORT_BYTES = 16


def address(array: NDArray[np.generic]) -> int:
    """Where an array's data is."""
    return int(array.ctypes.data)


def padded(text: bytes) -> NDArray[np.uint8]:
    """Bytes as an array that may be read by words."""
    array = np.zeros(len(text) + PADDING, np.uint8)
    array[: len(text)] = np.frombuffer(text, np.uint8)
    return array
