"""Indexes of encoded shards for exact search, in float32 or float16, and for approximate search with faiss.

The folder of an index contains `index.json` (paths of the shards, maximum norm), the ids (see `ordered_ids`), and a
copy of each shard for float16, `00000.npy` and so on, or `index.faiss` for other codes and approximate search. The
float32 shards are not moved: exact search reads them, and results of other indexes are compared with exact search.

Approximate search uses HNSW, inverted lists (IVF), or product quantization (PQ): Y. Malkov and D. Yashunin, "Efficient
and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs", 2016; H. Jégou et al.,
"Product Quantization for Nearest Neighbor Search", 2011 (IVF and PQ). Inverted lists are read from disk; other faiss
indexes are in memory. Vectors with eight bits per dimension (int8) and with one bit (binary) are in memory too. Binary
vectors are retrieved by Hamming distance and scored by their inner product with the query: I. Yamada et al., "Efficient
Passage Retrieval with Hashing for Open-domain Question Answering", 2021.

The learned data of a faiss index (centroids, codes, ranges) is separate from its vectors, so that the indexes of parts
of a collection can share it: `learn` writes an index without vectors, and `fill` adds the vectors of some shards.
Inverted lists are filled in groups and merged on disk.
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
from evaluation.engines.base import Floats, Numbers, Parameter, Ranks, Resources, shard_name, total_size
from evaluation.engines.index.exact_search import (
    SPARE_CANDIDATES,
    ExactSearch,
    Ranking,
    Vectors,
    gather_rows,
    max_norm,
)
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids

#: Function that truncates vectors to the searched dimensions.
Truncation = Callable[[Vectors], Vectors]
#: Training vectors per centroid. faiss requires 39 and uses at most 256.
VECTORS_PER_LIST = 64
#: Training vectors for codes; faiss uses at most 256 for each of 256 values.
CODE_TRAINING_VECTORS = 65_536
#: Maximum number of values in the training vectors of centroids (2 GiB of float32). Limits the lists of large
#: collections (10,922 for 768 dimensions). 138 million vectors would otherwise have 46,990 lists, which take 9 GiB and
#: twenty times longer to train.
_LEARNED_NUMBERS = 2**29
_LEARNED_FILE, _INDEX_FILE, _LISTS_FILE = "learned.faiss", "index.faiss", "index.ivfdata"
_INDEXED_AT_ONCE = 65_536
#: Maximum number of values in a group of lists that is filled in memory (1 GiB of float32).
_GROUP = 2**28
#: Number of candidates by Hamming distance for each requested document.
_RESCORED = 4

INDEX_PARAMETERS = (
    Parameter("hnsw_links", 32, "hnsw: number of neighbors linked to a vector", minimum=2, maximum=256),
    Parameter("hnsw_build_width", 200, "hnsw: number of candidates when the graph is built", minimum=4, maximum=4_096),
    Parameter("hnsw_search_width", 128, "hnsw: number of candidates in a search", minimum=1, maximum=10_000),
    Parameter(
        "ivf_lists",
        0,
        f"ivf: number of lists; 0 is 4 √documents; reduced to at least {VECTORS_PER_LIST} vectors per list",
        minimum=0,
        maximum=100_000,
    ),
    Parameter("ivf_probes", 16, "ivf: number of lists that a search reads", minimum=1, maximum=100_000),
    Parameter(
        "pq_bytes",
        0,
        "pq: bytes per vector; 0 is a quarter of the dimension",
        minimum=0,
        maximum=4_096,
    ),
)


def count_lists(count: int, dimension: int, requested_lists: int = 0, maximum: int = 2**31) -> int:
    """Return the number of inverted lists for `count` vectors: `requested_lists`, or 4 √count if that is 0.

    The number is limited by the available training vectors and by `maximum`.
    """
    trainable = min(count, _LEARNED_NUMBERS // dimension) // VECTORS_PER_LIST
    return max(min(requested_lists or 4 * math.isqrt(count), trainable, maximum), 1)


def sample_rows(arrays: Sequence[NDArray[Any]], size: int) -> Floats:
    """Return `size` evenly spaced rows from the concatenation of several arrays, or all rows if there are fewer."""
    count = sum(map(len, arrays))
    rows = np.arange(min(size, count)) * count // max(min(size, count), 1)
    sample: Floats = gather_rows(arrays, rows, np.float32)
    return sample


def counted_search(index: Any, queries: Floats, depth: int) -> tuple[Floats, Numbers]:
    """Return the scores and vector numbers of `index.search`, and report its operations if they are counted."""
    if not operations.are_counted():
        results: tuple[Floats, Numbers] = index.search(queries, depth)
        return results
    import faiss

    counters: Any = faiss.cvar
    lists, graph = counters.indexIVF_stats, counters.hnsw_stats
    lists.reset()
    graph.reset()
    results = index.search(queries, depth)
    comparisons = lists.ndis + graph.ndis
    if hasattr(index, "nprobe"):
        comparisons += len(queries) * index.nlist
    elif hasattr(index, "pq"):  # one addition of a precomputed product for each piece
        operations.add(lambda: len(queries) * (index.ntotal * index.pq.M + index.d * index.pq.ksub))
    elif not hasattr(index, "hnsw"):
        comparisons = len(queries) * index.ntotal
    operations.add(lambda: comparisons * index.d)
    return results


def learn(
    shards: Sequence[Vectors], folder: Path, parameters: Mapping[str, Any], threads: int, truncate: Truncation
) -> None:
    """Train an index on a sample of the shards' truncated vectors, and write it to the folder without vectors."""
    import faiss

    faiss.omp_set_num_threads(threads)
    count, dimension = sum(map(len, shards)), truncate(shards[0][:0]).shape[1]
    index = _create_index(parameters, count, dimension)
    if not index.is_trained:
        lists = parameters["search"] == "ivf"
        sample = sample_rows(shards, index.nlist * VECTORS_PER_LIST if lists else CODE_TRAINING_VECTORS)
        index.train(np.ascontiguousarray(truncate(sample)))
    faiss.write_index(index, str(folder / _LEARNED_FILE))


def fill(shards: Sequence[Vectors], learned: Path, folder: Path, threads: int) -> None:
    """Add the shards' vectors to the index that `learn` wrote to `learned`, and write the result to `folder`.

    Large inverted lists are filled in groups, which are merged on disk.
    """
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    faiss.omp_set_num_threads(threads)
    index: Any = faiss.read_index(str(learned / _LEARNED_FILE))
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
        merge_ondisk(index, list(map(str, groups)), str(folder / _LISTS_FILE))
    faiss.write_index(index, str(folder / _INDEX_FILE))
    for path in groups:
        path.unlink()


def _blocks(shards: Sequence[Vectors]) -> Iterator[Vectors]:
    """Yield the vectors of the shards in blocks."""
    for shard in shards:
        for start in range(0, len(shard), _INDEXED_AT_ONCE):
            yield shard[start : start + _INDEXED_AT_ONCE]


def _create_index(parameters: Mapping[str, Any], count: int, dimension: int) -> Any:
    """Return an empty index of the requested kind, with parameters adapted to the size of the collection."""
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
        lists = count_lists(count, dimension, parameters["ivf_lists"])
        index = faiss.index_factory(dimension, f"IVF{lists},Flat", product)
        index.cp.min_points_per_centroid = 1  # `count_lists` determines a sufficient number
        return index
    code_bytes = parameters["pq_bytes"] or max(dimension // 4, 1)
    pieces = max(size for size in range(1, min(code_bytes, dimension) + 1) if dimension % size == 0)
    index = faiss.IndexPQ(dimension, pieces, min(8, int(math.log2(count))), product)
    index.pq.cp.min_points_per_centroid = 1
    return index


class Approximate:
    """Search of a faiss index. Documents with equal scores are sorted by `ranks`."""

    def __init__(self, folder: Path, ranks: Ranks, parameters: Mapping[str, Any], threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR if (folder / _LISTS_FILE).exists() else faiss.IO_FLAG_MMAP
        index: Any = faiss.read_index(str(folder / _INDEX_FILE), flags)
        if parameters["search"] == "hnsw" and hasattr(index, "hnsw"):
            index.hnsw.efSearch = parameters["hnsw_search_width"]
        if parameters["search"] == "ivf" and hasattr(index, "nprobe"):
            index.nprobe = min(parameters["ivf_probes"], index.nlist)
        self._index = index
        self._is_graph = parameters["search"] == "hnsw"
        self._ranks = ranks

    def search(self, queries: Floats, depth: int) -> Iterator[Ranking]:
        """Yield the best `depth` documents of each query and their scores, according to faiss. They may be fewer."""
        count = min(depth, len(self._ranks))
        all_scores, all_documents = self._search(np.ascontiguousarray(queries), count)
        for scores, documents in zip(all_scores, all_documents, strict=True):
            is_valid = documents >= 0
            documents, scores = documents[is_valid].astype(np.int64), scores[is_valid]
            order = np.lexsort((self._ranks[documents], -scores))[:count]
            yield documents[order], scores[order]

    def _search(self, queries: Floats, count: int) -> tuple[Floats, Numbers]:
        """Return scores and numbers of the best documents, including all ties with the last one.

        Ids break such ties. Graphs are searched only for the requested number, since a deeper search would visit more
        nodes.
        """
        search_depth = count if self._is_graph else min(count + SPARE_CANDIDATES, len(self._ranks))
        while True:
            scores, documents = counted_search(self._index, queries, search_depth)
            undecided = (scores[:, -1] == scores[:, count - 1]) & (documents[:, -1] >= 0)
            if self._is_graph or search_depth == len(self._ranks) or not undecided.any():
                return scores, documents
            search_depth = min(4 * search_depth, len(self._ranks))


def build_binary(shards: Sequence[Vectors], folder: Path) -> None:
    """Write an index of the signs of the shards' vectors, with one bit per dimension."""
    import faiss

    index: Any = faiss.IndexBinaryFlat(-(-shards[0].shape[1] // 8) * 8)
    for vectors in _blocks(shards):
        index.add(_signs(vectors))
    faiss.write_index_binary(index, str(folder / _INDEX_FILE))


def _signs(vectors: Vectors) -> NDArray[np.uint8]:
    """Return the sign of each value as a bit, padded with zeros."""
    return np.packbits(vectors > 0, axis=1)


class Binary:
    """Search of binary codes.

    Candidates are found by Hamming distance, and scored by the inner product of float32 queries and ±1 vectors.
    """

    def __init__(self, folder: Path, ranks: Ranks, threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        index: Any = faiss.read_index_binary(str(folder / _INDEX_FILE))
        self._index = index
        self._codes = faiss.vector_to_array(index.xb).reshape(len(ranks), index.code_size)
        self._ranks = ranks

    def search(self, queries: Floats, depth: int) -> Iterator[Ranking]:
        """Yield the `depth` documents of each query with the best scores, among 4 × `depth` candidates."""
        _, candidates = self._index.search(_signs(queries), min(_RESCORED * depth, len(self._ranks)))
        for query, documents in zip(queries, candidates, strict=True):
            bits = np.unpackbits(self._codes[documents], axis=1, count=len(query))
            scores = (bits.astype(np.float32) * 2 - 1) @ query
            operations.add(lambda size=bits.size: size)  # type: ignore[misc]
            order = np.lexsort((self._ranks[documents], -scores))[:depth]
            yield documents[order].astype(np.int64), scores[order]


#: Data types of stored vectors.
STORED_DTYPES = ("float32", "float16", "int8", "binary")
_STATE_FILE = "index.json"
#: Depth at which approximate rankings are compared with exact ones.
_COMPARED_DEPTH = 100
_ROWS_AT_ONCE = 8_192
#: Minimum norm, as in torch.nn.functional.normalize.
_MIN_NORM = 1e-12


def is_learned(parameters: Mapping[str, Any]) -> bool:
    """Return whether the index learns from the vectors, so that parts of a collection must share the learned data."""
    return bool(parameters["search"] != "exact" or parameters["stored_dtype"] == "int8")


def build_index(
    shards: Sequence[Path],
    ids: Iterable[str],
    folder: Path,
    parameters: Mapping[str, Any],
    threads: int,
    learned: Path,
) -> None:
    """Build an index of files of vectors (documents × dimension, float32).

    Args:
        shards: Files of vectors in corpus order.
        ids: Ids of all documents.
        folder: Folder of the index.
        parameters: Parameters of the dense engine.
        threads: Number of CPU threads.
        learned: Folder that `learn` wrote.

    Raises:
        InvalidContent: Document ids are not unique.
        ModelFailure: A value exceeds the range of float16.
    """
    write_ordered_ids(folder, ids)
    state: dict[str, Any] = {
        "shards": [str(path.resolve()) for path in shards],
        "norm": max(max_norm(load_vectors(path)) for path in shards),
    }
    if parameters["stored_dtype"] == "float16":
        state["copies"] = [shard_name(number) + ".npy" for number in range(len(shards))]
        for path, copy in zip(shards, state["copies"], strict=True):
            copy_vectors(path, folder / copy, lambda vectors: vectors, np.float16)
    if parameters["stored_dtype"] == "binary":
        build_binary([load_vectors(path) for path in shards], folder)
    elif is_learned(parameters):
        fill([load_vectors(path) for path in shards], learned, folder, threads)
    (folder / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")


class VectorIndex:
    """An open index of `build_index`."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], resources: Resources) -> None:
        state = json.loads((folder / _STATE_FILE).read_text("utf-8"))
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
            self._searcher = self._create_exact_search(self._copies) if self._copies else self.exact_search

    @property
    def documents(self) -> int:
        return len(self._ids)

    @cached_property
    def exact_search(self) -> ExactSearch:
        """Exact search of the original float32 vectors."""
        return self._create_exact_search(self._files)

    def search(self, queries: Floats, depth: int) -> Iterator[Ranking]:
        """Yield the best `depth` documents and their scores for each query (queries × dimension)."""
        if not self.documents or not depth or not len(queries):
            return iter([(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries))
        results: Iterator[Ranking] = self._searcher.search(queries, depth)
        return results

    def identifiers(self, documents: Numbers) -> list[str]:
        return self._ids.get_ids_at(self._ids.ranks[documents])

    def size(self) -> int:
        """Return the size in bytes of the searched vectors or their index, and of the ids."""
        files = [path for path in self._folder.iterdir() if path.is_file() and path.suffix != ".json"]
        return total_size(*files, *(self._files if self._searcher is self.__dict__.get("exact_search") else ()))

    def overlap_with_exact(self, queries: Floats) -> float:
        """Return the mean share of the exact float32 top 100 that this index finds for the queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        pairs = zip(self.search(queries, depth), self.exact_search.search(queries, depth), strict=True)
        return float(np.mean([len(np.intersect1d(actual[0], exact[0])) / depth for actual, exact in pairs]))

    def _create_exact_search(self, files: Sequence[Path]) -> ExactSearch:
        shards, resources = list(map(load_vectors, files)), self._resources
        return ExactSearch(shards, self._norm, self._ids.ranks, device=resources.device, threads=resources.threads)


def new_vectors(path: Path, count: int, dimension: int, dtype: type[np.floating[Any]] = np.float32) -> Vectors:
    return np.asarray(new_map(path, dtype, (count, dimension)))


def load_vectors(path: Path) -> Vectors:
    """Map an array read-only. Private mappings would count toward the memory limit."""
    return np.asarray(np.load(path, mmap_mode="r"))


def bytes_per_vector(dimension: int, stored_dtype: str) -> int:
    bits = {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[stored_dtype]
    return -(-dimension * bits // 8)


def truncate_vectors(vectors: Vectors, dimension: int, unit_length: bool) -> Vectors:
    """Return the first dimensions of vectors (Matryoshka), normalized again if they have unit length."""
    truncated_vectors = vectors[:, :dimension]
    if not unit_length or truncated_vectors.shape == vectors.shape:
        return truncated_vectors
    return normalize_vectors(truncated_vectors)


def normalize_vectors(vectors: Vectors) -> Vectors:
    """Return vectors of unit length; vectors of zeros remain."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, _MIN_NORM), np.float32)


def copy_vectors(path: Path, copy: Path, truncate: Truncation, dtype: type[np.floating[Any]] = np.float32) -> None:
    """Write the truncated vectors of a file to another one.

    Raises ModelFailure for values beyond the range of `dtype`.
    """
    vectors = load_vectors(path)
    output = new_vectors(copy, len(vectors), truncate(vectors[:0]).shape[1], dtype)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            output[rows] = truncate(vectors[rows])
        if not np.isfinite(output[rows]).all():
            name = np.dtype(dtype).name
            raise ModelFailure("not_finite_output", f"a vector's values exceed the range of {name}, as requested")
