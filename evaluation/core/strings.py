"""Many strings in one file, mapped into memory: what grows with the corpus stays on disk.

`NAME.bin` holds the strings as UTF-8, one behind the other; `NAME_offsets.npy` where each starts, and where the last
one ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StringsWriter:
    """Writes strings one by one; a context manager, which writes the offsets at its end."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._offsets = array("q", [0])
        self._end = 0

    def __enter__(self) -> StringsWriter:
        self._file = (self._folder / f"{self._name}.bin").open("wb")
        self.write_bytes: Callable[[bytes], int] = self._file.write
        return self

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def write(self, text: str) -> None:
        """Write the next string."""
        self.write_encoded(text.encode())

    def write_encoded(self, text: bytes) -> None:
        """The same for one in UTF-8."""
        self._end += self.write_bytes(text)
        self._offsets.append(self._end)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        np.save(self._folder / f"{self._name}_offsets.npy", np.frombuffer(self._offsets, dtype=np.int64))


class Strings:
    """What a StringsWriter wrote, each string read where it lies."""

    def __init__(self, folder: Path, name: str) -> None:
        self._offsets = map_array(folder / f"{name}_offsets.npy").data
        text = folder / f"{name}.bin"
        self._text = np.memmap(text, np.uint8, "c").data if text.stat().st_size else memoryview(b"")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, place: int) -> bytes:
        return bytes(self._text[self._offsets[place] : self._offsets[place + 1]])

    @property
    def longest(self) -> int:
        """Bytes of the longest string, 0 where there are none."""
        return int(np.diff(self._offsets).max(initial=0))

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))


def map_array(path: Path) -> NDArray[Any]:
    """An array in numpy's format, mapped copy-on-write, so that nothing can change the file."""
    return np.asarray(np.load(path, mmap_mode="c"))
