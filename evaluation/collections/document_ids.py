"""Exact sets of document ids that are too large for Python objects: a memory-mapped file for the scoring kernel.

The file has a header of 64 bytes, a hash table with slots of two 64-bit words, and the bytes of long ids. An id of at
most 16 bytes is stored in its slot, so a lookup is one memory access. For a longer id, the slot contains its hash and
its position. Lookups always compare the complete id.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel.layout import Ids, pad_text
from evaluation.kernel.library import are_in_ids, compute_keys, insert_ids

_MAGIC = b"runboard ids 1\n\0"
_HEADER = struct.Struct("<16sQQQ")  # magic, seed, number of ids, number of slots
_HEADER_BYTES = 64
_MAX_SLOT_BYTES = 16
_LONG_ID = 0xFF << 56
_MAX_ID_BYTES = 65_535
#: Number of ids that are packed and inserted at a time.
_BATCH = 65_536
_PADDING = 16

#: Hash seed for tables without their own set of ids. It is random, so that attackers cannot prepare collisions.
PROCESS_SEED = secrets.randbits(64) | 1


class DocumentIds:
    """Immutable set of ids in a memory-mapped file, with `len()`, `in`, and `contain` for many ids at once."""

    def __init__(self, path: Path, seed: int, count: int, table: Ids) -> None:
        self.path, self.seed, self._count, self.table = path, seed, count, table

    @classmethod
    def build(cls, ids: Iterable[str], path: Path | str) -> DocumentIds:
        """Write the set of `ids` to `path`, replacing it atomically, and open it. Streams tens of millions of ids.

        Repeated ids are stored once. Raises ValueError for an id that is empty or longer than 65,535 bytes.
        """
        path = Path(path)
        temporary_files = [
            path.with_name(f"{path.name}.{secrets.token_hex(4)}.{part}") for part in ("keys", "long", "table")
        ]
        try:
            seed = secrets.randbits(64) | 1
            with temporary_files[0].open("w+b") as keys, temporary_files[1].open("w+b") as long_ids:
                count = long_bytes = 0
                iterator = iter(ids)
                while batch := [document_id.encode() for document_id in islice(iterator, _BATCH)]:
                    for document_id in batch:
                        if not 0 < len(document_id) <= _MAX_ID_BYTES:
                            message = f"a document id has {len(document_id)} bytes; 1 to {_MAX_ID_BYTES:,} are allowed"
                            raise ValueError(message)
                    packed, pieces = _pack_ids(*_join_ids(batch), seed, long_bytes)
                    keys.write(packed.tobytes())
                    long_ids.write(pieces)
                    count, long_bytes = count + len(batch), long_bytes + len(pieces)
                _write_table(temporary_files[2], seed, count, keys, long_ids)
            temporary_files[2].replace(path)
        finally:
            for file in temporary_files:
                file.unlink(missing_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> DocumentIds:
        """Open the set stored at `path`. Raises ValueError for a file of another kind."""
        path = Path(path)
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
                raise ValueError(f"{path} is not a set of document ids")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _, seed, count, slots = _HEADER.unpack_from(header)
        words = np.frombuffer(mapped, np.uint64, 2 * slots, _HEADER_BYTES)
        long_ids = np.frombuffer(mapped, np.uint8, offset=_HEADER_BYTES + 16 * slots)
        return cls(path, seed, count, Ids(words, long_ids))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, document_id: object) -> bool:
        return isinstance(document_id, str) and bool(self.contain([document_id])[0])

    def contain(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each id whether it is in the set."""
        text, offsets = _join_ids([document_id.encode() for document_id in ids])
        return are_in_ids(self.table, pad_text(text), offsets, self.seed)


def ids_in_memory(text: bytes, offsets: NDArray[np.int64], seed: int) -> Ids:
    """Return a set of ids in memory; id i is `text[offsets[i]:offsets[i + 1]]`."""
    keys, long_ids = _pack_ids(text, offsets, seed, 0)
    table = Ids(
        np.zeros(2 * _count_slots(len(keys)), np.uint64),
        np.frombuffer(bytearray(long_ids + bytes(_PADDING)), np.uint8),
    )
    insert_ids(table, keys)
    return table


def _join_ids(ids: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    return b"".join(ids), np.cumsum([0, *map(len, ids)], dtype=np.int64)


def _count_slots(count: int) -> int:
    """Return a power of two, such that the ids fill between a third and two thirds of the slots."""
    return int(1 << max(1, (count + count // 2).bit_length()))


def _pack_ids(text: bytes, offsets: NDArray[np.int64], seed: int, long_bytes: int) -> tuple[NDArray[np.uint64], bytes]:
    """Return keys of shape (ids, 3: first word, second word, hash), and the bytes to append to the long ids.

    `long_bytes` is the present length of the long ids.
    """
    keys = compute_keys(pad_text(text), offsets, seed)
    pieces = []
    for number in np.flatnonzero(np.diff(offsets) > _MAX_SLOT_BYTES).tolist():
        piece = text[offsets[number] : offsets[number + 1]]
        keys[number, 1] = _LONG_ID | long_bytes
        pieces += [struct.pack("<H", len(piece)), piece]
        long_bytes += 2 + len(piece)
    return keys, b"".join(pieces)


def _write_table(path: Path, seed: int, count: int, keys: BinaryIO, long_ids: BinaryIO) -> None:
    """Write a set of ids to a file: the header, the hash table of the keys, and the long ids.

    `keys` contains `count` keys of `_pack_ids`, of which repeated ones are stored once. Both inputs are read from the
    start.
    """
    slots = _count_slots(count)
    long_bytes = long_ids.tell()
    size = _HEADER_BYTES + 16 * slots + long_bytes + _PADDING
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with mmap.mmap(file.fileno(), size) as mapped:
            long_ids.seek(0)
            mapped.seek(size - _PADDING - long_bytes)
            while block := long_ids.read(1 << 20):
                mapped.write(block)
            words = np.frombuffer(mapped, np.uint64, 2 * slots, _HEADER_BYTES)
            text = np.frombuffer(mapped, np.uint8, offset=_HEADER_BYTES + 16 * slots)
            distinct_count = 0
            keys.seek(0)
            while batch := keys.read(24 * _BATCH):
                packed = np.frombuffer(bytearray(batch), np.uint64).reshape(-1, 3)
                distinct_count += insert_ids(Ids(words, text), packed)
            del words, text  # The map can be closed only after its arrays are deleted.
            mapped[: _HEADER.size] = _HEADER.pack(_MAGIC, seed, distinct_count, slots)
            mapped.flush()
