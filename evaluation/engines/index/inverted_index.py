"""An inverted index on disk, mapped into memory: terms, postings, lengths and identifiers.

Files of the folder, in numpy's format unless they end in .bin or .json:
`terms.bin`: sorted terms, UTF-8, one behind the other, and `terms_offsets`: where each starts; `offsets`: the
postings of term t are [offsets[t]:offsets[t + 1]] of `documents` (numbers in the corpus's order) and
`frequencies`; `lengths` (fields × documents): encoded as in `lengths.py`; identifiers as in `ordered_ids.py`;
`statistics.json`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.core.strings import Strings, mapped
from evaluation.engines.index.ordered_ids import OrderedIds

#: How many terms' places are remembered; a lookup takes a few microseconds, a remembered one a tenth.
_TERMS_REMEMBERED = 100_000


class InvertedIndex:
    """An index opened for searching. Arrays are mapped copy-on-write, so that nothing can change the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        statistics = json.loads((folder / "statistics.json").read_text("utf-8"))
        self.document_count: int = statistics["documents"]
        #: By field: how many documents have a token in it, and how many tokens they have together.
        self.documents_with_field: list[int] = statistics["documents_with_field"]
        self.tokens: list[int] = statistics["tokens"]
        self.offsets: NDArray[np.int64] = mapped(folder / "offsets.npy")
        self.documents: NDArray[np.uint32] = mapped(folder / "documents.npy")
        self.frequencies: NDArray[np.uint16] = mapped(folder / "frequencies.npy")
        self.lengths: NDArray[np.uint8] = mapped(folder / "lengths.npy")
        self._terms = Strings(folder, "terms")
        self._ids = OrderedIds(folder)
        self.ranks = self._ids.ranks
        self._places: dict[str, int] = {}

    @property
    def fields(self) -> int:
        """How many fields are indexed apart."""
        return len(self.tokens)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def place(self, term: str) -> int:
        """The number of a term (with its field's mark), -1 if no document has it."""
        place = self._places.get(term)
        if place is None:
            key = term.encode("utf-8", "replace")
            place = bisect_left(self._terms, key)
            if place == len(self._terms) or self._terms[place] != key:
                place = -1
            if len(self._places) >= _TERMS_REMEMBERED:
                self._places.clear()
            self._places[term] = place
        return place

    def terms(self) -> Iterator[str]:
        """All terms (with their fields' marks) in the order of their numbers."""
        return (str(term, "utf-8") for term in self._terms)

    def identifiers(self, ranks: NDArray[np.uint32]) -> list[str]:
        """The identifiers at these places of the descending order."""
        return self._ids.at(ranks)
