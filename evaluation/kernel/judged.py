"""Judgements as the kernel looks them up: per query a small hash table, which stays in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel.layout import JUDGED_SIZE, Words, address, padded
from evaluation.kernel.tables import insert_judgements, keys_of


@dataclass(frozen=True)
class JudgedTable:
    """One table per judged query, at `addresses[row]`, of `masks[row]` + 1 slots; ids' bytes are at `text`."""

    addresses: list[int]
    masks: list[int]
    text: int
    kept: tuple[NDArray[Any], ...]

    @classmethod
    def of(
        cls, documents: bytes, document_offsets: Words, offsets: Words, grades: NDArray[np.int32], seed: int
    ) -> JudgedTable:
        """Tables at most half full; the arguments are as in `Qrels`."""
        text, wide_grades = padded(documents), grades.astype(np.int64)
        keys = np.empty((len(grades), 3), np.int64)
        keys_of(address(text), address(document_offsets), len(grades), seed, address(keys))
        counts = np.diff(offsets)
        sizes = np.array([1 << (2 * max(count, 1) - 1).bit_length() for count in counts.tolist()], np.int64)
        slots = np.zeros((int(sizes.sum()), JUDGED_SIZE), np.int64)
        starts = address(slots) + 8 * JUDGED_SIZE * (np.cumsum(sizes) - sizes)
        masks = sizes - 1
        at_keys, at_offsets, at_grades = address(keys), address(document_offsets), address(wide_grades)
        for first, count, start, mask in zip(
            offsets.tolist(), counts.tolist(), starts.tolist(), masks.tolist(), strict=False
        ):
            insert_judgements(
                at_keys + 24 * first, count, at_offsets + 8 * first, at_grades + 8 * first, start, mask
            )
        return cls(starts.tolist(), masks.tolist(), address(text), (slots, text))
