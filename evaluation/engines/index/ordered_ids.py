"""The document ids of an index, in the order that breaks ties between equal scores.

Files: `ids.bin`, `ids_offsets.npy` (see `strings`): ids in descending byte order; `ranks.npy`: for each document, in
the corpus's order, its place in that order.
"""

from collections.abc import Iterable
from functools import cached_property
from operator import eq
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.core.problems import InvalidContent, Problem
from evaluation.core.strings import Strings, StringsWriter, map_array
from evaluation.core.writing import new_map
from evaluation.engines.base import Ranks

#: Up to this many documents, ids are held in memory (some 70 bytes each) once they are asked for.
_HELD = 1_000_000
#: Files of ids in the corpus's order, until they are sorted; ids that are looked at at a time.
_GIVEN, _AT_ONCE = "given", 65_536


class OrderedIdsWriter:
    """Takes the ids of all documents one by one, in the corpus's order; `close` orders them.

    Python holds none of them: they lie in files while they are sorted, as wide as the longest, beside 20 bytes each in
    memory (their order, their ranks, where each ends).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given = StringsWriter(folder, _GIVEN).__enter__()

    def __len__(self) -> int:
        return len(self._given)

    def write(self, identifier: str) -> None:
        """Take the next document's id."""
        self._given.write(identifier)

    def close(self) -> None:
        """Write the files. Raises InvalidContent where an id is there twice."""
        self._given.__exit__()
        rows = self._fixed_width()
        order = np.argsort(rows, kind="stable")[::-1]
        ranks = np.empty(len(order), dtype=np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32)
        np.save(self._folder / "ranks.npy", ranks)
        count, last = 0, None
        with StringsWriter(self._folder, "ids") as writer:
            for start in range(0, len(order), _AT_ONCE):
                some = rows[order[start : start + _AT_ONCE]].tolist()
                count += (some[0] == last) + sum(map(eq, some, some[1:]))
                last = some[-1]
                for identifier in some:
                    writer.write_encoded(identifier)
        del rows
        for path in self._folder.glob(f"{_GIVEN}*"):
            path.unlink()
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

    def _fixed_width(self) -> NDArray[np.bytes_]:
        """Return the ids as rows of one width in a mapped file, filled up with NUL, which no id has."""
        given = Strings(self._folder, _GIVEN)
        if not len(given):
            return np.zeros(0, "S1")
        width = f"S{max(given.longest, 1)}"
        rows = new_map(self._folder / f"{_GIVEN}_rows.npy", width, (len(given),))
        for start in range(0, len(given), _AT_ONCE):
            some = [given[place] for place in range(start, min(start + _AT_ONCE, len(given)))]
            rows[start : start + _AT_ONCE] = np.array(some, width)
        return np.asarray(rows)


def write_ordered_ids(folder: Path, ids: Iterable[str]) -> int:
    """Write the ids of all documents, given in the corpus's order; returns how many. Raises as OrderedIdsWriter."""
    writer = OrderedIdsWriter(folder)
    for identifier in ids:
        writer.write(identifier)
    writer.close()
    return len(writer)


class OrderedIds:
    """What `write_ordered_ids` wrote. `ranks[d]` is the place of document d in the descending order of ids."""

    def __init__(self, folder: Path) -> None:
        self.ranks: Ranks = map_array(folder / "ranks.npy")
        self._ids = Strings(folder, "ids")

    def __len__(self) -> int:
        return len(self._ids)

    def at(self, ranks: Ranks) -> list[str]:
        """Return the ids at these places of the descending order."""
        if len(self._ids) <= _HELD:
            return list(map(self._held.__getitem__, ranks.tolist()))
        return [str(self._ids[rank], "utf-8") for rank in ranks.tolist()]

    def of(self, documents: NDArray[np.integer]) -> list[str]:
        """Return the ids of documents by their numbers in the corpus's order."""
        return self.at(self.ranks[documents])

    def find(self, identifier: str) -> int:
        """Return the number of the document with this id, -1 where there is none."""
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
