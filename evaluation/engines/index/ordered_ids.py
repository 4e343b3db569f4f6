"""Document ids of an index, in the order that breaks ties between equal scores.

Files: `ids.bin` and `ids_offsets.npy` (see `core.strings`) contain the ids in descending byte order; `ranks.npy`
contains the position of each document, in corpus order, within that order.
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

#: Limits for caching in memory: size of the array of ids in bytes, and number of ids in the dictionary that finds them.
_MAX_CACHED_BYTES, _MAX_CACHED_NUMBERS = 128 << 20, 1_000_000
#: Name of the temporary files of ids in corpus order, and number of ids per batch.
_UNSORTED, _BATCH_SIZE = "given", 65_536


class OrderedIdsWriter:
    """Collects the ids of all documents in corpus order, and sorts them in `close`.

    Ids are sorted in memory-mapped rows as wide as the longest one. Memory use is 20 bytes per id, for order, ranks,
    and ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer = StringsWriter(folder, _UNSORTED).__enter__()

    def __len__(self) -> int:
        return len(self._writer)

    def write(self, identifier: str) -> None:
        self._writer.write(identifier)

    def close(self) -> None:
        """Sort the ids, write them with their ranks, and remove the temporary files.

        Raises InvalidContent for duplicate ids.
        """
        self._writer.__exit__()
        rows = self._map_fixed_width()
        order = np.argsort(rows, kind="stable")[::-1]
        ranks = np.empty(len(order), dtype=np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32)
        np.save(self._folder / "ranks.npy", ranks)
        count, last_id = 0, None
        with StringsWriter(self._folder, "ids") as writer:
            for start in range(0, len(order), _BATCH_SIZE):
                batch = rows[order[start : start + _BATCH_SIZE]].tolist()
                count += (batch[0] == last_id) + sum(map(eq, batch, batch[1:]))
                last_id = batch[-1]
                for identifier in batch:
                    writer.write_encoded(identifier)
        for path in self._folder.glob(f"{_UNSORTED}*"):
            path.unlink()
        if count:  # documents in runs would be ambiguous
            raise InvalidContent.build(
                Problem(
                    severity="error",
                    code="duplicate_id",
                    count=count,
                    message=f"the corpus contains {count:,} duplicate document identifiers",
                    hint="Give every document a unique `_id`.",
                )
            )

    def _map_fixed_width(self) -> NDArray[np.bytes_]:
        """Return the ids as memory-mapped rows of equal width, padded with NUL, which no id contains."""
        ids = Strings(self._folder, _UNSORTED)
        if not len(ids):
            return np.zeros(0, "S1")
        width = f"S{max(ids.max_length, 1)}"
        rows = new_map(self._folder / f"{_UNSORTED}_rows.npy", width, (len(ids),))
        for start in range(0, len(ids), _BATCH_SIZE):
            batch = [ids[index] for index in range(start, min(start + _BATCH_SIZE, len(ids)))]
            rows[start : start + _BATCH_SIZE] = np.array(batch, width)
        return np.asarray(rows)


def write_ordered_ids(folder: Path, ids: Iterable[str]) -> int:
    """Write the ids of all documents in corpus order, and return their number. Raises InvalidContent for duplicates."""
    writer = OrderedIdsWriter(folder)
    for identifier in ids:
        writer.write(identifier)
    writer.close()
    return len(writer)


class OrderedIds:
    """The ids that `write_ordered_ids` wrote.

    `ranks[d]` is the position of document d in the descending order of ids.
    """

    def __init__(self, folder: Path) -> None:
        self.ranks: Ranks = map_array(folder / "ranks.npy")
        self._ids = Strings(folder, "ids")
        self._is_cached = 4 * len(self._ids) * self._ids.max_length <= _MAX_CACHED_BYTES  # four bytes per character

    def __len__(self) -> int:
        return len(self._ids)

    def get_ids_at(self, ranks: Ranks) -> list[str]:
        """Return the ids at the given ranks."""
        if self._is_cached:
            return list(self._cached_ids[ranks].tolist())
        return [str(self._ids[rank], "utf-8") for rank in ranks.tolist()]

    def get_ids(self, documents: NDArray[np.integer]) -> list[str]:
        """Return the ids of documents, given their numbers in corpus order."""
        return self.get_ids_at(self.ranks[documents])

    def find(self, identifier: str) -> int:
        """Return the number of the document with this id, or -1 if there is none."""
        if self._is_cached and len(self._ids) <= _MAX_CACHED_NUMBERS:
            return self._cached_numbers.get(identifier, -1)
        key = identifier.encode("utf-8", "replace")
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high) // 2
            if self._ids[middle] > key:
                low = middle + 1
            else:
                high = middle
        return int(self._documents[low]) if low < len(self._ids) and self._ids[low] == key else -1

    @cached_property
    def _documents(self) -> NDArray[np.intp]:
        return np.argsort(self.ranks)

    @cached_property
    def _cached_ids(self) -> NDArray[np.str_]:
        """The ids in rows of equal width, which are read faster than strings in a list."""
        return np.fromiter((str(name, "utf-8") for name in self._ids), f"U{max(self._ids.max_length, 1)}", len(self))

    @cached_property
    def _cached_numbers(self) -> dict[str, int]:
        return dict(zip(self._cached_ids.tolist(), self._documents.tolist(), strict=True))
