"""Titles and beginnings of a corpus's documents by their ids, in one memory-mapped file: what pages show of a document.

Finding a document in a compressed corpus means reading all of it. So it is read once, and what pages show is written
in blocks of their own that can each be expanded alone. The file is a header of 64 bytes; the blocks (zstd, each some
lines of `[id, title, beginning of the text]` as JSON); then three arrays: where each block starts (and the last one
ends), a 64-bit hash of every id in rising order, and the block that each one is in. The id stands in the block: nothing
is decided by a hash alone.
"""

import mmap
import struct
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import zstandard

from evaluation.collections.beir import read_corpus

#: So many characters of a text are kept.
KEPT_CHARACTERS = 400

_MAGIC = b"runboard texts1\n"
_HEADER = struct.Struct("<16sQQQ")  # magic, documents, blocks, where the arrays begin
_HEADER_BYTES = 64
#: A block is closed when it is so long, in bytes before compression: some 60 documents.
_BLOCK_BYTES = 32 * 1024


class Excerpt(NamedTuple):
    """What is kept of a document; `cut` where its text goes on."""

    title: str
    text: str
    cut: bool


def write_document_texts(corpus: Path, target: Path) -> None:
    """Write the excerpts of a `corpus.jsonl` (or `.gz`) to `target`. Streams: 12 bytes of memory for each document.

    Raises InvalidContent for a corpus that is none.
    """
    hashes, places, starts = array("Q"), array("I"), array("Q", [_HEADER_BYTES])
    compress = zstandard.ZstdCompressor(level=3).compress
    with target.open("wb") as out:
        out.write(bytes(_HEADER_BYTES))
        block: list[bytes] = []
        length = 0
        for document in read_corpus(corpus):
            text = " ".join(document.text[: 2 * KEPT_CHARACTERS].split())
            cut = len(text) > KEPT_CHARACTERS or len(document.text) > 2 * KEPT_CHARACTERS
            line = orjson.dumps([document.id, document.title, text[:KEPT_CHARACTERS].rstrip(), cut])
            hashes.append(_hash(document.id))
            places.append(len(starts) - 1)
            block.append(line)
            length += len(line)
            if length >= _BLOCK_BYTES:
                starts.append(starts[-1] + out.write(compress(b"\n".join(block))))
                block, length = [], 0
        if block:
            starts.append(starts[-1] + out.write(compress(b"\n".join(block))))
        keys = np.array(hashes, np.uint64)
        order = np.argsort(keys, kind="stable")
        padding = -starts[-1] % 8
        out.write(bytes(padding) + starts.tobytes())
        out.write(keys[order].tobytes())
        out.write(np.array(places, np.uint32)[order].tobytes())
        out.seek(0)
        out.write(_HEADER.pack(_MAGIC, len(hashes), len(starts) - 1, starts[-1] + padding))


def _hash(document_id: str) -> int:
    return int.from_bytes(blake2b(document_id.encode(), digest_size=8).digest(), "little")


class DocumentTexts:
    """What `write_document_texts` wrote. Raises ValueError for a file of another kind."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, count, blocks, arrays = _HEADER.unpack_from(self._map)
        if magic != _MAGIC:
            raise ValueError(f"{path} holds no excerpts of documents")
        self._starts = np.frombuffer(self._map, np.uint64, blocks + 1, arrays)
        self._hashes = np.frombuffer(self._map, np.uint64, count, arrays + 8 * (blocks + 1))
        self._places = np.frombuffer(self._map, np.uint32, count, arrays + 8 * (blocks + 1 + count))

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, ids: Iterable[str]) -> dict[str, Excerpt]:
        """Return the excerpts of those of `ids` that the corpus has. Each block that one is in is expanded once."""
        wanted = set(ids)
        found: dict[str, Excerpt] = {}
        for block in sorted({place for name in wanted for place in self._places_of(name)}):
            start, end = self._starts[block : block + 2].tolist()
            for line in zstandard.ZstdDecompressor().decompress(self._map[start:end]).split(b"\n"):
                document_id, title, text, cut = orjson.loads(line)
                if document_id in wanted:
                    found[document_id] = Excerpt(title, text, cut)
        return found

    def _places_of(self, document_id: str) -> list[int]:
        """Return the blocks with a document of this id's hash: one, but for ids that share it."""
        key = np.uint64(_hash(document_id))
        first, last = np.searchsorted(self._hashes, key, "left"), np.searchsorted(self._hashes, key, "right")
        return [int(place) for place in self._places[first:last]]
