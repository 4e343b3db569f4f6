"""Finding documents by the vectors of their tokens: those that own one of the nearest to any vector of a query.

faiss keeps the vectors in inverted lists, in eight bits a dimension. What is found here only decides which documents
get a score: the scores come from the stored vectors themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.strings import mapped
from evaluation.engines.index.token_store import TokenStore

_INDEX, _OWNERS = "nearest.faiss", "owners.npy"
#: Vectors indexed at a time.
_AT_ONCE = 65_536
#: Lists at most, and vectors each is learned from.
_MOST_LISTS, _VECTORS_PER_LIST = 16_384, 39


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
        lists = max(min(4 * math.isqrt(store.vectors), store.vectors // _VECTORS_PER_LIST, _MOST_LISTS), 1)
        index: Any = faiss.index_factory(dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # what is too few is decided above
        if store.vectors:
            step = max(store.vectors // (lists * _VECTORS_PER_LIST), 1)
            sample = [block.vectors[::step] for block in store.blocks(_AT_ONCE)]
            index.train(np.ascontiguousarray(np.concatenate(sample), np.float32))
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
        self._owners = mapped(folder / _OWNERS)
        self._size = sum((folder / name).stat().st_size for name in (_INDEX, _OWNERS))

    def size(self) -> int:
        """Bytes of the index."""
        return self._size

    def documents(self, query: NDArray[np.float32]) -> NDArray[np.int64]:
        """The documents, ascending, that own one of the vectors nearest to any of the query's (vectors × dimension)."""
        if not len(query) or not len(self._owners):
            return np.empty(0, np.int64)
        _, found = self._index.search(np.ascontiguousarray(query), min(self._nearest, len(self._owners)))
        return np.unique(self._owners[found[found >= 0]]).astype(np.int64)
