"""The document ids of an index, in the order that breaks ties between equal scores.

Files: `ids.bin`, `ids_offsets.npy` (see `strings`): ids in descending byte order; `ranks.npy`: for each document, in
the corpus's order, its place in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from evaluation.core.strings import Strings, StringsWriter, map_array

#: Up to this many documents, ids are held in memory (some 70 bytes each) once they are asked for.
_HELD = 1_000_000


def write_ordered_ids(folder: Path, ids: Sequence[str]) -> None:
    """Write the ids of all documents, given in the corpus's order. Raises InvalidContent where one is there twice."""
    by_id = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
    ranks = np.empty(len(ids), dtype=np.uint32)
    ranks[np.array(by_id, dtype=np.uint32)] = np.arange(len(ids), dtype=np.uint32)
    np.save(folder / "ranks.npy", ranks)
    with StringsWriter(folder, "ids") as writer:
        for document in by_id:
            writer.write(ids[document])
    count = sum(ids[first] == ids[second] for first, second in pairwise(by_id))
    if count:  # a run could not tell the documents apart
        raise InvalidContent.of(
            Problem(
                severity="error",
                code="duplicate_id",
                count=count,
                message=f"the corpus uses {count:,} document identifiers again",
                hint="Give every document an `_id` of its own.",
            )
        )


class OrderedIds:
    """What `write_ordered_ids` wrote. `ranks[d]` is the place of document d in the descending order of ids."""

    def __init__(self, folder: Path) -> None:
        self.ranks: NDArray[np.uint32] = map_array(folder / "ranks.npy")
        self._ids = Strings(folder, "ids")

    def __len__(self) -> int:
        return len(self._ids)

    def at(self, ranks: NDArray[np.uint32]) -> list[str]:
        """The ids at these places of the descending order."""
        if len(self._ids) <= _HELD:
            return list(map(self._held.__getitem__, ranks.tolist()))
        return [str(self._ids[rank], "utf-8") for rank in ranks.tolist()]

    def of(self, documents: NDArray[np.integer]) -> list[str]:
        """The ids of documents by their numbers in the corpus's order."""
        return self.at(self.ranks[documents])

    def find(self, identifier: str) -> int:
        """The number of the document with this id, -1 where there is none."""
        if len(self._ids) <= _HELD:
            return self._numbers_held.get(identifier, -1)
        wanted = identifier.encode("utf-8", "replace")
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high) // 2
            if self._ids[middle] > wanted:
                low = middle + 1
            else:
                high = middle
        return int(self._documents[low]) if low < len(self._ids) and self._ids[low] == wanted else -1

    @cached_property
    def _documents(self) -> NDArray[np.intp]:
        """The document at each place of the descending order."""
        return np.argsort(self.ranks)

    @cached_property
    def _held(self) -> list[str]:
        return [str(identifier, "utf-8") for identifier in self._ids]

    @cached_property
    def _numbers_held(self) -> dict[str, int]:
        return dict(zip(self._held, self._documents.tolist(), strict=True))
