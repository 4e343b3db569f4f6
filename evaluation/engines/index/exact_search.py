"""Exact search by inner product over memory-mapped vectors, which need not fit into memory.

All documents are scored in float32, block by block. Somewhat more than k of them become candidates, which are scored
again in float64 with a fixed order of additions. The error of a float32 product of d dimensions is at most γ =
d·u / (1 − d·u) times the product of the norms, with u = 2⁻²⁴ (N. Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, §3.1). Every document of the best k therefore scores at most 2γ below the k-th best in float32. If
the last candidate scores lower than that, the result is proved. Otherwise (many equal scores) all documents within 2γ
are scored exactly. The result does not depend on the size of blocks, the number of threads, the library, or the device.

faiss scores large batches of queries, with larger blocks than by default (`tests/benchmarks/exact_search.py`). A matrix
product scores small batches, followed by a comparison with the worst candidate: 64 queries over 250,000 × 384 need 0.41
of IndexFlatIP's CPU time, and one query needs 0.50, with two threads on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.problems import ModelFailure
from evaluation.engines import operations
from evaluation.engines.base import Floats, Numbers, Ranks

if TYPE_CHECKING:
    from evaluation.engines.index.device_search import DeviceSearch

Vectors = NDArray[Any]
#: Numbers of a query's best documents in trec_eval's order, and their scores.
Ranking = tuple[Numbers, Floats]

#: Maximum documents in a block, and maximum values in its vectors (128 MiB for float16).
_BLOCK, _NUMBERS = 65_536, 2**25
#: Maximum number of scores in memory when all documents are compared (32 MiB).
_SCORES_HELD = 2**23
#: Minimum number of queries for faiss; for fewer, a matrix product is faster.
MANY_QUERIES = 256
#: Maximum number of queries in one pass over the documents.
QUERIES_AT_ONCE = 1_024
#: Documents in faiss's matrix products, a setting of the process. With the default, 1,024, a search of 1,000 queries
#: takes about a tenth longer.
_FAISS_BLOCK = 4_096
#: Additional candidates, so that rounding errors rarely require a second pass.
SPARE_CANDIDATES = 64
#: Maximum number of vectors that are gathered at a time for exact scores.
_ROWS_AT_ONCE = 8_192
_UNIT_ROUNDOFF = 2.0**-24


def max_norm(vectors: Vectors) -> float:
    """Return the largest Euclidean norm of the rows, 0 without rows."""
    maximum = 0.0
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = np.asarray(vectors[start : start + _ROWS_AT_ONCE], np.float64)
        maximum = max(maximum, float(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))
    return float(np.sqrt(maximum))


def gather_rows(arrays: Sequence[Vectors], indices: Numbers, dtype: Any, starts: Numbers | None = None) -> NDArray[Any]:
    """Return the rows at ascending indices into the concatenation of several arrays, as a new array of `dtype`.

    `starts` are the indices of each array's first row, and the total length.
    """
    starts = np.cumsum([0, *map(len, arrays)]) if starts is None else starts
    rows = np.empty((len(indices), arrays[0].shape[1]), dtype)
    edges = np.searchsorted(indices, starts).tolist()
    for array, first, start, end in zip(arrays, starts.tolist(), edges[:-1], edges[1:], strict=False):
        if start < end:
            rows[start:end] = array[indices[start:end] - first]
    return rows


class ExactSearch:
    """Exact search over shards of vectors (documents × dimensions, float32 or float16), numbered consecutively.

    Args:
        shards: Arrays of vectors.
        norm: Upper bound of the vectors' Euclidean norms.
        ranks: Position of each document in the descending order of ids, which breaks ties.
        device: Device of the matrix products. Everything else runs on the CPU.
        threads: Number of CPU threads.
    """

    def __init__(
        self, shards: Sequence[Vectors], norm: float, ranks: Ranks, *, device: str = "cpu", threads: int = 1
    ) -> None:
        self._shards = shards
        self._starts = np.cumsum([0, *map(len, shards)])
        self._greatest_norm, self._ranks, self._threads = norm, ranks, threads
        self._device_search: DeviceSearch | None = None
        if device != "cpu":
            from evaluation.engines.index.device_search import DeviceSearch

            self._device_search = DeviceSearch(shards, device)

    @property
    def documents(self) -> int:
        return int(self._starts[-1])

    def search(self, queries: Floats, depth: int) -> Iterator[Ranking]:
        """Yield the best `depth` documents of each query, in the order of the queries.

        Args:
            queries: Vectors, shape (queries, dimensions).
            depth: Number of documents per query.

        Raises:
            ModelFailure: A score could exceed the range of float32.
        """
        count = min(depth, self.documents)
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            batch = np.ascontiguousarray(queries[start : start + QUERIES_AT_ONCE], np.float32)
            if count:
                yield from self._search(batch, count)
            else:
                yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(batch)

    def _search(self, queries: Floats, count: int) -> Iterator[Ranking]:
        """Yield the best `count` documents of each query, among its candidates or, if they do not suffice, all."""
        margins = self._get_margins(queries)
        candidate_count = min(count + SPARE_CANDIDATES, self.documents)
        scores, documents = self._find_candidates(queries, candidate_count)
        thresholds = scores[:, count - 1] - margins
        undecided = np.flatnonzero((scores[:, -1] >= thresholds) & (candidate_count < self.documents))
        decided = dict(
            zip(
                undecided.tolist(),
                self._search_all(queries[undecided], thresholds[undecided], count),
                strict=True,
            )
        )
        for query, vector in enumerate(queries):
            best = decided.get(query)
            yield best or self._rank_exactly(vector, documents[query, scores[query] >= thresholds[query]], count)

    def _get_margins(self, queries: Floats) -> Floats:
        """Return the maximum distance of a top-k document below the k-th best float32 score, for each query.

        Raises ModelFailure if a score could exceed the range of float32.
        """
        norms = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64)) * self._greatest_norm
        if not norms.max() < float(np.finfo(np.float32).max) / 2:
            raise ModelFailure("not_finite_output", "inner products of the vectors exceed the range of float32")
        dimensions = queries.shape[1]
        error = dimensions * _UNIT_ROUNDOFF / (1 - dimensions * _UNIT_ROUNDOFF)
        # Two errors of the product, two roundings of the exact score, and the rounding of the comparison in float32.
        margins: Floats = (norms * (2 * error + 4 * _UNIT_ROUNDOFF) + 1e-37).astype(np.float32)
        return margins

    def _find_candidates(self, queries: Floats, count: int) -> tuple[Floats, Numbers]:
        """Return float32 scores (descending) and numbers of the `count` best documents of each query.

        They are computed on the device, by faiss for many queries, or by matrix products.
        """
        if self._device_search is not None:
            candidates: tuple[Floats, Numbers] = self._device_search.candidates(queries, count)
            return candidates
        if len(queries) < MANY_QUERIES or not find_spec("faiss"):
            return self._multiply_candidates(queries, count)
        import faiss

        faiss.omp_set_num_threads(self._threads)
        faiss.cvar.distance_compute_blas_database_bs = _FAISS_BLOCK
        best = faiss.ResultHeap(len(queries), count, keep_max=True)
        operations.add(lambda: queries.size * self.documents)
        for first, vectors in self._blocks(_BLOCK):
            rows = np.ascontiguousarray(vectors, np.float32)
            scores, documents = faiss.knn(queries, rows, min(count, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
            best.add_result(scores, documents + first)
        best.finalize()
        return best.D, best.I

    def _multiply_candidates(self, queries: Floats, count: int) -> tuple[Floats, Numbers]:
        """Return the result of `_find_candidates` for a small batch, from matrix products with blocks of documents."""
        scores = [np.zeros(0, np.float32)] * len(queries)
        documents = [np.zeros(0, np.int64)] * len(queries)
        thresholds = np.full(len(queries), -np.inf, np.float32)
        for first, vectors in self._blocks(self._get_block_size(len(queries))):
            for query, row in enumerate(_products(queries, vectors)):
                indices = np.flatnonzero(row >= thresholds[query])
                scores[query] = np.concatenate([scores[query], row[indices]])
                documents[query] = np.concatenate([documents[query], first + indices])
                if len(scores[query]) > count:
                    best = np.argpartition(scores[query], -count)[-count:]
                    scores[query], documents[query] = scores[query][best], documents[query][best]
                    thresholds[query] = scores[query].min()
        orders = [np.argsort(-row) for row in scores]
        return (
            np.stack([row[order] for row, order in zip(scores, orders, strict=True)]),
            np.stack([row[order] for row, order in zip(documents, orders, strict=True)]),
        )

    def _search_all(self, queries: Floats, thresholds: Floats, count: int) -> list[Ranking]:
        """Return the best `count` documents of each query among all that score at least its threshold in float32."""
        best: list[Ranking] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
        for first, vectors in self._blocks(self._get_block_size(len(queries))) if len(queries) else ():
            for query, row in enumerate(_products(queries, vectors)):
                documents = first + np.flatnonzero(row >= thresholds[query])
                if len(documents):
                    documents = np.concatenate([best[query][0], documents])
                    best[query] = self._rank_exactly(queries[query], documents, count)
        return best

    def _get_block_size(self, queries: int) -> int:
        """Return the number of documents per block, such that scores for all queries fit into memory."""
        return min(max(_SCORES_HELD // queries, 1), _BLOCK)

    def _blocks(self, width: int) -> Iterator[tuple[int, Vectors]]:
        """Yield the first document number and the vectors, for blocks of at most `width` documents."""
        for first, vectors in zip(self._starts.tolist(), self._shards, strict=False):
            width = min(width, max(_NUMBERS // vectors.shape[1], 1))
            for start in range(0, len(vectors), width):
                yield first + start, vectors[start : start + width]

    def _rank_exactly(self, query: Floats, documents: Numbers, count: int) -> Ranking:
        """Return the best `count` of the given documents by exact scores, in trec_eval's order."""
        documents = np.sort(documents)
        scores = np.empty(len(documents), np.float32)
        operations.add(lambda: len(documents) * len(query))
        for start in range(0, len(documents), _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            scores[batch] = inner_products(query, gather_rows(self._shards, documents[batch], np.float64, self._starts))
        order = np.lexsort((self._ranks[documents], -scores))[:count]
        return documents[order], scores[order]


def _products(queries: Floats, vectors: Vectors) -> Floats:
    """Return the float32 inner products of queries and vectors, computed by torch with its configured threads.

    NumPy replaces torch if that is not installed; its products have the same error bound.
    """
    if not find_spec("torch"):
        operations.add(lambda: queries.size * len(vectors))
        return queries @ np.asarray(vectors, np.float32).T
    import torch

    from evaluation.engines.index.device_search import as_tensor

    products: Floats = torch.mm(torch.from_numpy(queries), as_tensor(vectors).float().T).numpy()
    return products


def inner_products(query: Floats, vectors: Vectors) -> Vectors:
    """Return the inner products of the query with each row, added in float64 in a fixed order.

    Products of float32 values are exact in float64, and NumPy's pairwise addition is accurate to about 10⁻¹⁴. Rounded
    to float32, the result equals that of real arithmetic, unless that is extremely close to the middle between two
    floats.
    """
    products: Vectors = np.add.reduce(vectors * query.astype(np.float64), axis=1)
    return products
