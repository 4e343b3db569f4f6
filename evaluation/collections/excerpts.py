"""Titles and excerpts of a corpus's documents by id, in a memory-mapped file for pages.

To read one document of a compressed corpus, all of it must be decompressed. Excerpts are therefore extracted once and
written in blocks that can be decompressed separately. The file consists of a header of 64 bytes, the blocks (zstd, with
lines of `[id, title, excerpt]` as JSON), and three arrays: the start of each block (and the end of the last one), the
64-bit hashes of all ids in ascending order, and the block of each of these. Blocks contain the ids, so lookups do not
depend on hashes alone.
"""

import mmap
import re
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

#: Maximum number of characters in an excerpt.
EXCERPT_CHARACTERS = 400

_MAGIC = b"runboard texts1\n"
_HEADER = struct.Struct("<16sQQQ")  # magic, documents, blocks, offset of the arrays
_HEADER_BYTES = 64
#: Size before compression at which a block is closed: about 60 documents.
_BLOCK_BYTES = 32 * 1024


class Excerpt(NamedTuple):
    """Title and first characters of a document; `cut` if its text is longer."""

    title: str
    text: str
    cut: bool


def write_document_texts(corpus: Path, target: Path) -> None:
    """Write the excerpts of a `corpus.jsonl` (or `.gz`) to `target`, using 12 bytes of memory per document.

    Raises InvalidContent if the corpus cannot be read.
    """
    hashes, block_numbers, starts = array("Q"), array("I"), array("Q", [_HEADER_BYTES])
    compress = zstandard.ZstdCompressor(level=3).compress
    with target.open("wb") as output:
        output.write(bytes(_HEADER_BYTES))
        block: list[bytes] = []
        length = 0
        for document in read_corpus(corpus):
            text = " ".join(document.text[: 2 * EXCERPT_CHARACTERS].split())
            is_cut = len(text) > EXCERPT_CHARACTERS or len(document.text) > 2 * EXCERPT_CHARACTERS
            line = orjson.dumps([document.id, document.title, text[:EXCERPT_CHARACTERS].rstrip(), is_cut])
            hashes.append(_hash(document.id))
            block_numbers.append(len(starts) - 1)
            block.append(line)
            length += len(line)
            if length >= _BLOCK_BYTES:
                starts.append(starts[-1] + output.write(compress(b"\n".join(block))))
                block, length = [], 0
        if block:
            starts.append(starts[-1] + output.write(compress(b"\n".join(block))))
        keys = np.array(hashes, np.uint64)
        order = np.argsort(keys, kind="stable")
        padding = -starts[-1] % 8
        output.write(bytes(padding) + starts.tobytes())
        output.write(keys[order].tobytes())
        output.write(np.array(block_numbers, np.uint32)[order].tobytes())
        output.seek(0)
        output.write(_HEADER.pack(_MAGIC, len(hashes), len(starts) - 1, starts[-1] + padding))


def _hash(document_id: str) -> int:
    return int.from_bytes(blake2b(document_id.encode(), digest_size=8).digest(), "little")


class DocumentTexts:
    """Reader of a file written by `write_document_texts`. Raises ValueError for a file of another kind."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, count, blocks, arrays = _HEADER.unpack_from(self._map)
        if magic != _MAGIC:
            raise ValueError(f"{path} is not a file of document excerpts")
        self._starts = np.frombuffer(self._map, np.uint64, blocks + 1, arrays)
        self._hashes = np.frombuffer(self._map, np.uint64, count, arrays + 8 * (blocks + 1))
        self._places = np.frombuffer(self._map, np.uint32, count, arrays + 8 * (blocks + 1 + count))

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, ids: Iterable[str]) -> dict[str, Excerpt]:
        """Return the excerpts of the given ids that are in the corpus, decompressing each block once."""
        requested_ids = set(ids)
        excerpts: dict[str, Excerpt] = {}
        for block in sorted({block for name in requested_ids for block in self._find_blocks(name)}):
            start, end = self._starts[block : block + 2].tolist()
            for line in zstandard.ZstdDecompressor().decompress(self._map[start:end]).split(b"\n"):
                document_id, title, text, is_cut = orjson.loads(line)
                if document_id in requested_ids:
                    excerpts[document_id] = Excerpt(title, re.sub(r" \S{1,30}$", "", text) if is_cut else text, is_cut)
        return excerpts

    def _find_blocks(self, document_id: str) -> list[int]:
        """Return the blocks with a document of this id's hash: a single one, unless several ids have the same hash."""
        key = np.uint64(_hash(document_id))
        first, last = np.searchsorted(self._hashes, key, "left"), np.searchsorted(self._hashes, key, "right")
        return [int(block) for block in self._places[first:last]]
