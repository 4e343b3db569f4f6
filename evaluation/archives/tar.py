"""Forward-only reader of untrusted tars, and of their headers.

The standard library parses single headers, but its TarFile is not used to read untrusted files: it follows chained,
sparse, and global headers of any size, in memory and with a call for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from tarfile import BLOCKSIZE, HeaderError, TarInfo
from typing import TYPE_CHECKING

from evaluation.core.files import read_exactly

if TYPE_CHECKING:
    import hashlib

_BLOCK = 1 << 20
_MAX_ZEROS = 1 << 30
#: Maximum size of an extended header, and of its records.
MAX_EXTENDED_BYTES, _MAX_RECORDS = 64 << 10, 64
_RECORD = re.compile(rb"(\d{1,6}) ([^=]{1,256})=")


class DamagedTar(ValueError):
    """Invalid tar data, with a message for the submitter."""


class TarReader:
    """Forward-only reader of a decompressed tar, for headers and members' content."""

    def __init__(self, fill: Callable[[memoryview], int], digest: hashlib._Hash | None = None) -> None:
        self._fill, self._digest, self._position = fill, digest, 0
        self._buffer = bytearray(_BLOCK)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        """Skip forward to a position."""
        if position < self._position:
            raise DamagedTar("a member is read twice")
        for _block in self.blocks(position - self._position):
            pass

    def skip(self, size: int) -> None:
        """Skip the next bytes. Raises DamagedTar if there are fewer."""
        self.seek(self._position + size)

    def blocks(self, size: int) -> Iterator[bytes]:
        """Return an iterator over the next `size` bytes of content. Raises DamagedTar if there are fewer."""
        return read_exactly(self.read, size, _BLOCK, DamagedTar("it is truncated"))

    def drain(self) -> None:
        """Read to the end, where only a bounded number of bytes may follow the last member."""
        end = self._position + _MAX_ZEROS
        while self.read(_BLOCK):
            if self._position > end:
                raise DamagedTar("data follows its end")

    def read(self, size: int) -> bytes:
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


def read_header(read: Callable[[int], bytes]) -> TarInfo | None:
    """Return the next header, or None at the end of a tar, where some programs omit the zeros. Raises DamagedTar."""
    header = read(BLOCKSIZE)
    if header in (b"", bytes(BLOCKSIZE)):
        return None
    if len(header) < BLOCKSIZE:
        raise DamagedTar("the archive is truncated")
    if header[257:262] != b"ustar":
        raise DamagedTar("a header is not in the ustar format")
    try:
        info = TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except HeaderError as error:
        raise DamagedTar(f"a header is damaged: {error}") from error
    if info.size < 0:
        raise DamagedTar("a header has a negative size")
    return info


def read_extended(info: TarInfo, read: Callable[[int], bytes]) -> bytes:
    """Return the content of an extended header. Raises DamagedTar."""
    if info.size > MAX_EXTENDED_BYTES:
        raise DamagedTar(f"an extended header is longer than {MAX_EXTENDED_BYTES >> 10} KiB")
    return read(info.size + -info.size % BLOCKSIZE)[: info.size]


def pax_records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a PAX header. Raises DamagedTar."""
    position = count = 0
    while position < len(content):
        match = _RECORD.match(content, position)
        end = position + int(match[1]) if match else 0
        count += 1
        if match is None or end <= match.end() or content[end - 1 : end] != b"\n" or count > _MAX_RECORDS:
            raise DamagedTar("an extended header is damaged or has too many records")
        yield match[2], content[match.end() : end - 1]
        position = end
