"""String arrays on disk, mapped into memory, so that memory use does not grow with the corpus.

`NAME.bin` contains the concatenated strings in UTF-8, and `NAME_offsets.npy` the start of each string, followed by the
end of the last one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StringsWriter:
    """Context manager that writes strings one by one, and their offsets on exit."""

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
        self.write_encoded(text.encode())

    def write_encoded(self, text: bytes) -> None:
        self._end += self.write_bytes(text)
        self._offsets.append(self._end)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        np.save(self._folder / f"{self._name}_offsets.npy", np.frombuffer(self._offsets, dtype=np.int64))


class Strings:
    """Read-only sequence of the strings of a StringsWriter, as bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._offsets = map_array(folder / f"{name}_offsets.npy").data
        text = folder / f"{name}.bin"
        self._text = np.memmap(text, np.uint8, "c").data if text.stat().st_size else memoryview(b"")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._text[self._offsets[index] : self._offsets[index + 1]])

    @property
    def max_length(self) -> int:
        """Length of the longest string in bytes, 0 without strings."""
        return int(np.diff(self._offsets).max(initial=0))

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))


def map_array(path: Path) -> NDArray[Any]:
    """Memory-map a .npy file copy-on-write, so that the file cannot be changed."""
    return np.asarray(np.load(path, mmap_mode="c"))
