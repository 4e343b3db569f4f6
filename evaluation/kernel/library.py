"""Python interface of the compiled functions, which release the GIL.

`Reading` is one pass over a run, with its arrays. `Judged` contains relevance judgments in the form that the kernel
needs to look up the documents of a query.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int64, c_uint64, c_void_p, sizeof
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel import layout
from evaluation.kernel.building import get_library_path
from evaluation.kernel.layout import Bytes, Ids, Integers, Numbers, Words, address

_READING = POINTER(layout.ReadingFields)
_IDS = POINTER(layout.IdsFields)
_TEXT = (c_void_p, c_uint64)
_SIGNATURES: dict[str, tuple[Any, Sequence[Any]]] = {
    "size_of_reading": (c_uint64, ()),
    "has_only_plain_text": (c_int, _TEXT),
    "read_lines": (c_int, (_READING, c_uint64)),
    "finish_last_query": (None, (_READING,)),
    "number_queries": (c_int, (_READING, *_TEXT, c_void_p, c_uint64)),
    "index_lines": (c_int64, (_READING, c_uint64, c_void_p, c_void_p, c_uint64)),
    "order_lines": (None, (c_void_p, c_uint64, c_void_p, c_uint64, c_void_p)),
    "gather_lines": (
        c_uint64, (c_void_p, c_void_p, c_void_p, c_uint64, POINTER(c_uint64), c_void_p, c_uint64, c_uint64),
    ),
    "make_keys": (c_int, (*_TEXT, c_void_p, c_uint64, c_uint64, c_void_p)),
    "insert_ids": (c_int64, (_IDS, c_void_p, c_void_p, c_uint64)),
    "find_ids": (c_int, (_IDS, *_TEXT, c_void_p, c_uint64, c_uint64, c_void_p)),
}  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    """Load the kernel once per process, compiling it if necessary.

    Raises KernelUnavailable, or RuntimeError if `layout.py` does not match the kernel.
    """
    kernel = ctypes.CDLL(str(get_library_path()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(kernel, name)
        function.restype, function.argtypes = result, arguments
    if kernel.size_of_reading() != sizeof(layout.ReadingFields):
        raise RuntimeError("layout.h and layout.py differ")
    return kernel


def compute_keys(text: Bytes, offsets: Integers, seed: int) -> Words:
    """Return the keys (ids × first word, second word, hash) of ids in a padded text.

    Id i is `text[offsets[i]:offsets[i + 1]]`.
    """
    keys = np.empty((len(offsets) - 1, 3), np.uint64)
    if not library().make_keys(address(text), len(text), address(offsets), len(keys), seed, address(keys)):
        raise ValueError("an id ends after the text or before its own start")
    return keys


def insert_ids(ids: Ids, keys: Words) -> int:
    """Add ids, given by their keys, to a set and return how many are new.

    Ids that are longer than a key must already be in `long_ids`, with their position in the second word of the key.
    Raises ValueError if the set is read-only, full, or damaged.
    """
    table = layout.IdsFields.from_ids(ids)
    if not ids.slots.flags.writeable:
        raise ValueError("the set of ids is read-only")
    new_count = int(library().insert_ids(table, address(ids.slots), address(keys), len(keys)))
    if new_count < 0:
        raise ValueError("the set of ids is full, or damaged")
    return new_count


def are_in_ids(ids: Ids, text: Bytes, offsets: Integers, seed: int) -> NDArray[np.bool_]:
    """Return whether each id `text[offsets[i]:offsets[i + 1]]` of a padded text is in a set."""
    is_present = np.zeros(len(offsets) - 1, np.uint8)
    table = layout.IdsFields.from_ids(ids)
    if not library().find_ids(
        table, address(text), len(text), address(offsets), len(is_present), seed, address(is_present)
    ):  # fmt: skip
        raise ValueError("an id ends after the text or before its own start")
    return is_present.astype(np.bool_)


@dataclass(frozen=True)
class JudgedTable:
    """Keys of the documents of a Qrels under one hash seed, together with its arrays."""

    offsets: Integers
    keys: Words
    start: Integers
    text: Bytes
    grades: Numbers


@dataclass(frozen=True)
class Judged:
    """Judgments by query: `row[q]` is the row of query number q in the qrels, or -1.

    Without a table there are no judgments.
    """

    row: Numbers
    table: JudgedTable | None = None

    def fields(self) -> layout.JudgedFields:
        """Return the structure, which is valid as long as this object."""
        if self.table is None:
            return layout.JudgedFields()
        table = self.table
        return layout.JudgedFields(
            address(self.row), len(self.row), address(table.offsets), address(table.keys), address(table.start),
            address(table.text), address(table.grades),
        )  # fmt: skip


#: Empty judgments.
NO_JUDGEMENTS = Judged(np.zeros(0, np.int32))


#: Initial capacity in lines of one query.
_INITIAL_CAPACITY = 4096


class NotGroupedError(Exception):
    """Lines of a query are not contiguous. The file must be read again in the order of queries."""


class TooManyQueriesError(Exception):
    """The number of query ids exceeds the capacity."""


class Reading:
    """The structure that the kernel works on (`fields`), and the arrays to which it points.

    `query_room` limits the number of distinct query ids, and `longest_id` their bytes. Memory is reserved for them
    but used only as needed.
    """

    def __init__(self, seed: int, query_room: int, longest_id: int) -> None:
        self.fields = layout.ReadingFields(seed=seed, longest_id=longest_id, query=-1, self_match=-1, previous_rank=-1)
        self.fields.first_number = 1
        self.library = library()
        self._references: dict[str, object] = {}
        #: One line per query, as described in `layout.h`.
        self.first_documents = bytearray()
        self.seen = np.zeros(query_room, np.uint8)
        self.retrieved = np.zeros(query_room, np.int32)
        slots = np.zeros(1 << (2 * query_room - 1).bit_length(), np.uint32)
        keys, start = np.empty((query_room, 3), np.uint64), np.empty(query_room + 1, np.uint64)
        start[0] = 0
        text = np.empty(query_room * longest_id, np.uint8)
        current = np.zeros(longest_id + layout.PADDING, np.uint8)
        self.fields.queries = layout.QueriesFields(
            address(slots), len(slots), address(keys), address(start), address(text), len(text), query_room, 0,
            address(self.seen), address(self.retrieved),
        )  # fmt: skip
        self.fields.current, self.fields.current_room = address(current), len(current)
        self._references["queries"] = (slots, keys, start, text, current)

    def use_text(self, text: Bytes, first_documents: int = 0) -> None:
        """Read from an array that ends with PADDING bytes after its content.

        The first `first_documents` documents of each query are collected.
        """
        self._first = np.empty(len(text) if first_documents else 0, np.uint8)
        self._references["text"] = text
        self.fields.text, self.fields.capacity = address(text), len(text)
        self.fields.first = layout.FirstFields(address(self._first), len(self._first), 0, first_documents)

    def use_order(self, order: NDArray[np.uint32], first_number: int) -> None:
        """Read the lines of the file in this order. `first_number` is the number of the file's line 0."""
        self._references["order"] = order
        self.fields.order, self.fields.order_count = address(order), len(order)
        self.fields.first_number = first_number

    def use_judgements(self, judged: Judged, excluded: Judged, documents: Ids, elsewhere: Ids, room: int) -> None:
        """Look up documents in these judgments and sets, with room for `room` retrieved judged documents.

        `documents` are the ids of the corpus, and `elsewhere` the documents judged for any query.
        """
        self._references["judged"] = (judged, excluded, documents, elsewhere)
        self.fields.judged, self.fields.excluded = judged.fields(), excluded.fields()
        self.fields.documents = layout.IdsFields.from_ids(documents)
        self.fields.elsewhere = layout.IdsFields.from_ids(elsewhere)
        self.query, self.rank, self.grade = (np.empty(room, np.int32) for _ in range(3))
        self.fields.output = layout.OutputFields(*map(address, (self.query, self.rank, self.grade)), room, 0)

    def make_room_for_lines(self, max_tag_bytes: int) -> None:
        """Allocate the arrays for reading lines with tags of up to `max_tag_bytes` bytes."""
        text = np.zeros(layout.MAX_TAGS * max_tag_bytes + layout.PADDING, np.uint8)
        start = np.zeros(layout.MAX_TAGS + 1, np.uint64)
        self._tag_text, self._tag_start = text, start
        self.fields.tags = layout.TagsFields(address(text), len(text), address(start), layout.MAX_TAGS, 0, 0)
        self.lines, self.score = np.empty(0, layout.LINE), np.empty(0, np.float32)
        self._grow_lines(_INITIAL_CAPACITY)

    def _grow_lines(self, room: int) -> None:
        """Allocate larger arrays for `room` lines of one query, and copy the lines so far."""
        lines = np.empty(room, layout.LINE)
        score = np.empty(room, np.float32)
        lines[: len(self.lines)], score[: len(self.lines)] = self.lines, self.score
        table = np.empty(1 << max(4, (2 * room - 1).bit_length()), np.uint64)
        grade = np.empty(room, np.int32)
        tracked, scratch, counts_before = (np.empty(room + 1, np.uint32) for _ in range(3))
        self.fields.lines = layout.LinesFields(
            address(lines), address(score), room, self.fields.lines.count, address(table), len(table),
            *map(address, (grade, tracked, scratch, counts_before)),
        )  # fmt: skip
        self.lines, self.score = lines, score
        self._references["lines"] = (table, grade, tracked, scratch, counts_before)

    def number_queries(self, text: Bytes, offsets: Integers) -> None:
        """Assign numbers to the dataset's queries in their order; query i is `text[offsets[i]:offsets[i + 1]]`.

        The text is padded. Raises ValueError if the queries exceed the capacity.
        """
        if not self.library.number_queries(
            byref(self.fields), address(text), len(text), address(offsets), len(offsets) - 1
        ):  # fmt: skip
            raise ValueError("the queries exceed the capacity, or their offsets are wrong")

    def shift_positions(self, distance: int) -> None:
        """Shift all positions by `distance` bytes toward the start of the array."""
        self.lines["start"][: self.fields.lines.count] -= np.uint64(distance)
        self.fields.position -= distance
        self.fields.group_start = 0

    def read(self, text: bytearray, stop: int) -> None:
        """Read the lines up to `stop`, which follows a newline. `text` is the array of `use_text`.

        Raises NotGroupedError or TooManyQueriesError.
        """
        fields = self.fields
        start = fields.position
        fields.check_encoding = not self.library.has_only_plain_text(fields.text + start, stop - start)
        while status := self.library.read_lines(byref(fields), stop):
            if status == layout.NEEDS_ROOM:
                self._grow_lines(2 * len(self.lines))
            elif status == layout.NEEDS_SCORE:
                fields.given = float(text[fields.score_start : fields.score_end])
                fields.score_given = 1
            elif status == layout.NOT_GROUPED:
                raise NotGroupedError
            elif status == layout.TOO_MANY_QUERIES:
                raise TooManyQueriesError
            else:
                raise RuntimeError("the kernel rejected the region to read")
        self._collect_first_documents()

    def finish(self) -> None:
        self.library.finish_last_query(byref(self.fields))
        self._collect_first_documents()

    def _collect_first_documents(self) -> None:
        """Move the first documents out of the kernel's array."""
        first = self.fields.first
        self.first_documents += self._first[: first.filled].data
        first.filled = 0

    def get_occurrences(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Return the number of occurrences of a problem, and its first line numbers."""
        count, *lines = self.fields.noted[layout.NOTED.index(name)]
        return count, tuple(lines[:count])

    def tags(self) -> tuple[str, ...]:
        """Return the distinct tags in order of appearance."""
        edges = self._tag_start[: self.fields.tags.count + 1].tolist()
        return tuple(self._tag_text[first:last].tobytes().decode("utf-8", "replace") for first, last in pairwise(edges))


class GroupedLines:
    """Lines of a text in memory, grouped by query and in the file's order within each query.

    Args:
        reading: Pass over the text, which `use_text` has set.
        text: The lines, followed by padding.
        length: Number of bytes before the padding; the last one is a newline.
        max_line_bytes: Maximum number of bytes to return of a line.

    Raises:
        TooManyQueriesError: There are too many query ids.
    """

    def __init__(self, reading: Reading, text: Bytes, length: int, max_line_bytes: int) -> None:
        self._text, self._max_line_bytes = text, max_line_bytes
        self._library = kernel = reading.library
        line_count = int(np.count_nonzero(text[:length] == 10))
        self._starts, owners = np.empty(line_count + 1, np.uint64), np.empty(line_count, np.uint32)
        fields = byref(reading.fields)
        count = kernel.index_lines(fields, length, address(self._starts), address(owners), line_count)
        if count == -1:
            raise TooManyQueriesError
        if count != line_count:
            raise RuntimeError("the kernel rejected the text to index")
        owner_count = max(1, reading.fields.queries.count)
        offsets, self.order = np.zeros(owner_count + 1, np.uint64), np.empty(line_count, np.uint32)
        kernel.order_lines(address(owners), line_count, address(offsets), owner_count, address(self.order))
        self._copied_lines = c_uint64()

    def readinto(self, view: memoryview, /) -> int:
        """Fill the start of `view` with as many lines as fit, and return the number of bytes."""
        target = np.frombuffer(view, np.uint8)
        byte_count = self._library.gather_lines(
            address(self._text), address(self._starts), address(self.order), len(self.order),
            byref(self._copied_lines), address(target), len(target), self._max_line_bytes,
        )  # fmt: skip
        return int(byte_count)

    @property
    def share_read(self) -> float:
        return 0.5 + 0.5 * self._copied_lines.value / max(1, len(self.order))
