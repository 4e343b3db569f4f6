"""Vectors of encoded shards, made searchable: exactly as they are, exactly in float16, or approximately with faiss.

The folder of an index has `index.json` (the shards' files, their greatest norms), the ids (see `ordered_ids`), and for
float16 a copy of each shard, `00000.npy` and so on, or for other codes and an approximate search `index.faiss`. The
shards themselves, in float32, stay where they are: exact search reads them, and the others are compared with them.

faiss searches approximately by HNSW, inverted lists (IVF) or product quantisation (PQ): Y. Malkov and D. Yashunin,
"Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs", 2016; H.
Jégou et al., "Product Quantization for Nearest Neighbor Search", 2011 (IVF and PQ). Its index is held in memory. So
are vectors of eight bits a dimension (int8), and of one (binary), which are found by their Hamming distance and scored
by their inner product with the query: I. Yamada et al., "Efficient Passage Retrieval with Hashing for Open-domain
Question Answering", 2021.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import Parameter, Resources, shard_name
from evaluation.engines.index.exact_search import ExactSearch, Found, Shard, Vectors, greatest_norm
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids

FILE_NAME = "index.faiss"

#: What vectors may be stored in, and those of them that are codes of faiss.
STORED = ("float32", "float16", "int8", "binary")
_CODES = ("int8", "binary")
#: So many candidates by Hamming distance are scored for each document that is wanted.
_RESCORED = 4
_INDEXED_AT_ONCE = 65_536
#: Vectors that lists and codes are learned from, taken at equal distances through the collection.
_LEARNED_FROM = 100_000
#: faiss wants so many vectors for each list, and for each of a code's values.
_VECTORS_PER_LIST = 39

APPROXIMATE_PARAMETERS = (
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


def _build_approximate(
    shards: Sequence[Vectors], folder: Path, parameters: Mapping[str, Any], threads: int
) -> None:
    """Index the shards' vectors by inner product, and write `index.faiss` into the folder."""
    import faiss

    faiss.omp_set_num_threads(threads)
    count, dimension = sum(map(len, shards)), shards[0].shape[1]
    index = _empty(parameters, count, dimension)
    if not index.is_trained:
        step = max(count // _LEARNED_FROM, 1)
        sample = np.concatenate([shard[::step] for shard in shards])
        index.train(np.ascontiguousarray(sample, np.float32))
    for shard in shards:
        for start in range(0, len(shard), _INDEXED_AT_ONCE):
            index.add(np.ascontiguousarray(shard[start : start + _INDEXED_AT_ONCE]))
    faiss.write_index(index, str(folder / FILE_NAME))


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


class _Approximate:
    """Searches what `_build_approximate` left; scores are those of the index, equal ones in the order of `ranks`."""

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


def _build_binary(shards: Sequence[Vectors], folder: Path) -> None:
    """Write `index.faiss` with the signs of the shards' vectors, a bit each."""
    import faiss

    index: Any = faiss.IndexBinaryFlat(-(-shards[0].shape[1] // 8) * 8)
    for shard in shards:
        for start in range(0, len(shard), _INDEXED_AT_ONCE):
            index.add(_signs(shard[start : start + _INDEXED_AT_ONCE]))
    faiss.write_index_binary(index, str(folder / FILE_NAME))


def _signs(vectors: Vectors) -> NDArray[np.uint8]:
    """The sign of each value as a bit, zeros behind the last one."""
    return np.packbits(vectors > 0, axis=1)


class _Binary:
    """Searches what `_build_binary` left: candidates by Hamming distance, scored as float32 queries · (±1 vectors)."""

    def __init__(self, folder: Path, ranks: NDArray[np.uint32], threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        index: Any = faiss.read_index_binary(str(folder / FILE_NAME))
        self._index = index
        self._codes = faiss.vector_to_array(index.xb).reshape(len(ranks), index.code_size)
        self._ranks = ranks

    def search(self, queries: NDArray[np.float32], depth: int) -> Iterator[Found]:
        """The best `depth` of four times as many documents, for each query."""
        wanted = min(_RESCORED * depth, len(self._ranks))
        if not wanted or not len(queries):
            yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
            return
        _, candidates = self._index.search(_signs(queries), wanted)
        for query, documents in zip(queries, candidates, strict=True):
            bits = np.unpackbits(self._codes[documents], axis=1, count=len(query))
            scores = (bits.astype(np.float32) * 2 - 1) @ query
            order = np.lexsort((self._ranks[documents], -scores))[:depth]
            yield documents[order].astype(np.int64), scores[order]


_STATE = "index.json"
#: Depth at which an approximate ranking is compared with the exact one.
_COMPARED_DEPTH = 100
_ROWS_AT_ONCE = 8_192
#: As torch.nn.functional.normalize has it.
_LEAST_NORM = 1e-12


def build_index(
    shards: Sequence[Path], ids: Sequence[str], folder: Path, parameters: Mapping[str, Any], threads: int
) -> None:
    """Write an index of these files of vectors (documents × dimension, float32), whose documents have these ids.

    Raises InvalidContent where an id is there twice, and ModelFailure where a vector does not fit into float16.
    """
    write_ordered_ids(folder, ids)
    state: dict[str, Any] = {
        "shards": [str(path.resolve()) for path in shards],
        "norms": [greatest_norm(load_vectors(path)) for path in shards],
    }
    if parameters["stored_dtype"] == "float16":
        state["copies"] = [shard_name(number) + ".npy" for number in range(len(shards))]
        for path, copy in zip(shards, state["copies"], strict=True):
            _write_float16(load_vectors(path), folder / copy)
    if parameters["stored_dtype"] == "binary":
        _build_binary([load_vectors(path) for path in shards], folder)
    elif parameters["search"] != "exact" or parameters["stored_dtype"] in _CODES:
        _build_approximate([load_vectors(path) for path in shards], folder, parameters, threads)
    (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")


class VectorIndex:
    """An index that `build_index` left in a folder, opened."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], resources: Resources) -> None:
        state = json.loads((folder / _STATE).read_text("utf-8"))
        self._folder = folder
        self._resources = resources
        self._files = [Path(name) for name in state["shards"]]
        self._norms: list[float] = state["norms"]
        self._ids = OrderedIds(folder)
        self._copies = [folder / name for name in state.get("copies", ())]
        self._searcher: Any = None
        if parameters["stored_dtype"] == "binary":
            self._searcher = _Binary(folder, self._ids.ranks, resources.threads)
        elif parameters["search"] != "exact" or parameters["stored_dtype"] in _CODES:
            self._searcher = _Approximate(folder, self._ids.ranks, parameters, resources.threads)
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

    def search(self, queries: NDArray[np.float32], depth: int) -> Iterator[Found]:
        """The best documents of each query (queries × dimension), and their scores."""
        found: Iterator[Found] = self._searcher.search(queries, depth)
        return found

    def identifiers(self, documents: NDArray[np.int64]) -> list[str]:
        """The ids of the documents with these numbers."""
        return self._ids.at(self._ids.ranks[documents])

    def size(self) -> int:
        """Bytes of the vectors that are searched, or their index, and of the ids."""
        files = (path for path in self._folder.iterdir() if path.is_file() and path.suffix != ".json")
        inside = sum(path.stat().st_size for path in files)
        reads_shards = self._searcher is self.__dict__.get("exact")
        return inside + (sum(path.stat().st_size for path in self._files) if reads_shards else 0)

    def overlap_with_exact(self, queries: NDArray[np.float32]) -> float:
        """Mean share of the exact top 100 (in float32) that this index finds for these queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        pairs = zip(self.search(queries, depth), self.exact.search(queries, depth), strict=True)
        return float(np.mean([len(np.intersect1d(ours[0], exact[0])) / depth for ours, exact in pairs]))

    def _exact(self, files: Sequence[Path]) -> ExactSearch:
        shards = [Shard(load_vectors(path), norm) for path, norm in zip(files, self._norms, strict=True)]
        device, threads = self._resources.device, self._resources.threads
        return ExactSearch(shards, self._ids.ranks, device=device, threads=threads)


def new_vectors(
    path: Path, count: int, dimension: int, dtype: type[np.floating[Any]] = np.float32
) -> Vectors:
    """An array (count × dimension) that is kept in a file, to be filled."""
    if not count:  # nothing can be mapped of an empty file
        np.save(path, np.zeros((0, dimension), dtype))
        return np.zeros((0, dimension), dtype)
    return np.asarray(open_memmap(path, "w+", dtype, (count, dimension)))


def load_vectors(path: Path) -> Vectors:
    """The array in a file, mapped for reading alone: a private mapping would be charged to the memory there is."""
    return np.asarray(np.load(path, mmap_mode="r"))


def bytes_of_vector(dimension: int, stored_dtype: str) -> int:
    """Bytes that a vector takes as it is stored."""
    bits = {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[stored_dtype]
    return -(-dimension * bits // 8)


def leading(vectors: Vectors, dimension: int, unit_length: bool) -> Vectors:
    """The first dimensions of vectors (Matryoshka), made one long again where they were."""
    kept = vectors[:, :dimension]
    if not unit_length or kept.shape == vectors.shape:
        return kept
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return np.asarray(kept / np.maximum(lengths, _LEAST_NORM), np.float32)


def write_leading(path: Path, copy: Path, dimension: int, unit_length: bool) -> None:
    """Write `leading` of a file of vectors to another one."""
    vectors = load_vectors(path)
    kept = new_vectors(copy, len(vectors), dimension)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        kept[some] = leading(vectors[some], dimension, unit_length)


def _write_float16(vectors: Vectors, path: Path) -> None:
    copy = new_vectors(path, len(vectors), vectors.shape[1], np.float16)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        with np.errstate(over="ignore"):
            copy[start : start + _ROWS_AT_ONCE] = vectors[start : start + _ROWS_AT_ONCE]
        if not np.isfinite(copy[start : start + _ROWS_AT_ONCE]).all():
            raise ModelFailure(
                "not_finite_output", "a vector's values are beyond float16, which was asked for"
            )
