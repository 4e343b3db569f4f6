"""Judgements as the kernel looks them up among the lines of a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.kernel.layout import Bytes, Integers, JudgedFields, Numbers, Words, address, padded
from evaluation.kernel.library import keys_of


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


def no_judgements() -> Judged:
    """Nothing is judged."""
    return Judged(np.zeros(0, np.int32))
