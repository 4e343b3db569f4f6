"""Approximate search by faiss: graphs (HNSW), inverted lists (IVF), product quantisation (PQ), eight bits, one bit.

What an index learns (centroids, codes, ranges) is apart from the vectors in it, so that indexes of parts of a
collection can share it: `learn` writes an index without vectors, `fill` puts the vectors of some shards into it.
Inverted lists are filled in groups, merged on disk and searched where they lie; other indexes are held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.engines import operations
from evaluation.engines.base import Floats, Numbers, Parameter, Ranks
from evaluation.engines.index.exact_search import SPARE, Found, Vectors

#: Vectors that a centroid is learned from. faiss wants 39 of them, and takes no more than 256.
VECTORS_PER_LIST = 64
#: Vectors that codes are learned from; faiss takes no more than 256 for each of 256 values.
CODES_LEARNED_FROM = 65_536
#: Numbers of the vectors that centroids are learned from: 2 GiB of float32. It bounds the lists of great collections
#: (10,922 of 768 dimensions). 138 million vectors would get 46,990, learned from 9 GiB in twenty times the time.
_LEARNED_NUMBERS = 2**29
_EMPTY, _FULL, _LISTS = "learned.faiss", "index.faiss", "index.ivfdata"
_INDEXED_AT_ONCE = 65_536
#: Numbers of the vectors whose lists are in memory while they are filled: 1 GiB of float32.
_GROUP = 2**28
#: So many candidates by Hamming distance are scored for each document that is wanted.
_RESCORED = 4

PARAMETERS = (
    Parameter("hnsw_links", 32, "hnsw: neighbours that a vector is linked with", least=2, most=256),
    Parameter("hnsw_build_width", 200, "hnsw: candidates looked at to find them", least=4, most=4_096),
    Parameter("hnsw_search_width", 128, "hnsw: candidates kept in a search", least=1, most=10_000),
    Parameter(
        "ivf_lists",
        0,
        f"ivf: lists of vectors; 0 is 4 √documents; fewer where these are not {VECTORS_PER_LIST} vectors each",
        least=0,
        most=100_000,
    ),
    Parameter("ivf_probes", 16, "ivf: lists that a search reads", least=1, most=100_000),
    Parameter(
        "pq_bytes",
        0,
        "pq: bytes that a vector is stored in; 0 is a quarter of its dimension",
        least=0,
        most=4_096,
    ),
)


def lists_for(count: int, dimension: int, wanted: int = 0, most: int = 2**31) -> int:
    """How many lists so many vectors are kept in: `wanted`, or 4 √count, as far as there are vectors to learn them."""
    learnable = min(count, _LEARNED_NUMBERS // dimension) // VECTORS_PER_LIST
    return max(min(wanted or 4 * math.isqrt(count), learnable, most), 1)


def sample_rows(arrays: Sequence[NDArray[Any]], wanted: int) -> Floats:
    """`wanted` rows at equal distances through arrays that stand for one (all where there are no more)."""
    starts = np.cumsum([0, *map(len, arrays)])
    count = int(starts[-1])
    rows = np.arange(min(wanted, count)) * count // max(min(wanted, count), 1)
    sample = np.empty((len(rows), arrays[0].shape[1]), np.float32)
    edges = np.searchsorted(rows, starts).tolist()
    for array, first, start, end in zip(arrays, starts.tolist(), edges[:-1], edges[1:], strict=False):
        sample[start:end] = array[rows[start:end] - first]
    return sample


def counted_search(index: Any, queries: Floats, depth: int) -> tuple[Floats, Numbers]:
    """What `index.search` finds for queries × dimensions: scores, and numbers of vectors."""
    if not operations.are_counted():
        found: tuple[Floats, Numbers] = index.search(queries, depth)
        return found
    import faiss

    counters: Any = faiss.cvar
    lists, graph = counters.indexIVF_stats, counters.hnsw_stats
    lists.reset()
    graph.reset()
    found = index.search(queries, depth)
    compared = lists.ndis + graph.ndis
    if hasattr(index, "nprobe"):
        compared += len(queries) * index.nlist
    elif hasattr(index, "pq"):  # products of the values that codes have are added up, one for each piece
        operations.add(lambda: len(queries) * (index.ntotal * index.pq.M + index.d * index.pq.ksub))
    elif not hasattr(index, "hnsw"):
        compared = len(queries) * index.ntotal
    operations.add(lambda: compared * index.d)
    return found


def learn(
    shards: Sequence[Vectors],
    folder: Path,
    parameters: Mapping[str, Any],
    threads: int,
    cut: Callable[[Vectors], Vectors],
) -> None:
    """Learn from these shards' vectors, as `cut` makes them, and write the index without vectors into the folder."""
    import faiss

    faiss.omp_set_num_threads(threads)
    count, dimension = sum(map(len, shards)), cut(shards[0][:0]).shape[1]
    index = _empty(parameters, count, dimension)
    if not index.is_trained:
        lists = parameters["search"] == "ivf"
        sample = sample_rows(shards, index.nlist * VECTORS_PER_LIST if lists else CODES_LEARNED_FROM)
        index.train(np.ascontiguousarray(cut(sample)))
    faiss.write_index(index, str(folder / _EMPTY))


def fill(shards: Sequence[Vectors], learned: Path, folder: Path, threads: int) -> None:
    """Index the shards' vectors by what `learn` left in the folder `learned`."""
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    faiss.omp_set_num_threads(threads)
    index: Any = faiss.read_index(str(learned / _EMPTY))
    in_lists = faiss.try_extract_index_ivf(index) is not None
    groups: list[Path] = []
    first = 0
    for vectors in _blocks(shards):
        if in_lists:
            index.add_with_ids(np.ascontiguousarray(vectors), np.arange(first, first + len(vectors)))
        else:
            index.add(np.ascontiguousarray(vectors))
        first += len(vectors)
        if in_lists and index.ntotal * index.d >= _GROUP:
            groups.append(folder / f"group-{first}.faiss")
            faiss.write_index(index, str(groups[-1]))
            index.reset()
    if groups:
        groups.append(folder / "group-last.faiss")
        faiss.write_index(index, str(groups[-1]))
        index.reset()
        merge_ondisk(index, list(map(str, groups)), str(folder / _LISTS))
    faiss.write_index(index, str(folder / _FULL))
    for path in groups:
        path.unlink()


def _blocks(shards: Sequence[Vectors]) -> Iterator[Vectors]:
    """The vectors of the shards, block by block."""
    for shard in shards:
        for start in range(0, len(shard), _INDEXED_AT_ONCE):
            yield shard[start : start + _INDEXED_AT_ONCE]


def _empty(parameters: Mapping[str, Any], count: int, dimension: int) -> Any:
    """The index that is asked for, with what the collection's size allows."""
    import faiss

    index: Any
    kind, product = parameters["search"], faiss.METRIC_INNER_PRODUCT
    if count < 2:
        return faiss.IndexFlatIP(dimension)
    if parameters["stored_dtype"] == "int8":
        return faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_8bit, product)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, parameters["hnsw_links"], product)
        index.hnsw.efConstruction = parameters["hnsw_build_width"]
        return index
    if kind == "ivf":
        lists = lists_for(count, dimension, parameters["ivf_lists"])
        index = faiss.index_factory(dimension, f"IVF{lists},Flat", product)
        index.cp.min_points_per_centroid = 1  # what is too few is decided above
        return index
    wanted = parameters["pq_bytes"] or max(dimension // 4, 1)
    pieces = max(size for size in range(1, min(wanted, dimension) + 1) if dimension % size == 0)
    index = faiss.IndexPQ(dimension, pieces, min(8, int(math.log2(count))), product)
    index.pq.cp.min_points_per_centroid = 1
    return index


class Approximate:
    """Searches what `fill` left; scores are those of the index, equal ones in the order of `ranks`."""

    def __init__(self, folder: Path, ranks: Ranks, parameters: Mapping[str, Any], threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR if (folder / _LISTS).exists() else faiss.IO_FLAG_MMAP
        index: Any = faiss.read_index(str(folder / _FULL), flags)
        if parameters["search"] == "hnsw" and hasattr(index, "hnsw"):
            index.hnsw.efSearch = parameters["hnsw_search_width"]
        if parameters["search"] == "ivf" and hasattr(index, "nprobe"):
            index.nprobe = min(parameters["ivf_probes"], index.nlist)
        self._index = index
        self._is_graph = parameters["search"] == "hnsw"
        self._ranks = ranks

    def search(self, queries: Floats, depth: int) -> Iterator[Found]:
        """What the index takes for the best `depth` documents of each query; fewer where it finds no more."""
        wanted = min(depth, len(self._ranks))
        if not wanted or not len(queries):
            yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
            return
        all_scores, all_documents = self._search(np.ascontiguousarray(queries), wanted)
        for scores, documents in zip(all_scores, all_documents, strict=True):
            found = documents >= 0
            documents, scores = documents[found].astype(np.int64), scores[found]
            order = np.lexsort((self._ranks[documents], -scores))[:wanted]
            yield documents[order], scores[order]

    def _search(self, queries: Floats, wanted: int) -> tuple[Floats, Numbers]:
        """Floats and numbers of the best `wanted`, and of all that score as the last of these: ids decide among them.

        A graph is not asked for more than is wanted, since it would then look further.
        """
        deep = wanted if self._is_graph else min(wanted + SPARE, len(self._ranks))
        while True:
            scores, documents = counted_search(self._index, queries, deep)
            undecided = (scores[:, -1] == scores[:, wanted - 1]) & (documents[:, -1] >= 0)
            if self._is_graph or deep == len(self._ranks) or not undecided.any():
                return scores, documents
            deep = min(4 * deep, len(self._ranks))


def build_binary(shards: Sequence[Vectors], folder: Path) -> None:
    """Write an index of the signs of the shards' vectors, a bit each."""
    import faiss

    index: Any = faiss.IndexBinaryFlat(-(-shards[0].shape[1] // 8) * 8)
    for vectors in _blocks(shards):
        index.add(_signs(vectors))
    faiss.write_index_binary(index, str(folder / _FULL))


def _signs(vectors: Vectors) -> NDArray[np.uint8]:
    """The sign of each value as a bit, zeros behind the last one."""
    return np.packbits(vectors > 0, axis=1)


class Binary:
    """Searches what `build_binary` left: candidates by Hamming distance, scored as float32 queries · (±1 vectors)."""

    def __init__(self, folder: Path, ranks: Ranks, threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        index: Any = faiss.read_index_binary(str(folder / _FULL))
        self._index = index
        self._codes = faiss.vector_to_array(index.xb).reshape(len(ranks), index.code_size)
        self._ranks = ranks

    def search(self, queries: Floats, depth: int) -> Iterator[Found]:
        """The best `depth` of four times as many documents, for each query."""
        wanted = min(_RESCORED * depth, len(self._ranks))
        if not wanted or not len(queries):
            yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
            return
        _, candidates = self._index.search(_signs(queries), wanted)
        for query, documents in zip(queries, candidates, strict=True):
            bits = np.unpackbits(self._codes[documents], axis=1, count=len(query))
            scores = (bits.astype(np.float32) * 2 - 1) @ query
            operations.add(lambda size=bits.size: size)  # type: ignore[misc]
            order = np.lexsort((self._ranks[documents], -scores))[:depth]
            yield documents[order].astype(np.int64), scores[order]
