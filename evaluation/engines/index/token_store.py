"""Memory-mapped token vectors for late interaction, and their nearest-neighbor and compressed indexes.

Files of a shard: `vectors.bin` (vectors × dimension, float32 or float16, documents in the order of encoding),
`documents.npy` (document numbers in that order), `offsets.npy` (first vector of each, and the total), and
`vectors.json` (dimension and dtype).

`NearestTokens` finds the documents of the vectors nearest to each query vector. faiss stores the vectors in inverted
lists with eight bits per dimension. This index only selects documents; their scores come from the stored vectors.

`CompressedTokens` stores vectors as the nearest centroid and a residual of a few bits per dimension, and searches these
codes: K. Santhanam et al., "ColBERTv2: Effective and Efficient Retrieval via Lightweight Late Interaction", 2022
(residual compression), and "PLAID: An Efficient Engine for Late Interaction Retrieval", 2022 (search). faiss learns the
centroids (k-means) and the codes of residuals. With two bits per dimension, one byte encodes the values of four
dimensions together, which is more accurate than four levels for each dimension.

A search selects the documents in the lists of the centroids nearest to each query vector, ranks them by their centroids
alone, and scores the best of them by centroids and residuals. Scores are added in a fixed order, and depend only on
query, document, and learned data.

Files: `learned.faiss` (centroids, codes); `codes.bin` (vectors × bytes: centroid number in little-endian order, and the
residual's code), `starts.npy` and `counts.npy` (first vector and number of vectors of each document); `lists.npy` and
`list_offsets.npy` (documents with a vector at each centroid).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.problems import ModelFailure
from evaluation.core.strings import map_array
from evaluation.core.writing import new_map
from evaluation.engines import operations
from evaluation.engines.base import Floats, Numbers, Ranks, total_size
from evaluation.engines.index.exact_search import Ranking
from evaluation.engines.index.vector_index import (
    CODE_TRAINING_VECTORS,
    VECTORS_PER_LIST,
    count_lists,
    counted_search,
    sample_rows,
)

_FILES = ("vectors.bin", "documents.npy", "offsets.npy")
#: Arrays of float32 or float16.
Vectors = NDArray[np.floating[Any]]


class TokenWriter:
    """Context manager that writes the token vectors of a shard's documents."""

    def __init__(self, folder: Path, dimension: int, dtype: str) -> None:
        self._folder = folder
        self._dtype = np.dtype(dtype)
        self._dimension = dimension
        self._documents: list[NDArray[np.integer[Any]]] = []
        self._counts: list[NDArray[np.integer[Any]]] = []

    def __enter__(self) -> TokenWriter:
        self._file = (self._folder / _FILES[0]).open("wb")
        return self

    def write(self, documents: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]], vectors: Floats) -> None:
        """Write the vectors of some documents.

        Args:
            documents: Document numbers within the shard.
            counts: Number of vectors of each document.
            vectors: Concatenated vectors, shape (sum of counts, dimension).

        Raises:
            ModelFailure: A value exceeds the range of the dtype ("not_finite_output").
        """
        with np.errstate(over="ignore"):
            stored_vectors = np.ascontiguousarray(vectors, self._dtype)
        if not np.isfinite(stored_vectors).all():
            raise ModelFailure(
                "not_finite_output", f"a vector's values exceed the range of {self._dtype}, as requested"
            )
        self._file.write(stored_vectors.data)
        self._documents.append(documents)
        self._counts.append(counts)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        no_documents = np.empty(0, np.int64)
        np.save(self._folder / _FILES[1], np.concatenate([no_documents, *self._documents]).astype(np.uint32))
        np.save(self._folder / _FILES[2], np.cumsum(np.concatenate([[0], *self._counts]), dtype=np.int64))
        state = {"dimension": self._dimension, "dtype": self._dtype.name}
        (self._folder / "vectors.json").write_text(json.dumps(state), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Block:
    """Concatenated vectors of some documents; `counts[i]` of them belong to the document `documents[i]`."""

    documents: Numbers
    counts: Numbers
    vectors: Vectors


class _Shard:
    """One shard, with documents numbered over the whole corpus."""

    def __init__(self, folder: Path, first_document: int) -> None:
        state = json.loads((folder / "vectors.json").read_text("utf-8"))
        self.first_document = first_document
        self.documents = map_array(folder / _FILES[1])
        self.offsets = map_array(folder / _FILES[2])
        shape = (int(self.offsets[-1]), state["dimension"])
        self.vectors: Vectors = np.zeros(shape, state["dtype"])
        if shape[0]:
            self.vectors = np.asarray(np.memmap(folder / _FILES[0], state["dtype"], "c", shape=shape))
        self._positions = np.argsort(self.documents)

    def get_vectors(self, document: int) -> Vectors:
        position = self._positions[document - self.first_document]
        vectors: Vectors = self.vectors[self.offsets[position] : self.offsets[position + 1]]
        return vectors

    def blocks(self, block_size: int) -> Iterator[Block]:
        """Yield all documents in the order of the file, in blocks of about `block_size` vectors."""
        start = 0
        while start < len(self.documents):
            end = int(np.searchsorted(self.offsets, self.offsets[start] + block_size, "right")) - 1
            end = min(max(end, start + 1), len(self.documents))
            bounds = self.offsets[start : end + 1]
            yield Block(
                self.documents[start:end].astype(np.int64) + self.first_document,
                np.diff(bounds),
                self.vectors[bounds[0] : bounds[-1]],
            )
            start = end


class TokenStore:
    """The vectors of all shards. Documents are numbered in corpus order."""

    def __init__(self, shards: Sequence[Path]) -> None:
        self._folders = shards
        self._shards: list[_Shard] = []
        self._first_documents: list[int] = []
        documents = 0
        for folder in shards:
            self._first_documents.append(documents)
            self._shards.append(_Shard(folder, documents))
            documents += len(self._shards[-1].documents)
        self.documents = documents
        self.dimension = self._shards[0].vectors.shape[1]
        self.vectors = sum(len(shard.vectors) for shard in self._shards)

    def size(self) -> int:
        return total_size(*(folder / name for folder in self._folders for name in _FILES))

    def sample(self, count: int) -> Floats:
        return sample_rows([shard.vectors for shard in self._shards], count)

    def blocks(self, block_size: int) -> Iterator[Block]:
        """Yield all documents in stored order, in blocks of about `block_size` vectors."""
        for shard in self._shards:
            yield from shard.blocks(block_size)

    def read(self, documents: Numbers, block_size: int) -> Iterator[Block]:
        """Yield the given documents, in their order, in blocks of about `block_size` vectors."""
        pending_vectors: list[Vectors] = []
        start = gathered_count = 0
        shards = np.searchsorted(self._first_documents, documents, "right") - 1
        for end, (document, shard) in enumerate(zip(documents.tolist(), shards.tolist(), strict=True), 1):
            pending_vectors.append(self._shards[shard].get_vectors(document))
            gathered_count += len(pending_vectors[-1])
            if end == len(documents) or gathered_count >= block_size:
                counts = np.array([len(vectors) for vectors in pending_vectors], np.int64)
                yield Block(documents[start:end], counts, np.concatenate(pending_vectors))
                pending_vectors, start, gathered_count = [], end, 0

    def write_owners(self, path: Path) -> None:
        """Write an array (uint32) with the document number of each vector, in stored order."""
        owners = new_map(path, np.uint32, (self.vectors,))
        start = 0
        for shard in self._shards:
            end = start + len(shard.vectors)
            owners[start:end] = np.repeat(shard.documents + np.uint32(shard.first_document), np.diff(shard.offsets))
            start = end
        owners.flush()


_INDEX_FILE, _OWNERS = "nearest.faiss", "owners.npy"
#: Number of vectors that are indexed at a time.
_VECTORS_AT_ONCE = 65_536
#: Maximum number of lists.
_MAX_LISTS = 16_384


class NearestTokens:
    """A faiss index of all vectors, which searches a number of lists for the nearest ones."""

    def __init__(self, nearest: int, probes: int, threads: int) -> None:
        self._nearest, self._probes, self._threads = nearest, probes, threads

    def build(self, store: TokenStore, folder: Path) -> None:
        """Write an index of all vectors, and the document number of each vector, to the folder."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        lists = count_lists(store.vectors, store.dimension, maximum=_MAX_LISTS)
        index: Any = faiss.index_factory(store.dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # `count_lists` determines a sufficient number
        if store.vectors:
            index.train(store.sample(lists * VECTORS_PER_LIST))
            for block in store.blocks(_VECTORS_AT_ONCE):
                index.add(np.ascontiguousarray(block.vectors, np.float32))
        faiss.write_index(index, str(folder / _INDEX_FILE))
        store.write_owners(folder / _OWNERS)

    def open(self, folder: Path) -> None:
        """Map the approximate index of a folder into memory and set the number of probed lists."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        self._folder = folder
        index: Any = faiss.read_index(str(folder / _INDEX_FILE), faiss.IO_FLAG_MMAP)
        index.nprobe = min(self._probes, index.nlist)
        self._index = index
        self._owners = map_array(folder / _OWNERS)

    def size(self) -> int:
        return total_size(self._folder)

    def documents(self, query: Floats) -> Numbers:
        """Return the sorted documents of the vectors nearest to each query vector (vectors × dimension)."""
        if not len(query) or not len(self._owners):
            return np.empty(0, np.int64)
        _, numbers = counted_search(self._index, np.ascontiguousarray(query), min(self._nearest, len(self._owners)))
        return np.unique(self._owners[numbers[numbers >= 0]]).astype(np.int64)


_LEARNED_FILE, _CODES_FILE = "learned.faiss", "codes.bin"
_CODE_FILES = ("starts.npy", "counts.npy", "lists.npy", "list_offsets.npy")
#: Maximum number of centroids. Their numbers fit into two bytes, and their training data into 2 GiB (128 dimensions).
_MAX_CENTROIDS = 65_536
#: Minimum number of centroids at which a graph finds the nearest one, in a seventh of the time.
_MIN_GRAPH_CENTROIDS = 16_384
_VALUES = 256
#: Number of documents that are scored by their residuals: per requested document, and at least.
_SCORED_PER_WANTED, _MIN_SCORED = 4, 4_096


class CompressedTokens:
    """An index of compressed vectors with 1, 2, 4, or 8 `bits` per dimension of a residual."""

    def __init__(self, bits: int, probes: int, threads: int) -> None:
        self._bits, self._probes, self._threads = bits, probes, threads

    def learn(self, store: TokenStore, folder: Path) -> None:
        """Learn centroids and codes from a sample of the vectors, and write them to the folder."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        dimension = store.dimension
        lists = count_lists(store.vectors, dimension, maximum=_MAX_CENTROIDS)
        group_size = max(n for n in range(1, 8 // self._bits + 1) if dimension % n == 0)
        quantiser = f"IVF{lists}_HNSW32" if lists >= _MIN_GRAPH_CENTROIDS else f"IVF{lists}"
        index: Any = faiss.index_factory(dimension, f"{quantiser},PQ{dimension // group_size}x8")
        index.do_polysemous_training = False  # orders codes for an unused filter
        index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
        sample = store.sample(max(lists * VECTORS_PER_LIST, CODE_TRAINING_VECTORS))
        if len(sample) < _VALUES:  # faiss requires as many vectors as codes; np.resize repeats vectors, or adds zeros
            sample = np.resize(sample, (_VALUES, dimension))
        index.train(sample)
        faiss.write_index(index, str(folder / _LEARNED_FILE))

    def build(self, store: TokenStore, learned: Path, folder: Path) -> None:
        """Write the codes of the vectors and the lists of documents to the folder, using data from `learn`."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        index: Any = faiss.read_index(str(learned / _LEARNED_FILE))
        faiss.write_index(index, str(folder / _LEARNED_FILE))
        starts, counts = np.zeros(store.documents, np.int64), np.zeros(store.documents, np.uint32)
        end, lengths = 0, np.zeros(index.nlist, np.int64)
        with (folder / _CODES_FILE).open("wb") as file:
            for block in store.blocks(_VECTORS_AT_ONCE):
                codes = index.sa_encode(np.ascontiguousarray(block.vectors, np.float32))
                file.write(codes.data)
                starts[block.documents] = end + np.cumsum(block.counts) - block.counts
                counts[block.documents] = block.counts
                end += len(codes)
                lengths += np.bincount(
                    _list_document_pairs(index, codes, block.documents, block.counts)[0],
                    minlength=index.nlist,
                )
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        for name, array in (("starts", starts), ("counts", counts), ("list_offsets", offsets)):
            np.save(folder / f"{name}.npy", array)
        self._write_lists(index, store, folder, offsets)

    def _write_lists(self, index: Any, store: TokenStore, folder: Path, offsets: Numbers) -> None:
        """Write the documents of each list in a second pass over the codes, after the lengths are known."""
        documents = new_map(folder / "lists.npy", np.uint32, (int(offsets[-1]),))
        codes, end, cursors = self._map_codes(index, folder), 0, offsets[:-1].copy()
        for block in store.blocks(_VECTORS_AT_ONCE):
            block_codes = codes[end : end + len(block.vectors)]
            lists, owners = _list_document_pairs(index, block_codes, block.documents, block.counts)
            distinct_lists, first, lengths = np.unique(lists, return_index=True, return_counts=True)
            documents[np.repeat(cursors[distinct_lists] - first, lengths) + np.arange(len(lists))] = owners
            cursors[distinct_lists] += lengths
            end += len(block_codes)
        documents.flush()

    @staticmethod
    def _map_codes(index: Any, folder: Path) -> NDArray[np.uint8]:
        path, width = folder / _CODES_FILE, index.sa_code_size()
        if not path.stat().st_size:
            return np.zeros((0, width), np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "c")).reshape(-1, width)

    def open(self, folder: Path) -> None:
        """Load the centroids and map the compressed token vectors of a folder into memory."""
        import faiss

        index: Any = faiss.read_index(str(folder / _LEARNED_FILE))
        self._lists_bytes = index.coarse_code_size()
        self._centroids = index.quantizer.reconstruct_n(0, index.nlist)
        pq = index.pq
        self._values = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
        self._codes = self._map_codes(index, folder)
        self._starts, self._counts, self._lists, self._offsets = (map_array(folder / name) for name in _CODE_FILES)
        self._folder = folder

    def size(self) -> int:
        return total_size(self._folder)

    def search(self, query: Floats, depth: int) -> Ranking:
        """Return candidate documents in ascending order, with their approximate MaxSim scores for a query.

        The query has the shape (vectors, dimension). Candidates have a vector at a probed centroid. If there
        are many, only the best by their centroids are returned: four for each of `depth` documents, and at
        least 4,096.
        """
        products = np.ascontiguousarray(self._centroids @ query.T)
        operations.add(lambda: (len(self._centroids) + _VALUES) * query.size)
        documents = self._find_candidates(products)
        scored_count = max(_SCORED_PER_WANTED * depth, _MIN_SCORED)
        if len(documents) > scored_count:
            centroid_scores = self._score(documents, products, np.zeros((0, 1, len(query)), np.float32))
            documents = np.sort(documents[np.argpartition(centroid_scores, -scored_count)[-scored_count:]])
        pieces = query.reshape(len(query), *self._values[:, 0].shape)
        tables = np.einsum("mkd,qmd->mkq", self._values, pieces)
        return documents, self._score(documents, products, np.ascontiguousarray(tables, np.float32))

    def _find_candidates(self, products: Floats) -> Numbers:
        """Return the sorted documents in the lists of the centroids nearest to each query vector."""
        probes = min(self._probes, len(products))
        nearest_centroids = np.unique(np.argpartition(products, -probes, axis=0)[-probes:])
        is_candidate = np.zeros(len(self._starts), bool)
        for number in nearest_centroids.tolist():
            is_candidate[self._lists[self._offsets[number] : self._offsets[number + 1]]] = True
        return np.flatnonzero(is_candidate)

    def _score(self, documents: Numbers, products: Floats, tables: Floats) -> Floats:
        """Return the scores of `score_codes` for the documents, and report the operations."""
        from evaluation.engines.index.kernels import score_codes

        scores = np.empty(len(documents), np.float32)
        looked_up = products.shape[1] * (1 + len(tables))  # additions per vector
        operations.add(lambda: int(self._counts[documents].sum()) * looked_up)
        score_codes(documents, self._starts, self._counts, self._codes, self._lists_bytes, products, tables, scores)
        return scores


def _list_document_pairs(
    index: Any, codes: NDArray[np.uint8], documents: Numbers, counts: Numbers
) -> tuple[Numbers, Ranks]:
    """Return distinct pairs of list and document for the vectors, sorted by list."""
    lists = np.zeros(len(codes), np.uint64)
    for byte in range(index.coarse_code_size()):
        lists |= codes[:, byte].astype(np.uint64) << np.uint64(8 * byte)
    pairs = np.unique(lists << np.uint64(32) | np.repeat(documents, counts).astype(np.uint64))
    return (pairs >> np.uint64(32)).astype(np.int64), pairs.astype(np.uint32)
