"""The compiled functions, loaded once per process. Calls of them release the GIL.

`Judged` are the judgements in the form in which the kernel looks them up among the lines of a query.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_int64, c_uint64, c_void_p, sizeof
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel.building import built_library
from evaluation.kernel.layout import (
    Bytes,
    Ids,
    IdsFields,
    Integers,
    JudgedFields,
    Numbers,
    ReadingFields,
    Words,
    address,
    padded,
)

_READING = POINTER(ReadingFields)
_IDS = POINTER(IdsFields)
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
    """The kernel, compiled if need be. Raises KernelUnavailable."""
    loaded = ctypes.CDLL(str(built_library()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    if loaded.size_of_reading() != sizeof(ReadingFields):
        raise RuntimeError("layout.h and layout.py differ")
    return loaded


def keys_of(text: Bytes, offsets: Integers, seed: int) -> Words:
    """Keys (ids × first word, second word, hash) of the ids `text[offsets[i]:offsets[i + 1]]`; `text` is padded."""
    keys = np.empty((len(offsets) - 1, 3), np.uint64)
    if not library().make_keys(address(text), len(text), address(offsets), len(keys), seed, address(keys)):
        raise ValueError("an id ends behind the text, or before its start")
    return keys


def insert_ids(ids: Ids, keys: Words) -> int:
    """Put ids into a set; those longer than a key have their bytes in `long_ids` already, and the place in the
    second word. Returns how many were new."""
    table = IdsFields.of(ids)
    if not ids.slots.flags.writeable:
        raise ValueError("the set cannot be written to")
    new = int(library().insert_ids(table, address(ids.slots), address(keys), len(keys)))
    if new < 0:
        raise ValueError("the set of ids is full, or damaged")
    return new


def are_in_ids(ids: Ids, text: Bytes, offsets: Integers, seed: int) -> NDArray[np.bool_]:
    """Whether each id `text[offsets[i]:offsets[i + 1]]` is in a set; `text` is padded."""
    found = np.zeros(len(offsets) - 1, np.uint8)
    table = IdsFields.of(ids)
    if not library().find_ids(
        table, address(text), len(text), address(offsets), len(found), seed, address(found)
    ):  # fmt: skip
        raise ValueError("an id ends behind the text, or before its start")
    return found.astype(np.bool_)


@dataclass(frozen=True)
class JudgedTable:
    """The keys of the documents of one Qrels under one hash seed, beside its own arrays."""

    offsets: Integers
    keys: Words
    start: Integers
    text: Bytes
    grades: Numbers

    @classmethod
    def of(
        cls, documents: Bytes, document_offsets: Integers, offsets: Integers, grades: Numbers, seed: int
    ) -> JudgedTable:
        """Hash every judged document; the arrays are those of a Qrels."""
        text = padded(documents.tobytes())
        keys = keys_of(text, document_offsets, seed)
        return cls(offsets, keys, document_offsets, text, grades)


@dataclass(frozen=True)
class Judged:
    """Judgements by query: `row[q]` is the row in the qrels of query number q, or -1. Without a table nothing is
    judged."""

    row: Numbers
    table: JudgedTable | None = None

    def fields(self) -> JudgedFields:
        """The structure, good for as long as this is kept."""
        if self.table is None:
            return JudgedFields()
        table = self.table
        return JudgedFields(
            address(self.row), len(self.row), address(table.offsets), address(table.keys), address(table.start),
            address(table.text), address(table.grades),
        )  # fmt: skip


#: Nothing is judged.
NO_JUDGEMENTS = Judged(np.zeros(0, np.int32))
