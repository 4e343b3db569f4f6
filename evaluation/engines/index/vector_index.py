"""Vectors of encoded shards, made searchable: exactly as they are, exactly in float16, or approximately with faiss.

The folder of an index has `index.json` (the shards' files, the greatest norm), the ids (see `ordered_ids`), and for
float16 a copy of each shard, `00000.npy` and so on, or for other codes and an approximate search `index.faiss`. The
shards themselves, in float32, stay where they are: exact search reads them, and the others are compared with them.

faiss searches approximately by HNSW, inverted lists (IVF) or product quantisation (PQ): Y. Malkov and D. Yashunin,
"Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs", 2016; H.
Jégou et al., "Product Quantization for Nearest Neighbor Search", 2011 (IVF and PQ). Lists are read where they lie;
other indexes of faiss are held in memory. So are vectors of eight bits a dimension (int8), and of one (binary), which
are found by their Hamming distance and scored by their inner product with the query: I. Yamada et al., "Efficient
Passage Retrieval with Hashing for Open-domain Question Answering", 2021.

What an index of faiss learns (centroids, codes, ranges) is apart from the vectors in it, so that indexes of parts of a
collection can share it: `learn` writes an index without vectors, `fill` puts the vectors of some shards into it.
Inverted lists are filled in groups, merged on disk and searched where they lie; other indexes are held in memory.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.problems import ModelFailure
from evaluation.core.writing import new_map
from evaluation.engines import operations
from evaluation.engines.base import Floats, Numbers, Parameter, Ranks, Resources, shard_name, size_of
from evaluation.engines.index.exact_search import (
    SPARE,
    ExactSearch,
    Found,
    Vectors,
    gather_rows,
    greatest_norm,
)
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids

#: Takes the dimensions of vectors that are searched.
Cut = Callable[[Vectors], Vectors]
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

INDEX_PARAMETERS = (
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
    count = sum(map(len, arrays))
    rows = np.arange(min(wanted, count)) * count // max(min(wanted, count), 1)
    sample: Floats = gather_rows(arrays, rows, np.float32)
    return sample


def counted_search(index: Any, queries: Floats, depth: int) -> tuple[Floats, Numbers]:
    """Return what `index.search` finds for queries × dimensions: scores, and numbers of vectors."""
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
    shards: Sequence[Vectors], folder: Path, parameters: Mapping[str, Any], threads: int, cut: Cut
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
    """Yield the vectors of the shards, block by block."""
    for shard in shards:
        for start in range(0, len(shard), _INDEXED_AT_ONCE):
            yield shard[start : start + _INDEXED_AT_ONCE]


def _empty(parameters: Mapping[str, Any], count: int, dimension: int) -> Any:
    """Return the index that is asked for, with what the collection's size allows."""
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
        """Yield what the index takes for the best `depth` documents of each query; fewer where it finds no more."""
        wanted = min(depth, len(self._ranks))
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
    """Return the sign of each value as a bit, zeros behind the last one."""
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
        """Yield the best `depth` of four times as many documents, for each query."""
        wanted = min(_RESCORED * depth, len(self._ranks))
        _, candidates = self._index.search(_signs(queries), wanted)
        for query, documents in zip(queries, candidates, strict=True):
            bits = np.unpackbits(self._codes[documents], axis=1, count=len(query))
            scores = (bits.astype(np.float32) * 2 - 1) @ query
            operations.add(lambda size=bits.size: size)  # type: ignore[misc]
            order = np.lexsort((self._ranks[documents], -scores))[:depth]
            yield documents[order].astype(np.int64), scores[order]


#: What vectors may be stored in.
STORED = ("float32", "float16", "int8", "binary")
_STATE = "index.json"
#: Depth at which an approximate ranking is compared with the exact one.
_COMPARED_DEPTH = 100
_ROWS_AT_ONCE = 8_192
#: As torch.nn.functional.normalize has it.
_LEAST_NORM = 1e-12


def is_learned(parameters: Mapping[str, Any]) -> bool:
    """Return whether an index has something that is learned from the vectors: parts of a collection must share that."""
    return bool(parameters["search"] != "exact" or parameters["stored_dtype"] == "int8")


def build_index(
    shards: Sequence[Path],
    ids: Iterable[str],
    folder: Path,
    parameters: Mapping[str, Any],
    threads: int,
    learned: Path,
) -> None:
    """Write an index of these files of vectors (documents × dimension, float32), whose documents have these ids.

    `learned` is the folder that `learn` filled. Raises InvalidContent where an id is there twice, and
    ModelFailure where a vector does not fit into float16.
    """
    write_ordered_ids(folder, ids)
    state: dict[str, Any] = {
        "shards": [str(path.resolve()) for path in shards],
        "norm": max(greatest_norm(load_vectors(path)) for path in shards),
    }
    if parameters["stored_dtype"] == "float16":
        state["copies"] = [shard_name(number) + ".npy" for number in range(len(shards))]
        for path, copy in zip(shards, state["copies"], strict=True):
            copy_vectors(path, folder / copy, lambda vectors: vectors, np.float16)
    if parameters["stored_dtype"] == "binary":
        build_binary([load_vectors(path) for path in shards], folder)
    elif is_learned(parameters):
        fill([load_vectors(path) for path in shards], learned, folder, threads)
    (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")


class VectorIndex:
    """An index that `build_index` left in a folder, opened."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], resources: Resources) -> None:
        state = json.loads((folder / _STATE).read_text("utf-8"))
        self._folder = folder
        self._resources = resources
        self._files = [Path(name) for name in state["shards"]]
        self._norm: float = state["norm"]
        self._ids = OrderedIds(folder)
        self._copies = [folder / name for name in state.get("copies", ())]
        self._searcher: Any = None
        if parameters["stored_dtype"] == "binary":
            self._searcher = Binary(folder, self._ids.ranks, resources.threads)
        elif is_learned(parameters):
            self._searcher = Approximate(folder, self._ids.ranks, parameters, resources.threads)
        else:
            self._searcher = self._exact(self._copies) if self._copies else self.exact

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return len(self._ids)

    @cached_property
    def exact(self) -> ExactSearch:
        """Exact search of the vectors as they were encoded."""
        return self._exact(self._files)

    def search(self, queries: Floats, depth: int) -> Iterator[Found]:
        """Yield the best documents of each query (queries × dimension), and their scores."""
        if not self.documents or not depth or not len(queries):
            return iter([(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries))
        found: Iterator[Found] = self._searcher.search(queries, depth)
        return found

    def identifiers(self, documents: Numbers) -> list[str]:
        """Return the ids of the documents with these numbers."""
        return self._ids.at(self._ids.ranks[documents])

    def size(self) -> int:
        """Return the bytes of the vectors that are searched, or their index, and of the ids."""
        files = [path for path in self._folder.iterdir() if path.is_file() and path.suffix != ".json"]
        return size_of(*files, *(self._files if self._searcher is self.__dict__.get("exact") else ()))

    def overlap_with_exact(self, queries: Floats) -> float:
        """Mean share of the exact top 100 (in float32) that this index finds for these queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        pairs = zip(self.search(queries, depth), self.exact.search(queries, depth), strict=True)
        return float(np.mean([len(np.intersect1d(ours[0], exact[0])) / depth for ours, exact in pairs]))

    def _exact(self, files: Sequence[Path]) -> ExactSearch:
        shards, given = list(map(load_vectors, files)), self._resources
        return ExactSearch(shards, self._norm, self._ids.ranks, device=given.device, threads=given.threads)


def new_vectors(
    path: Path, count: int, dimension: int, dtype: type[np.floating[Any]] = np.float32
) -> Vectors:
    """Return an array (count × dimension) that is kept in a file, to be filled."""
    return np.asarray(new_map(path, dtype, (count, dimension)))


def load_vectors(path: Path) -> Vectors:
    """The array in a file, mapped for reading alone: a private mapping would be charged to the memory there is."""
    return np.asarray(np.load(path, mmap_mode="r"))


def bytes_of_vector(dimension: int, stored_dtype: str) -> int:
    """Return the bytes that a vector takes as it is stored."""
    bits = {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[stored_dtype]
    return -(-dimension * bits // 8)


def leading(vectors: Vectors, dimension: int, unit_length: bool) -> Vectors:
    """Return the first dimensions of vectors (Matryoshka), made one long again where they were."""
    kept = vectors[:, :dimension]
    if not unit_length or kept.shape == vectors.shape:
        return kept
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return np.asarray(kept / np.maximum(lengths, _LEAST_NORM), np.float32)


def copy_vectors(path: Path, copy: Path, cut: Cut, dtype: type[np.floating[Any]] = np.float32) -> None:
    """Write what `cut` makes of a file of vectors to another one. Raises ModelFailure where that does not fit."""
    vectors = load_vectors(path)
    kept = new_vectors(copy, len(vectors), cut(vectors[:0]).shape[1], dtype)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            kept[rows] = cut(vectors[rows])
        if not np.isfinite(kept[rows]).all():
            name = np.dtype(dtype).name
            raise ModelFailure(
                "not_finite_output", f"a vector's values are beyond {name}, which was asked for"
            )
