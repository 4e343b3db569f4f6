"""Approximate search of vectors with faiss: HNSW, inverted lists (IVF), product quantisation (PQ).

Y. Malkov and D. Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small
World graphs", 2016; H. Jégou et al., "Product Quantization for Nearest Neighbor Search", 2011 (IVF and PQ). The index
is held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.engines.base import Parameter
from evaluation.engines.index.exact_search import Found, Vectors

FILE_NAME = "index.faiss"

_ROWS_AT_ONCE = 65_536
#: Vectors that lists and codes are learned from, taken at equal distances through the collection.
_LEARNED_FROM = 100_000
#: faiss wants so many vectors for each list, and for each of a code's values.
_VECTORS_PER_LIST = 39

PARAMETERS = (
    Parameter("hnsw_links", 32, "hnsw: neighbours that a vector is linked with", least=2, most=256),
    Parameter("hnsw_build_width", 200, "hnsw: candidates looked at to find them", least=4, most=4_096),
    Parameter("hnsw_search_width", 128, "hnsw: candidates kept in a search", least=1, most=10_000),
    Parameter("ivf_lists", 0, "ivf: lists of vectors; 0 is 4 √documents", least=0, most=100_000),
    Parameter("ivf_probes", 16, "ivf: lists that a search reads", least=1, most=100_000),
    Parameter(
        "pq_bytes",
        0,
        "pq: bytes that a vector is stored in; 0 is a quarter of its dimension",
        least=0,
        most=4_096,
    ),
)


def build(shards: Sequence[Vectors], folder: Path, parameters: Mapping[str, Any], threads: int) -> None:
    """Index the shards' vectors by inner product, and write `index.faiss` into the folder."""
    import faiss

    faiss.omp_set_num_threads(threads)
    count, dimension = sum(map(len, shards)), shards[0].shape[1]
    index = _empty(parameters, count, dimension)
    if not index.is_trained:
        index.train(_sample(shards, count))
    for shard in shards:
        for start in range(0, len(shard), _ROWS_AT_ONCE):
            index.add(np.ascontiguousarray(shard[start : start + _ROWS_AT_ONCE]))
    faiss.write_index(index, str(folder / FILE_NAME))


def _empty(parameters: Mapping[str, Any], count: int, dimension: int) -> Any:
    """The index that is asked for, with what the collection's size allows."""
    import faiss

    index: Any
    kind, product = parameters["search"], faiss.METRIC_INNER_PRODUCT
    if count < 2:
        return faiss.IndexFlatIP(dimension)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, parameters["hnsw_links"], product)
        index.hnsw.efConstruction = parameters["hnsw_build_width"]
        return index
    if kind == "ivf":
        lists = parameters["ivf_lists"] or 4 * math.isqrt(count)
        lists = max(min(lists, count // _VECTORS_PER_LIST), 1)
        index = faiss.index_factory(dimension, f"IVF{lists},Flat", product)
        index.cp.min_points_per_centroid = 1  # what is too few is decided above
        return index
    wanted = parameters["pq_bytes"] or max(dimension // 4, 1)
    pieces = max(size for size in range(1, min(wanted, dimension) + 1) if dimension % size == 0)
    index = faiss.IndexPQ(dimension, pieces, min(8, int(math.log2(count))), product)
    index.pq.cp.min_points_per_centroid = 1
    return index


def _sample(shards: Sequence[Vectors], count: int) -> NDArray[np.float32]:
    step = max(count // _LEARNED_FROM, 1)
    return np.ascontiguousarray(np.concatenate([shard[::step] for shard in shards]), np.float32)


class Approximate:
    """Searches what `build` left; scores are those of the index, equal ones in the order of `ranks`."""

    def __init__(
        self, folder: Path, ranks: NDArray[np.uint32], parameters: Mapping[str, Any], threads: int
    ) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        index: Any = faiss.read_index(str(folder / FILE_NAME))
        if parameters["search"] == "hnsw" and hasattr(index, "hnsw"):
            index.hnsw.efSearch = parameters["hnsw_search_width"]
        if parameters["search"] == "ivf" and hasattr(index, "nprobe"):
            index.nprobe = min(parameters["ivf_probes"], index.nlist)
        self._index = index
        self._ranks = ranks

    def search(self, queries: NDArray[np.float32], depth: int) -> Iterator[Found]:
        """What the index takes for the best `depth` documents of each query; fewer where it finds no more."""
        wanted = min(depth, len(self._ranks))
        if not wanted or not len(queries):
            yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
            return
        all_scores, all_documents = self._index.search(np.ascontiguousarray(queries), wanted)
        for scores, documents in zip(all_scores, all_documents, strict=True):
            found = documents >= 0
            documents, scores = documents[found].astype(np.int64), scores[found]
            order = np.lexsort((self._ranks[documents], -scores))
            yield documents[order], scores[order]
