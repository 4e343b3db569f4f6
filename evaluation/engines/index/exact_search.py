"""Exact search by inner products, over vectors in memory-mapped files: neither they nor the scores need fit in memory.

Every document is scored in float32, block by block, and some more documents are kept than are wanted; these are scored
again in float64, in a fixed order of additions. A float32 product of d dimensions errs by at most γ = d·u / (1 − d·u)
times the product of the norms, with u = 2⁻²⁴ (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3.1).
So every document of the best k scores at most 2γ below the k-th best in float32. Where the last document kept scores
lower than that, the result is proved. Otherwise (many equal scores) all documents within 2γ are scored exactly. The
result is the same for every size of block, number of threads, library and device.

faiss scores many queries: 1,000 of them over 1,000,000 × 384 take 1.00 of the CPU time of its IndexFlatIP. For few
queries it is slow: 64 over 250,000 × 384 take 0.41 of IndexFlatIP's CPU time, one takes 0.50, by a matrix product and a
look at what is above the worst document kept. Measured with two threads beside other work.
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
#: The best documents of a query by their numbers, in trec order, and their scores.
Found = tuple[Numbers, Floats]

#: Documents scored at a time, and numbers of their vectors: 128 MiB where they are stored in float16.
_BLOCK, _NUMBERS = 65_536, 2**25
#: Floats held at a time where all of them are looked at: 32 MiB.
_SCORES_HELD = 2**23
#: From so many queries on faiss searches; for fewer, the matrix product beside it is quicker.
MANY_QUERIES = 256
#: Queries searched in one pass over the documents.
QUERIES_AT_ONCE = 1_024
#: Documents kept beyond those wanted, so that rounding seldom leaves out one that belongs to them.
SPARE = 64
#: Vectors gathered at a time to be scored again.
_ROWS_AT_ONCE = 8_192
_UNIT_ROUNDOFF = 2.0**-24


def greatest_norm(vectors: Vectors) -> float:
    """Return the greatest Euclidean norm of the rows, 0 where there are none."""
    greatest = 0.0
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        some = np.asarray(vectors[start : start + _ROWS_AT_ONCE], np.float64)
        greatest = max(greatest, float(np.einsum("ij,ij->i", some, some).max(initial=0.0)))
    return float(np.sqrt(greatest))


def gather_rows(
    arrays: Sequence[Vectors], places: Numbers, dtype: Any, starts: Numbers | None = None
) -> NDArray[Any]:
    """Return the rows at these ascending places of arrays that stand for one; `starts` is where each begins."""
    starts = np.cumsum([0, *map(len, arrays)]) if starts is None else starts
    rows = np.empty((len(places), arrays[0].shape[1]), dtype)
    edges = np.searchsorted(places, starts).tolist()
    for array, first, start, end in zip(arrays, starts.tolist(), edges[:-1], edges[1:], strict=False):
        if start < end:
            rows[start:end] = array[places[start:end] - first]
    return rows


class ExactSearch:
    """Searches shards of vectors (documents × dimensions, float32 or float16), numbered through in their order.

    `norm` is an upper bound of the vectors' Euclidean norms. `ranks[d]` is the place of document d in the descending
    order of ids, which decides among equal scores. A `device` other than "cpu" computes the matrix products; everything
    else is done with `threads` threads here.
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
        """How many documents there are."""
        return int(self._starts[-1])

    def search(self, queries: Floats, depth: int) -> Iterator[Found]:
        """Yield the best `depth` documents of each query (queries × dimensions), in the order of the queries.

        Raises ModelFailure where a score could be beyond float32.
        """
        wanted = min(depth, self.documents)
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            some = np.ascontiguousarray(queries[start : start + QUERIES_AT_ONCE], np.float32)
            if wanted:
                yield from self._search(some, wanted)
            else:
                yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(some)

    def _search(self, queries: Floats, wanted: int) -> Iterator[Found]:
        """Yield the best of each query: among the candidates, or among all documents where these leave doubts."""
        margins = self._margins(queries)
        kept = min(wanted + SPARE, self.documents)
        scores, documents = self._candidates(queries, kept)
        least = scores[:, wanted - 1] - margins
        undecided = np.flatnonzero((scores[:, -1] >= least) & (kept < self.documents))
        decided_later = dict(
            zip(
                undecided.tolist(),
                self._search_all(queries[undecided], least[undecided], wanted),
                strict=True,
            )
        )
        for query, vector in enumerate(queries):
            best = decided_later.get(query)
            yield best or self._best(vector, documents[query, scores[query] >= least[query]], wanted)

    def _margins(self, queries: Floats) -> Floats:
        """Return how far below the k-th best score of each query a document of the best k may have been scored."""
        norms = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64)) * self._greatest_norm
        if not norms.max() < float(np.finfo(np.float32).max) / 2:
            raise ModelFailure("not_finite_output", "inner products of the vectors are beyond float32")
        dimensions = queries.shape[1]
        error = dimensions * _UNIT_ROUNDOFF / (1 - dimensions * _UNIT_ROUNDOFF)
        # Two errors of the product, two roundings of the exact score, and what comparing in float32 loses.
        margins: Floats = (norms * (2 * error + 4 * _UNIT_ROUNDOFF) + 1e-37).astype(np.float32)
        return margins

    def _candidates(self, queries: Floats, kept: int) -> tuple[Floats, Numbers]:
        """Floats (descending) and numbers of the `kept` best documents of each query, by scores in float32."""
        if self._device_search is not None:
            found: tuple[Floats, Numbers] = self._device_search.candidates(queries, kept)
            return found
        if len(queries) < MANY_QUERIES or not find_spec("faiss"):
            return self._candidates_of_few(queries, kept)
        import faiss

        faiss.omp_set_num_threads(self._threads)
        best = faiss.ResultHeap(len(queries), kept, keep_max=True)
        operations.add(lambda: queries.size * self.documents)
        for first, vectors in self._blocks(_BLOCK):
            scores, documents = faiss.knn(
                queries,
                np.ascontiguousarray(vectors, np.float32),
                min(kept, len(vectors)),
                metric=faiss.METRIC_INNER_PRODUCT,
            )
            best.add_result(scores, documents + first)
        best.finalize()
        return best.D, best.I

    def _candidates_of_few(self, queries: Floats, kept: int) -> tuple[Floats, Numbers]:
        """Do as `_candidates`, from a matrix product of which each query looks at what is above its `kept`-th."""
        scores = [np.zeros(0, np.float32)] * len(queries)
        documents = [np.zeros(0, np.int64)] * len(queries)
        least = np.full(len(queries), -np.inf, np.float32)
        for first, vectors in self._blocks(self._width(len(queries))):
            for query, row in enumerate(_products(queries, vectors)):
                places = np.flatnonzero(row >= least[query])
                scores[query] = np.concatenate([scores[query], row[places]])
                documents[query] = np.concatenate([documents[query], first + places])
                if len(scores[query]) > kept:
                    best = np.argpartition(scores[query], -kept)[-kept:]
                    scores[query], documents[query] = scores[query][best], documents[query][best]
                    least[query] = scores[query].min()
        orders = [np.argsort(-row) for row in scores]
        return (
            np.stack([row[order] for row, order in zip(scores, orders, strict=True)]),
            np.stack([row[order] for row, order in zip(documents, orders, strict=True)]),
        )

    def _search_all(self, queries: Floats, least: Floats, wanted: int) -> list[Found]:
        """Return the best of each query among all documents that score at least `least`."""
        best: list[Found] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
        for first, vectors in self._blocks(self._width(len(queries))) if len(queries) else ():
            for query, row in enumerate(_products(queries, vectors)):
                documents = first + np.flatnonzero(row >= least[query])
                if len(documents):
                    documents = np.concatenate([best[query][0], documents])
                    best[query] = self._best(queries[query], documents, wanted)
        return best

    def _width(self, queries: int) -> int:
        """Documents whose scores for so many queries are held at a time."""
        return min(max(_SCORES_HELD // queries, 1), _BLOCK)

    def _blocks(self, width: int) -> Iterator[tuple[int, Vectors]]:
        """Yield (number of the first document, vectors) of blocks of at most `width` documents."""
        for first, vectors in zip(self._starts.tolist(), self._shards, strict=False):
            width = min(width, max(_NUMBERS // vectors.shape[1], 1))
            for start in range(0, len(vectors), width):
                yield first + start, vectors[start : start + width]

    def _best(self, query: Floats, documents: Numbers, wanted: int) -> Found:
        """Return the best `wanted` of these documents by their exact scores, in trec order."""
        documents = np.sort(documents)
        scores = np.empty(len(documents), np.float32)
        operations.add(lambda: len(documents) * len(query))
        for start in range(0, len(documents), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            rows = gather_rows(self._shards, documents[some], np.float64, self._starts)
            scores[some] = inner_products(query, rows)
        order = np.lexsort((self._ranks[documents], -scores))[:wanted]
        return documents[order], scores[order]


def _products(queries: Floats, vectors: Vectors) -> Floats:
    """Return the inner products of queries and vectors in float32, by torch, whose threads its loader has set.

    By numpy where torch is not installed: the error of its products has the same bound.
    """
    if not find_spec("torch"):
        operations.add(lambda: queries.size * len(vectors))
        return queries @ np.asarray(vectors, np.float32).T
    import torch

    from evaluation.engines.index.device_search import tensor_of

    products: Floats = torch.mm(torch.from_numpy(queries), tensor_of(vectors).float().T).numpy()
    return products


def inner_products(query: Floats, vectors: Vectors) -> Vectors:
    """Inner products of the query with each row, added up in float64 in a fixed order.

    Products of float32 are exact in float64, and numpy adds them up pairwise, which is accurate to some 10⁻¹⁴: rounded
    to float32, the result is that of real arithmetic unless that lies so close to the middle of two floats.
    """
    products: Vectors = np.add.reduce(vectors * query.astype(np.float64), axis=1)
    return products
