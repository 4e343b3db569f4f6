"""Exact search by inner products, over vectors in memory-mapped files: neither they nor the scores need fit in memory.

Every document is scored by a matrix product in float32, block by block, and what may be among the best is scored again
in float64. A matrix product of d dimensions errs by at most γ = d·u / (1 − d·u) times the product of the norms, with
u = 2⁻²⁴ (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3.1). So whatever lies within 2γ of the
k-th best stays a candidate, and the result is the true one: the same for every size of block, number of threads,
library and device.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure
from evaluation.engines.index import exact_kernels

if TYPE_CHECKING:
    from evaluation.engines.index.device_search import DeviceSearch

Vectors = NDArray[Any]
Scores = NDArray[np.float32]
#: The best documents of a query by their numbers, in trec order, and their scores.
Found = tuple[NDArray[np.int64], Scores]

#: Scores held at a time: 32 MiB of them.
_SCORES_HELD = 2**23
_SHORTEST_BLOCK = 2_048
_LONGEST_BLOCK = 65_536
#: Queries searched in one pass over the documents.
QUERIES_AT_ONCE = 1_024
#: Vectors gathered at a time to be scored again.
_ROWS_AT_ONCE = 8_192
_UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, slots=True)
class Shard:
    """Vectors (documents × dimensions, float32 or float16) and an upper bound of their Euclidean norms."""

    vectors: Vectors
    greatest_norm: float

    @classmethod
    def of(cls, vectors: Vectors) -> Shard:
        """The shard of these vectors, their norms computed."""
        return cls(vectors, greatest_norm(vectors))


def greatest_norm(vectors: Vectors) -> float:
    """The greatest Euclidean norm of the rows, 0 where there are none."""
    greatest = 0.0
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        some = np.asarray(vectors[start : start + _ROWS_AT_ONCE], np.float64)
        greatest = max(greatest, float(np.einsum("ij,ij->i", some, some).max(initial=0.0)))
    return float(np.sqrt(greatest))


class ExactSearch:
    """Searches shards of one collection, whose documents are numbered through in their order.

    `ranks[d]` is the place of document d in the descending order of ids, which decides among equal scores. A `device`
    other than "cpu" computes the matrix products; everything else is done with `threads` threads here. `block` is how
    many documents are scored at a time, by default what suits the number of queries.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        ranks: NDArray[np.uint32],
        *,
        device: str = "cpu",
        threads: int = 1,
        block: int | None = None,
    ) -> None:
        self._shards = shards
        self._starts = np.cumsum([0, *(len(shard.vectors) for shard in shards)])
        self._ranks = ranks
        self._threads = max(threads, 1)
        self._block = block
        self.greatest_norm = max((shard.greatest_norm for shard in shards), default=0.0)
        self._device_search = _device_search(shards, device)
        exact_kernels.load()

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self._starts[-1])

    def search(self, queries: Scores, depth: int) -> Iterator[Found]:
        """The best `depth` documents of each query (queries × dimensions), in the order of the queries.

        Raises ModelFailure where a score could be beyond float32.
        """
        wanted = min(depth, self.documents)
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            some = np.ascontiguousarray(queries[start : start + QUERIES_AT_ONCE], np.float32)
            if wanted:
                yield from self._search(some, wanted)
            else:
                yield from [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(some)

    def rescore(self, query: Scores, documents: NDArray[np.int64]) -> Scores:
        """The exact scores of these documents, rounded to float32."""
        scores = np.empty(len(documents), np.float32)
        for start in range(0, len(documents), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            exact_kernels.inner_products(query, self._rows(documents[some]), scores[some])
        return scores

    def _search(self, queries: Scores, wanted: int) -> Iterator[Found]:
        """The best of each query: from what the device says, or from all scores where that leaves doubts."""
        if self._device_search is None:
            yield from self._search_here(queries, wanted)
            return
        candidates = _Candidates(self, queries, wanted)
        undecided = candidates.take(*self._device_search.candidates(queries, wanted, self._block))
        found_here = self._search_here(queries[undecided], wanted)
        for query in range(len(queries)):
            yield next(found_here) if undecided[query] else candidates.best(query)

    def _search_here(self, queries: Scores, wanted: int) -> Iterator[Found]:
        """Let all documents pass by."""
        if not len(queries):
            return
        candidates = _Candidates(self, queries, wanted)
        width = self._block or min(max(_SCORES_HELD // len(queries), _SHORTEST_BLOCK), _LONGEST_BLOCK)
        held = np.empty(len(queries) * min(width, self.documents), np.float32)
        edges = np.linspace(0, len(queries), min(self._threads, len(queries)) + 1, dtype=int).tolist()
        parts = [slice(start, end) for start, end in pairwise(edges)]
        multiply = _multiplier(queries)
        with ExitStack() as stack:
            # One part stays in this thread: handing it to another costs more than it takes, most on a busy machine.
            spread: Callable[..., Iterator[Any]] = map
            if len(parts) > 1:
                spread = stack.enter_context(ThreadPoolExecutor(len(parts))).map
            for first, vectors in self._blocks(width):
                scores = held[: len(queries) * len(vectors)].reshape(len(queries), len(vectors))
                multiply(vectors, scores)
                deque(spread(partial(candidates.sieve, scores, first), parts), maxlen=0)
            yield from spread(candidates.best, range(len(queries)))

    def _blocks(self, width: int) -> Iterator[tuple[int, Vectors]]:
        """(number of the first document, vectors) of blocks of at most `width` documents."""
        for first, shard in zip(self._starts.tolist(), self._shards, strict=False):
            for start in range(0, len(shard.vectors), width):
                yield first + start, shard.vectors[start : start + width]

    def _rows(self, documents: NDArray[np.int64]) -> Scores:
        """The vectors of these documents, in float32."""
        homes = np.searchsorted(self._starts, documents, side="right") - 1
        rows = np.empty((len(documents), self._shards[0].vectors.shape[1]), np.float32)
        for home in np.unique(homes).tolist():
            here = homes == home
            rows[here] = self._shards[home].vectors[documents[here] - self._starts[home]]
        return rows

    def in_order(self, documents: NDArray[np.int64], scores: Scores, wanted: int) -> Found:
        """The best `wanted` of these documents, in trec order."""
        order = np.lexsort((self._ranks[documents], -scores))[:wanted]
        return documents[order], scores[order]


class _Candidates:
    """What may be among the best `wanted` documents of each query, while the documents pass by."""

    def __init__(self, searcher: ExactSearch, queries: Scores, wanted: int) -> None:
        self._searcher = searcher
        self._queries = queries
        self._wanted = wanted
        count, dimensions = queries.shape
        greatest_norm = searcher.greatest_norm
        norms = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        greatest = float(norms.max(initial=0.0)) * greatest_norm
        if not greatest < float(np.finfo(np.float32).max) / 2:
            raise ModelFailure("not_finite_output", "inner products of the vectors are beyond float32")
        error = dimensions * _UNIT_ROUNDOFF / (1 - dimensions * _UNIT_ROUNDOFF)
        # Two errors of the product, two roundings of the exact score, and what comparing in float32 loses.
        self._margins = (norms * greatest_norm * (2 * error + 4 * _UNIT_ROUNDOFF) + 1e-37).astype(np.float32)
        self._least = np.full(count, -np.inf, np.float32)
        capacity = max(4 * wanted, 1_024)
        self._scores = np.empty((count, capacity), np.float32)
        self._documents = np.empty((count, capacity), np.int64)
        self._found = np.zeros(count, np.int64)

    def sieve(self, scores: Scores, first_document: int, rows: slice) -> None:
        """Take the candidates of some queries (rows) among the scores of a block (queries × documents)."""
        scores = scores[rows]
        columns = np.zeros(len(scores), np.int64)
        margins, least, found = self._margins[rows], self._least[rows], self._found[rows]
        kept, documents = self._scores[rows], self._documents[rows]
        while not exact_kernels.sieve(
            scores, first_document, columns, self._wanted, margins, least, kept, documents, found
        ):
            for row in np.flatnonzero(columns < scores.shape[1]).tolist():
                self._settle(rows.start + row)

    def take(self, scores: Scores, documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Take what is best by approximate scores (descending); say for which queries more might belong to it."""
        width = scores.shape[1]
        self._scores[:, :width], self._documents[:, :width], self._found[:] = scores, documents, width
        if width == self._searcher.documents:
            return np.zeros(len(scores), np.bool_)
        undecided: NDArray[np.bool_] = scores[:, -1] >= scores[:, self._wanted - 1] - self._margins
        return undecided

    def _settle(self, query: int) -> None:
        """Decide among too many candidates of almost equal score by their exact scores and ids."""
        documents, scores = self.best(query)
        kept = len(documents)
        self._documents[query, :kept], self._scores[query, :kept] = documents, scores
        self._found[query] = kept

    def best(self, query: int) -> Found:
        """The best among the candidates so far, scored exactly, in trec order."""
        found = int(self._found[query])
        scores = self._scores[query, :found]
        documents = self._documents[query, :found]
        if found > self._wanted:
            least = exact_kernels.greatest(scores.copy(), self._wanted - 1) - self._margins[query]
            documents = documents[scores >= least]
        documents = np.sort(documents)
        return self._searcher.in_order(
            documents, self._searcher.rescore(self._queries[query], documents), self._wanted
        )


def _device_search(shards: Sequence[Shard], device: str) -> DeviceSearch | None:
    if device == "cpu":
        return None
    from evaluation.engines.index.device_search import DeviceSearch

    return DeviceSearch([shard.vectors for shard in shards], device)


def _multiplier(queries: Scores) -> Callable[[Vectors, Scores], object]:
    """A function that writes the products of the queries with a block of vectors into an array."""
    if "torch" not in sys.modules:
        return lambda vectors, products: np.matmul(
            queries, vectors.astype(np.float32, copy=False).T, out=products
        )
    import torch  # whoever loaded it has set its threads

    from evaluation.engines.index.device_search import tensor_of

    ours = torch.from_numpy(queries)
    return lambda vectors, products: torch.mm(
        ours, tensor_of(vectors).float().T, out=torch.from_numpy(products)
    )
