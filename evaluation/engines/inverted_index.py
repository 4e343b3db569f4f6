"""An inverted index on disk, mapped into memory: terms, postings, lengths and identifiers.

Files of the folder, in numpy's format unless they end in .bin or .json:
`terms.bin`: sorted terms, UTF-8, one behind the other, and `terms_offsets`: where each starts; `offsets`: the
postings of term t are [offsets[t]:offsets[t + 1]] of `documents` (numbers in the corpus's order) and
`frequencies`; `lengths` (fields × documents): encoded as in `lengths.py`; `ids.bin`, `ids_offsets`: identifiers
in descending byte order; `ranks`: the place of each document in that order; `statistics.json`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How many terms' places are remembered; a lookup takes a few microseconds, a remembered one a tenth.
_TERMS_REMEMBERED = 100_000
#: Up to this many documents, identifiers are held in memory (some 70 bytes each) once they are asked for.
_IDENTIFIERS_HELD = 1_000_000


class InvertedIndex:
    """An index opened for searching. Arrays are mapped copy-on-write, so that nothing can change the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        statistics = json.loads((folder / "statistics.json").read_text("utf-8"))
        self.document_count: int = statistics["documents"]
        #: By field: how many documents have a token in it, and how many tokens they have together.
        self.documents_with_field: list[int] = statistics["documents_with_field"]
        self.tokens: list[int] = statistics["tokens"]
        self.offsets: NDArray[np.int64] = _mapped(folder / "offsets.npy")
        self.documents: NDArray[np.uint32] = _mapped(folder / "documents.npy")
        self.frequencies: NDArray[np.uint16] = _mapped(folder / "frequencies.npy")
        self.lengths: NDArray[np.uint8] = _mapped(folder / "lengths.npy")
        self.ranks: NDArray[np.uint32] = _mapped(folder / "ranks.npy")
        self._terms = _Strings(folder, "terms")
        self._ids = _Strings(folder, "ids")
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

    def identifiers(self, ranks: NDArray[np.uint32]) -> list[str]:
        """The identifiers at these places of the descending order."""
        if self.document_count <= _IDENTIFIERS_HELD:
            return list(map(self._identifiers_held.__getitem__, ranks.tolist()))
        return [str(self._ids[rank], "utf-8") for rank in ranks.tolist()]

    @cached_property
    def _identifiers_held(self) -> list[str]:
        return [str(identifier, "utf-8") for identifier in self._ids]


class _Strings:
    """Strings of one file, each read where it lies."""

    def __init__(self, folder: Path, name: str) -> None:
        self._offsets = _mapped(folder / f"{name}_offsets.npy").data
        text = folder / f"{name}.bin"
        self._text = np.memmap(text, np.uint8, "c").data if text.stat().st_size else memoryview(b"")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, place: int) -> bytes:
        return bytes(self._text[self._offsets[place] : self._offsets[place + 1]])

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="c"))
