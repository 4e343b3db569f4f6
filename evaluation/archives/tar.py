"""Forward-only reader of tars.

It refuses large headers, because parsers of tars read headers of any size into memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib

_BLOCK = 1 << 20
_MAX_HEADER = 64 << 10
#: Long digit sequences make tarfile's parsing of extended headers quadratic (CVE-2024-6232).
_MANY_DIGITS = re.compile(rb"[0-9]{256}")
_MAX_ZEROS = 1 << 30


class DamagedTar(ValueError):
    """Invalid tar data, with a message for the submitter."""


class TarReader:
    """Forward-only reader of a decompressed tar, for headers (through tarfile) and members' content."""

    def __init__(self, fill: Callable[[memoryview], int], digest: hashlib._Hash | None = None) -> None:
        self._fill, self._digest, self._position = fill, digest, 0
        self._buffer = bytearray(_BLOCK)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        """Skip forward to a position."""
        if position < self._position:
            raise DamagedTar("a header has a negative size")
        while self._position < position:
            if not self._read(min(position - self._position, _BLOCK)):
                raise DamagedTar("it is truncated")

    def skip(self, size: int) -> None:
        """Skip the next bytes. Raises DamagedTar if there are fewer."""
        self.seek(self._position + size)

    def read(self, size: int) -> bytes:
        """Return the next bytes of a header, or fewer at the end."""
        if size > _MAX_HEADER:
            raise DamagedTar("a header is too long")
        content = self._read(size)
        if _MANY_DIGITS.search(content):
            raise DamagedTar("a header is damaged")
        return content

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes of content. Raises DamagedTar if there are fewer."""
        while size:
            block = self._read(min(size, _BLOCK))
            if not block:
                raise DamagedTar("it is truncated")
            size -= len(block)
            yield block

    def drain(self) -> None:
        """Read to the end, where only a bounded number of bytes may follow the last member."""
        end = self._position + _MAX_ZEROS
        while self._read(_BLOCK):
            if self._position > end:
                raise DamagedTar("data follows its end")

    def _read(self, size: int) -> bytes:
        """Return the next bytes, at most one block, or fewer at the end."""
        with memoryview(self._buffer) as view:
            count = 0
            while count < size and (filled := self._fill(view[count:size])):
                count += filled
            content = bytes(view[:count])
        self._position += count
        if self._digest is not None:
            self._digest.update(content)
        return content
