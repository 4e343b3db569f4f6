"""Vectors of the tokens of documents on disk, for late interaction: written once, read where they lie.

A shard's folder has `vectors.bin` (vectors × dimension, float32 or float16, one document behind the other in the order
in which they were encoded), `documents.npy` (which document of the shard each of these is), `offsets.npy` (the first
vector of each, and the end), and `vectors.json` (dimension and dtype).

`NearestTokens` finds the documents that own one of the vectors nearest to any vector of a query. faiss keeps the
vectors in inverted lists, in eight bits a dimension. This index only decides which documents get a score: the scores
come from the stored vectors themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure
from evaluation.core.strings import map_array
from evaluation.core.writing import new_map
from evaluation.engines.index.counted import counted_search
from evaluation.engines.index.learning import VECTORS_PER_LIST, lists_for, sample_rows

_FILES = ("vectors.bin", "documents.npy", "offsets.npy")
#: float32 or float16.
Vectors = NDArray[np.floating[Any]]


class TokenWriter:
    """Writes the vectors of a shard's documents as they come; a context manager."""

    def __init__(self, folder: Path, dimension: int, dtype: str) -> None:
        self._folder = folder
        self._dtype = np.dtype(dtype)
        self._dimension = dimension
        self._documents: list[NDArray[np.integer[Any]]] = []
        self._counts: list[NDArray[np.integer[Any]]] = []

    def __enter__(self) -> TokenWriter:
        self._file = (self._folder / _FILES[0]).open("wb")
        return self

    def write(
        self,
        documents: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        vectors: NDArray[np.float32],
    ) -> None:
        """Write the vectors (all together × dimension) of these documents, of which each has so many.

        Raises ModelFailure "not_finite_output" where one is too great for the dtype.
        """
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(vectors, self._dtype)
        if not np.isfinite(stored).all():
            raise ModelFailure(
                "not_finite_output", f"a vector's values are beyond {self._dtype}, which was asked for"
            )
        self._file.write(stored.data)
        self._documents.append(documents)
        self._counts.append(counts)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        none = np.empty(0, np.int64)
        np.save(self._folder / _FILES[1], np.concatenate([none, *self._documents]).astype(np.uint32))
        np.save(self._folder / _FILES[2], np.cumsum(np.concatenate([[0], *self._counts]), dtype=np.int64))
        state = {"dimension": self._dimension, "dtype": self._dtype.name}
        (self._folder / "vectors.json").write_text(json.dumps(state), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Block:
    """Vectors of some documents, those of each together: `counts[i]` belong to the document `documents[i]`."""

    documents: NDArray[np.int64]
    counts: NDArray[np.int64]
    vectors: Vectors


class _Shard:
    """One shard, its documents counted from the first of the whole corpus."""

    def __init__(self, folder: Path, first: int) -> None:
        state = json.loads((folder / "vectors.json").read_text("utf-8"))
        self.first = first
        self.documents = map_array(folder / _FILES[1])
        self.offsets = map_array(folder / _FILES[2])
        shape = (int(self.offsets[-1]), state["dimension"])
        self.vectors: Vectors = np.zeros(shape, state["dtype"])
        if shape[0]:
            self.vectors = np.asarray(np.memmap(folder / _FILES[0], state["dtype"], "c", shape=shape))
        self._places = np.argsort(self.documents)

    def vectors_of(self, document: int) -> Vectors:
        place = self._places[document - self.first]
        found: Vectors = self.vectors[self.offsets[place] : self.offsets[place + 1]]
        return found

    def blocks(self, most: int) -> Iterator[Block]:
        """All documents in the order of the file, about `most` vectors at a time."""
        start = 0
        while start < len(self.documents):
            end = int(np.searchsorted(self.offsets, self.offsets[start] + most, "right")) - 1
            end = min(max(end, start + 1), len(self.documents))
            bounds = self.offsets[start : end + 1]
            yield Block(
                self.documents[start:end].astype(np.int64) + self.first,
                np.diff(bounds),
                self.vectors[bounds[0] : bounds[-1]],
            )
            start = end


class TokenStore:
    """The vectors of all shards; documents are numbered in the corpus's order."""

    def __init__(self, shards: Sequence[Path]) -> None:
        self._folders = shards
        self._shards: list[_Shard] = []
        self._firsts: list[int] = []
        documents = 0
        for folder in shards:
            self._firsts.append(documents)
            self._shards.append(_Shard(folder, documents))
            documents += len(self._shards[-1].documents)
        self.documents = documents
        self.vectors = sum(len(shard.vectors) for shard in self._shards)

    def size(self) -> int:
        """Bytes of the files."""
        return sum((folder / name).stat().st_size for folder in self._folders for name in _FILES)

    def sample(self, wanted: int) -> NDArray[np.float32]:
        """So many vectors at equal distances, in float32."""
        return sample_rows([shard.vectors for shard in self._shards], wanted)

    def blocks(self, most: int) -> Iterator[Block]:
        """All documents in the order in which they lie, about `most` vectors at a time."""
        for shard in self._shards:
            yield from shard.blocks(most)

    def read(self, documents: NDArray[np.int64], most: int) -> Iterator[Block]:
        """These documents, about `most` vectors at a time."""
        waiting: list[Vectors] = []
        start = gathered = 0
        shards = np.searchsorted(self._firsts, documents, "right") - 1
        for end, (document, shard) in enumerate(zip(documents.tolist(), shards.tolist(), strict=True), 1):
            waiting.append(self._shards[shard].vectors_of(document))
            gathered += len(waiting[-1])
            if end == len(documents) or gathered >= most:
                counts = np.array([len(vectors) for vectors in waiting], np.int64)
                yield Block(documents[start:end], counts, np.concatenate(waiting))
                waiting, start, gathered = [], end, 0

    def write_owners(self, path: Path) -> None:
        """Write an array (uint32) that has for each vector, in the order in which they lie, its document."""
        owners = new_map(path, np.uint32, (self.vectors,))
        start = 0
        for shard in self._shards:
            end = start + len(shard.vectors)
            owners[start:end] = np.repeat(shard.documents + np.uint32(shard.first), np.diff(shard.offsets))
            start = end
        owners.flush()


_INDEX, _OWNERS = "nearest.faiss", "owners.npy"
#: Vectors indexed at a time.
_AT_ONCE = 65_536
#: Lists at most.
_MOST_LISTS = 16_384


class NearestTokens:
    """An index of all vectors; `parameters` are those of the late-interaction engine."""

    def __init__(self, parameters: Mapping[str, Any], threads: int) -> None:
        self._nearest: int = parameters["nearest_vectors"]
        self._probes: int = parameters["probes"]
        self._threads = threads
        self._index: Any = None
        self._size = 0

    def build(self, store: TokenStore, dimension: int, folder: Path) -> None:
        """Index the vectors, and write the index into the folder."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        lists = lists_for(store.vectors, dimension, most=_MOST_LISTS)
        index: Any = faiss.index_factory(dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # what is too few is decided above
        if store.vectors:
            index.train(store.sample(lists * VECTORS_PER_LIST))
            for block in store.blocks(_AT_ONCE):
                index.add(np.ascontiguousarray(block.vectors, np.float32))
        faiss.write_index(index, str(folder / _INDEX))
        store.write_owners(folder / _OWNERS)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        self._index = faiss.read_index(str(folder / _INDEX), faiss.IO_FLAG_MMAP)
        self._index.nprobe = min(self._probes, self._index.nlist)
        self._owners = map_array(folder / _OWNERS)
        self._size = sum((folder / name).stat().st_size for name in (_INDEX, _OWNERS))

    def size(self) -> int:
        """Bytes of the index."""
        return self._size

    def documents(self, query: NDArray[np.float32]) -> NDArray[np.int64]:
        """The documents, ascending, that own one of the vectors nearest to any of the query's (vectors × dimension)."""
        if not len(query) or not len(self._owners):
            return np.empty(0, np.int64)
        wanted = min(self._nearest, len(self._owners))
        _, found = counted_search(self._index, np.ascontiguousarray(query), wanted)
        return np.unique(self._owners[found[found >= 0]]).astype(np.int64)
