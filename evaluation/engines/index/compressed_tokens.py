"""Vectors of tokens as the nearest of many centroids, and a few bits a dimension for the rest; search over such codes.

K. Santhanam et al., "ColBERTv2: Effective and Efficient Retrieval via Lightweight Late Interaction", 2022 (residual
compression), and "PLAID: An Efficient Engine for Late Interaction Retrieval", 2022 (the search). faiss learns the
centroids (k-means) and the codes of the residuals: one byte for the values of four dimensions together, where two bits
a dimension are asked for, which is closer to the vectors than four levels for each would be.

A search looks at the documents in the lists of the centroids nearest to each of the query's vectors, ranks them by
their centroids alone, and scores the best of them by centroids and residuals. Every score is added up in a fixed order,
and depends on query, document and what was learned alone.

Files: `learned.faiss` (centroids, codes); `codes.bin` (vectors × bytes: the number of the centroid, lowest byte first,
then the residual's code), `starts.npy` and `counts.npy` (where each document's lie, and how many); `lists.npy` and
`list_offsets.npy` (the documents that have a vector at each centroid).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.strings import map_array
from evaluation.core.writing import new_map
from evaluation.engines import operations
from evaluation.engines.index.kernels import compiled
from evaluation.engines.index.learning import CODES_LEARNED_FROM, VECTORS_PER_LIST, lists_for
from evaluation.engines.index.token_store import TokenStore

_LEARNED, _CODES = "learned.faiss", "codes.bin"
_FILES = ("starts.npy", "counts.npy", "lists.npy", "list_offsets.npy")
_AT_ONCE = 65_536
#: Centroids at most: two bytes name one, and what they are learned from stays within 2 GiB (128 dimensions).
_MOST_LISTS = 65_536
#: From so many centroids on a graph finds the nearest one, in a seventh of the time.
_GRAPH_FROM = 16_384
_VALUES = 256
#: Documents that are scored by their residuals: so many for each that is wanted, and at least so many.
_SCORED_PER_WANTED, _LEAST_SCORED = 4, 4_096

Scored = tuple[NDArray[np.int64], NDArray[np.float32]]


class CompressedTokens:
    """An index of the codes; `bits` is how many each dimension of a residual takes: 1, 2, 4 or 8."""

    def __init__(self, bits: int, probes: int, threads: int) -> None:
        self._bits = bits
        self._probes = probes
        self._threads = threads
        self._size = 0

    def learn(self, store: TokenStore, dimension: int, folder: Path) -> None:
        """Learn centroids and codes from a sample of the vectors, and write them into the folder."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        lists = lists_for(store.vectors, dimension, most=_MOST_LISTS)
        together = max(n for n in range(1, 8 // self._bits + 1) if dimension % n == 0)
        quantiser = f"IVF{lists}_HNSW32" if lists >= _GRAPH_FROM else f"IVF{lists}"
        index: Any = faiss.index_factory(dimension, f"{quantiser},PQ{dimension // together}x8")
        index.do_polysemous_training = False  # it orders codes for a filter that is not used
        index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
        sample = store.sample(max(lists * VECTORS_PER_LIST, CODES_LEARNED_FROM))
        if len(sample) < _VALUES:  # faiss wants as many as codes; of none there are zeros
            sample = np.resize(sample, (_VALUES, dimension))
        index.train(sample)
        faiss.write_index(index, str(folder / _LEARNED))

    def build(self, store: TokenStore, learned: Path, folder: Path) -> None:
        """Write the codes of the vectors and the lists of documents into the folder, by what `learn` left."""
        import faiss

        faiss.omp_set_num_threads(self._threads)
        index: Any = faiss.read_index(str(learned / _LEARNED))
        faiss.write_index(index, str(folder / _LEARNED))
        starts, counts = np.zeros(store.documents, np.int64), np.zeros(store.documents, np.uint32)
        end, lengths = 0, np.zeros(index.nlist, np.int64)
        with (folder / _CODES).open("wb") as file:
            for block in store.blocks(_AT_ONCE):
                codes = index.sa_encode(np.ascontiguousarray(block.vectors, np.float32))
                file.write(codes.data)
                starts[block.documents] = end + np.cumsum(block.counts) - block.counts
                counts[block.documents] = block.counts
                end += len(codes)
                lengths += np.bincount(
                    _pairs(index, codes, block.documents, block.counts)[0], minlength=index.nlist
                )
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        for name, array in zip(_FILES, (starts, counts, None, offsets), strict=True):
            if array is not None:
                np.save(folder / name, array)
        self._write_lists(index, store, folder, offsets)

    def _write_lists(self, index: Any, store: TokenStore, folder: Path, offsets: NDArray[np.int64]) -> None:
        """Write the documents of each list; a second pass over the codes says how long each is before."""
        documents = new_map(folder / "lists.npy", np.uint32, (int(offsets[-1]),))
        codes, end, cursors = self._map_codes(index, folder), 0, offsets[:-1].copy()
        for block in store.blocks(_AT_ONCE):
            some = codes[end : end + len(block.vectors)]
            lists, owners = _pairs(index, some, block.documents, block.counts)
            met, first, lengths = np.unique(lists, return_index=True, return_counts=True)
            documents[np.repeat(cursors[met] - first, lengths) + np.arange(len(lists))] = owners
            cursors[met] += lengths
            end += len(some)
        documents.flush()

    @staticmethod
    def _map_codes(index: Any, folder: Path) -> NDArray[np.uint8]:
        path, width = folder / _CODES, index.sa_code_size()
        if not path.stat().st_size:
            return np.zeros((0, width), np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "c")).reshape(-1, width)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        import faiss

        index: Any = faiss.read_index(str(folder / _LEARNED))
        self._lists_bytes = index.coarse_code_size()
        self._centroids = index.quantizer.reconstruct_n(0, index.nlist)
        pq = index.pq
        self._values = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
        self._codes = self._map_codes(index, folder)
        self._starts, self._counts, self._lists, self._offsets = (map_array(folder / name) for name in _FILES)
        self._size = sum((folder / name).stat().st_size for name in (_LEARNED, _CODES, *_FILES))

    def size(self) -> int:
        """Bytes of the index."""
        return self._size

    def search(self, query: NDArray[np.float32], depth: int) -> Scored:
        """The documents that get a score, ascending, and their scores, for a query (vectors × dimension)."""
        products = np.ascontiguousarray(self._centroids @ query.T)
        operations.add(lambda: (len(self._centroids) + _VALUES) * query.size)
        documents = self._candidates(products)
        most = max(_SCORED_PER_WANTED * depth, _LEAST_SCORED)
        if len(documents) > most:
            rough = self._score(documents, products, np.zeros((0, 1, len(query)), np.float32))
            documents = np.sort(documents[np.argpartition(rough, -most)[-most:]])
        pieces = query.reshape(len(query), *self._values[:, 0].shape)
        tables = np.einsum("mkd,qmd->mkq", self._values, pieces)
        return documents, self._score(documents, products, np.ascontiguousarray(tables, np.float32))

    def _candidates(self, products: NDArray[np.float32]) -> NDArray[np.int64]:
        """The documents, ascending, in the lists of the centroids nearest to any of the query's vectors."""
        probes = min(self._probes, len(products))
        nearest = np.unique(np.argpartition(products, -probes, axis=0)[-probes:])
        met = np.zeros(len(self._starts), bool)
        for number in nearest.tolist():
            met[self._lists[self._offsets[number] : self._offsets[number + 1]]] = True
        return np.flatnonzero(met)

    def _score(
        self, documents: NDArray[np.int64], products: NDArray[np.float32], tables: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        scores = np.empty(len(documents), np.float32)
        looked_up = products.shape[1] * (1 + len(tables))  # products of a vector, which are added
        operations.add(lambda: int(self._counts[documents].sum()) * looked_up)
        _score_codes(
            documents, self._starts, self._counts, self._codes, self._lists_bytes, products, tables, scores
        )
        return scores


def _pairs(
    index: Any, codes: NDArray[np.uint8], documents: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """(list, document) of these vectors, each pair once, ordered by list."""
    lists = np.zeros(len(codes), np.uint64)
    for byte in range(index.coarse_code_size()):
        lists |= codes[:, byte].astype(np.uint64) << np.uint64(8 * byte)
    pairs = np.unique(lists << np.uint64(32) | np.repeat(documents, counts).astype(np.uint64))
    return (pairs >> np.uint64(32)).astype(np.int64), pairs.astype(np.uint32)


@compiled
def _score_codes(
    documents: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.uint32],
    codes: NDArray[np.uint8],
    list_bytes: int,
    products: NDArray[np.float32],
    tables: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:
    """Fill the MaxSim of documents, -inf for those without vectors.

    `products` (centroids × query's vectors) and `tables` (pieces × values × query's vectors) are the inner products of
    the query's vectors with what a code stands for: those of a vector are one row and a sum of rows. Without any
    pieces vectors count as their centroids.
    """
    size = products.shape[1]
    best, sums = np.empty(size, np.float32), np.empty(size, np.float32)
    for place in range(len(documents)):
        best[:] = -np.inf
        start = starts[documents[place]]
        for row in range(start, start + counts[documents[place]]):
            number = np.int64(0)
            for byte in range(list_bytes):
                number |= np.int64(codes[row, byte]) << (8 * byte)
            for one in range(size):
                sums[one] = products[number, one]
            for piece in range(tables.shape[0]):
                value = codes[row, list_bytes + piece]
                for one in range(size):
                    sums[one] += tables[piece, value, one]
            for one in range(size):
                best[one] = max(best[one], sums[one])
        total = 0.0
        for one in range(size):
            total += best[one]
        scores[place] = total
