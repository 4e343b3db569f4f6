"""A corpus in blocks: one gzip file that every reader takes, and that ours reads from any document on.

Whole lines, about `BLOCK_BYTES` of them, are a gzip member each, and members one behind the other are a gzip file (RFC
1952, §2.2). Members without content follow, whose extra fields (§2.3.1.1) hold the table of the blocks: where each
begins in the file, and how many documents are before it. The last one says where the table begins, and has one length,
so the table is found from the end of the file, in three reads however many blocks there are.
"""

import os
import struct
import zlib
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from isal import igzip
from numpy.typing import NDArray

from evaluation.core.files import sha256_of

#: Bytes of text in a block, or a little more: so much is read at most to come to a document.
BLOCK_BYTES = 1 << 20
#: As little as is useful: texts are read far more often than they are stored.
COMPRESSION_LEVEL = 2
_TABLE, _END = b"RT", b"RE"
#: Bytes of an extra field's content beside its own head, a multiple of a row's.
_LARGEST_FIELD = 65_520
_HEADER = struct.Struct("<4BI2BH2sH")
#: An empty deflate block, the checksum of nothing and its length.
_NOTHING = b"\x03\x00" + bytes(8)
#: Where the table begins, how long it is, and its CRC-32, since extra fields are in no checksum of gzip.
_ENDING = struct.Struct("<QQI")
_ENDING_BYTES = _HEADER.size + _ENDING.size + len(_NOTHING)
_ROW_BYTES = 16
#: CRC-32 and length of a member's text, its last bytes (RFC 1952, §2.3.1).
_TRAILER_BYTES = 8


class Place(NamedTuple):
    """Where reading begins: an offset in the file, and the number of the first document there."""

    offset: int
    document: int


class Blocks(NamedTuple):
    """The table of a file: offset and number of the first document of each block (int64), and of the file's end."""

    rows: NDArray[np.int64]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self.rows[-1, 1])

    def place_of(self, document: int) -> Place:
        """Return the block that the document is in; the file's end for one that there is not."""
        row = int(np.searchsorted(self.rows[:, 1], document, side="right")) - 1
        return Place(*self.rows[row].tolist())


def write_blocks(lines: BinaryIO, target: Path) -> None:
    """Write the lines of a corpus to a file in blocks. The same lines give the same bytes."""
    rows, offset, documents = [(0, 0)], 0, 0
    with target.open("wb") as file:
        while block := lines.readlines(BLOCK_BYTES):
            offset += file.write(igzip.compress(b"".join(block), COMPRESSION_LEVEL, mtime=0))
            documents += sum(not line.isspace() for line in block)
            rows.append((offset, documents))
        table = np.array(rows, "<i8").tobytes()
        for start in range(0, len(table), _LARGEST_FIELD):
            file.write(_empty_member(_TABLE, table[start : start + _LARGEST_FIELD]))
        file.write(_empty_member(_END, _ENDING.pack(offset, len(table), zlib.crc32(table))))


def _empty_member(name: bytes, content: bytes) -> bytes:
    header = _HEADER.pack(31, 139, 8, 4, 0, 0, 255, len(content) + 4, name, len(content))
    return header + content + _NOTHING


def read_table(path: Path) -> Blocks | None:
    """Return the table of a file in blocks; None for any other file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _ENDING_BYTES, 0))
        ending = file.read()
        if len(ending) < _ENDING_BYTES:
            return None
        start, length, checksum = _ENDING.unpack_from(ending, _HEADER.size)
        if ending != _empty_member(_END, _ENDING.pack(start, length, checksum)) or not start + length < size:
            return None
        file.seek(start)
        table = _read_fields(file.read(size - start - _ENDING_BYTES))
    if len(table) != length or length % _ROW_BYTES or zlib.crc32(table) != checksum:
        return None
    return Blocks(np.frombuffer(table, "<i8").reshape(-1, 2))


def fingerprint_of(path: Path) -> str:
    """What tells a corpus from another, as 64 hexadecimal digits, without reading it where it is in blocks.

    Of a file in blocks it is the sha256 of the table and of the CRC-32 and length that each block has of its text; of
    any other file that of its bytes. It is no proof against somebody who looks for two texts of one CRC-32.
    """
    if (table := read_table(path)) is None:
        return sha256_of(path)
    found = sha256(table.rows.tobytes())
    with path.open("rb", buffering=0) as file:
        for end in table.rows[1:, 0].tolist():
            found.update(os.pread(file.fileno(), _TRAILER_BYTES, end - _TRAILER_BYTES))
    return found.hexdigest()


def _read_fields(members: bytes) -> bytes:
    """Return the contents of the extra fields of members without content, joined; as far as they are such members."""
    found, place = b"", 0
    while place + _HEADER.size < len(members):
        length = _HEADER.unpack_from(members, place)[-1]
        content = members[place + _HEADER.size : place + _HEADER.size + length]
        member = _empty_member(_TABLE, content)
        if not members.startswith(member, place):
            break
        found += content
        place += len(member)
    return found
