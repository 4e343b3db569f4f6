"""Ctypes structures of `layout.h`, and the types of the arrays to which they point."""

from __future__ import annotations

from ctypes import Structure, c_double, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Numbers = NDArray[np.int32]
Words = NDArray[np.uint64]

#: Number of readable bytes after the content of arrays that are read by words.
PADDING = 16

#: Conditions recorded for lines: blank, or the code of a problem. `building.py` passes the list to the compiler.
BLANK = "blank"
NOTED = (
    BLANK, "line_length", "encoding", "fields", "identifier", "score", "duplicate", "unknown_documents",
    "unknown_queries", "depth", "rank_order", "ties", "several_tags",
)  # fmt: skip
NAMED_LINES = 5

# Return values of `read_lines`.
DONE, NEEDS_ROOM, NEEDS_SCORE, NOT_GROUPED, TOO_MANY_QUERIES, REFUSED = range(6)

#: Maximum number of distinct tags that are stored.
MAX_TAGS = 16

#: A line of the current query (`struct line`).
LINE = np.dtype(
    [("first", "u8"), ("second", "u8"), ("hash", "u8"), ("start", "u8"), ("length", "u4"), ("number", "u4")]
)


class Ids(NamedTuple):
    """A set of ids: two words per slot, and the bytes of ids that do not fit into a slot (see `document_ids.py`)."""

    slots: Words
    long_ids: Bytes


class IdsFields(Structure):
    """`struct ids`."""

    _fields_ = [
        ("slots", c_void_p),
        ("slot_count", c_uint64),
        ("long_ids", c_void_p),
        ("long_bytes", c_uint64),
    ]

    @classmethod
    def from_ids(cls, ids: Ids) -> IdsFields:
        """Return the structure for a set, which must outlive it. Raises ValueError for a damaged set."""
        slots = len(ids.slots) // 2
        if slots < 1 or slots & (slots - 1):
            raise ValueError(f"a set of ids has {slots} slots, which is not a power of two")
        return cls(address(ids.slots), slots, address(ids.long_ids), len(ids.long_ids))


class QueriesFields(Structure):
    """`struct queries`."""

    _fields_ = [
        ("slots", c_void_p), ("slot_count", c_uint64), ("keys", c_void_p), ("start", c_void_p), ("text", c_void_p),
        ("text_room", c_uint64), ("room", c_uint64), ("count", c_uint64), ("seen", c_void_p), ("retrieved", c_void_p),
    ]  # fmt: skip


class JudgedFields(Structure):
    """`struct judged`."""

    _fields_ = [
        ("row_of", c_void_p), ("row_count", c_uint64), ("offsets", c_void_p), ("keys", c_void_p), ("start", c_void_p),
        ("text", c_void_p), ("grades", c_void_p),
    ]  # fmt: skip


class LinesFields(Structure):
    """`struct lines`."""

    _fields_ = [
        ("line", c_void_p), ("score", c_void_p), ("room", c_uint64), ("count", c_uint64),
        ("table", c_void_p), ("table_size", c_uint64),
        ("grade", c_void_p), ("tracked", c_void_p), ("scratch", c_void_p), ("before", c_void_p),
    ]  # fmt: skip


class TagsFields(Structure):
    """`struct tags`."""

    _fields_ = [
        ("text", c_void_p), ("text_room", c_uint64), ("start", c_void_p), ("room", c_uint64), ("count", c_uint64),
        ("last", c_uint64),
    ]  # fmt: skip


class OutputFields(Structure):
    """`struct output`."""

    _fields_ = [
        ("query", c_void_p), ("rank", c_void_p), ("grade", c_void_p), ("room", c_uint64), ("count", c_uint64)
    ]  # fmt: skip


class FirstFields(Structure):
    """`struct first`."""

    _fields_ = [("text", c_void_p), ("room", c_uint64), ("filled", c_uint64), ("depth", c_uint64)]


class ReadingFields(Structure):
    """`struct reading`."""

    _fields_ = [
        ("text", c_void_p), ("capacity", c_uint64), ("position", c_uint64), ("group_start", c_uint64),
        ("order", c_void_p), ("order_count", c_uint64), ("first_number", c_uint64), ("line", c_uint64),
        ("last_text_line", c_uint64),
        ("seed", c_uint64), ("longest_line", c_uint64), ("longest_id", c_uint64), ("depth", c_uint64),
        ("elsewhere_depth", c_uint64), ("known_queries", c_uint64),
        ("drop_self_matches", c_uint64), ("any_query", c_uint64), ("check_encoding", c_uint64),
        ("check_documents", c_uint64),
        ("query", c_int64), ("current", c_void_p), ("current_room", c_uint64), ("current_length", c_uint64),
        ("descending", c_uint64), ("self_match", c_int64), ("previous_rank", c_int64), ("cut_lines", c_int64),
        ("score_start", c_uint64), ("score_end", c_uint64), ("score_given", c_uint64), ("given", c_double),
        ("noted", c_uint64 * (1 + NAMED_LINES) * len(NOTED)),
        ("lines", LinesFields), ("queries", QueriesFields), ("judged", JudgedFields), ("excluded", JudgedFields),
        ("documents", IdsFields), ("elsewhere", IdsFields), ("tags", TagsFields), ("output", OutputFields),
        ("first", FirstFields),
    ]  # fmt: skip


def address(array: NDArray[Any]) -> int:
    """Return the address of a contiguous array."""
    if not array.flags.c_contiguous:
        raise ValueError("an array for compiled code must be contiguous")
    return int(array.ctypes.data)


def pad_text(text: bytes) -> Bytes:
    """Return bytes as an array with PADDING, which may be read by words."""
    array = np.zeros(len(text) + PADDING, np.uint8)
    array[: len(text)] = np.frombuffer(text, np.uint8)
    return array


#: The empty set of ids.
NO_IDS = Ids(np.zeros(2, np.uint64), np.zeros(1, np.uint8))
