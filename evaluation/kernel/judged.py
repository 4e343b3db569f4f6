"""Judgements as the kernel looks them up: per query a small hash table, which stays in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.kernel.layout import Ids, Integers, Judged, Numbers, Words, padded
from evaluation.kernel.tables import insert_judgements, keys_of
from evaluation.kernel.text import Bytes
from evaluation.qrels import Qrels


@dataclass(frozen=True)
class JudgedTable:
    """The lookup tables of one Qrels under one hash seed."""

    slot_offset: Integers
    slots: Numbers
    first: Words
    second: Words
    start: Integers
    text: Bytes
    grade: Numbers

    @classmethod
    def of(cls, qrels: Qrels, seed: int) -> JudgedTable:
        """Tables at most half full, each a power of two long."""
        keys = np.empty((qrels.number_of_judgements, 3), np.uint64)
        text = padded(qrels.documents.tobytes())
        keys_of(text, qrels.document_offsets, np.uint64(seed), keys)
        counts = np.diff(qrels.offsets)
        sizes = (2 ** np.ceil(np.log2(np.maximum(counts, 1) * 2))).astype(np.int64)
        slot_offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        slots = np.zeros(int(slot_offset[-1]), np.int32)
        insert_judgements(slots, slot_offset, qrels.offsets, keys)
        return cls(
            slot_offset, slots, keys[:, 0].copy(), keys[:, 1].copy(), qrels.document_offsets, text, qrels.grades
        )

    def for_queries(self, row: Numbers) -> Judged:
        """The kernel's view; `row[q]` is the row in the qrels of query number q, or -1."""
        return Judged(
            row, self.slot_offset, self.slots, self.first, self.second, self.start, self.text, self.grade
        )


def no_judgements() -> Judged:
    """The kernel's view where nothing is judged."""
    words, numbers, integers = np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(1, np.int64)
    return Judged(numbers, integers, numbers, words, words, integers, np.zeros(1, np.uint8), numbers)


def no_ids() -> Ids:
    """The empty set of ids."""
    return Ids(np.zeros(2, np.uint64), np.zeros(1, np.uint8))
