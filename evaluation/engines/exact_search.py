"""Exact search by inner products, over vectors in memory-mapped files: neither they nor the scores need fit in memory.

Every document is scored by a matrix product in float32, block by block, and what may be among the best is scored again
in float64. A matrix product of d dimensions errs by at most γ = d·u / (1 − d·u) times the product of the norms, with
u = 2⁻²⁴ (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3.1). So whatever lies within 2γ of the
k-th best stays a candidate, and the result is the true one: the same for every size of block, number of threads,
library and device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.engines import exact_kernels
from evaluation.errors import ModelFailure

Vectors = NDArray[Any]
#: The best documents of a query by their numbers, in trec order, and their scores.
Found = tuple[NDArray[np.int64], NDArray[np.float32]]

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

    `ranks[d]` is the place of document d in the descending order of ids, which decides among equal scores. `device`
    "cuda" computes matrix products there; everything else is done with `threads` threads here. `block` is how many
    documents are scored at a time, by default what suits the number of queries.
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
        self._greatest_norm = max((shard.greatest_norm for shard in shards), default=0.0)
        self._multiply = _multiplier(device)
        exact_kernels.load()

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self._starts[-1])

    def search(self, queries: NDArray[np.float32], depth: int) -> Iterator[Found]:
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

    def rescore(self, query: NDArray[np.float32], documents: NDArray[np.int64]) -> NDArray[np.float32]:
        """The exact scores of these documents, rounded to float32."""
        scores = np.empty(len(documents), np.float32)
        for start in range(0, len(documents), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            exact_kernels.inner_products(query, self._rows(documents[some]), scores[some])
        return scores

    def _search(self, queries: NDArray[np.float32], wanted: int) -> Iterator[Found]:
        candidates = _Candidates(self, queries, wanted, self._greatest_norm)
        width = self._block or min(max(_SCORES_HELD // len(queries), _SHORTEST_BLOCK), _LONGEST_BLOCK)
        held = np.empty(len(queries) * min(width, self.documents), np.float32)
        parts = np.array_split(np.arange(len(queries)), min(self._threads, len(queries)))
        multiply = self._multiply(queries)
        with ThreadPoolExecutor(len(parts)) as pool:
            for first, vectors in self._blocks(width):
                scores = held[: len(queries) * len(vectors)].reshape(len(queries), len(vectors))
                multiply(vectors, scores)
                if len(parts) == 1:
                    candidates.sieve(scores, first, slice(None))
                else:
                    list(
                        pool.map(
                            lambda part, s=scores, f=first: candidates.sieve(
                                s, f, slice(part[0], part[-1] + 1)
                            ),
                            parts,
                        )
                    )
            yield from pool.map(candidates.best, range(len(queries)))

    def _blocks(self, width: int) -> Iterator[tuple[int, Vectors]]:
        """(number of the first document, vectors) of blocks of at most `width` documents."""
        for first, shard in zip(self._starts.tolist(), self._shards, strict=False):
            for start in range(0, len(shard.vectors), width):
                yield first + start, shard.vectors[start : start + width]

    def _rows(self, documents: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these documents, in float32."""
        homes = np.searchsorted(self._starts, documents, side="right") - 1
        rows = np.empty((len(documents), self._shards[0].vectors.shape[1]), np.float32)
        for home in np.unique(homes).tolist():
            here = homes == home
            rows[here] = self._shards[home].vectors[documents[here] - self._starts[home]]
        return rows

    def in_order(self, documents: NDArray[np.int64], scores: NDArray[np.float32], wanted: int) -> Found:
        """The best `wanted` of these documents, in trec order."""
        order = np.lexsort((self._ranks[documents], -scores))[:wanted]
        return documents[order], scores[order]


class _Candidates:
    """What may be among the best `wanted` documents of each query, while the documents pass by."""

    def __init__(
        self, searcher: ExactSearch, queries: NDArray[np.float32], wanted: int, greatest_norm: float
    ) -> None:
        self._searcher = searcher
        self._queries = queries
        self._wanted = wanted
        count, dimensions = queries.shape
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

    def sieve(self, block: NDArray[np.float32], first_document: int, rows: slice) -> None:
        """Take the candidates among a block's scores, for some rows of them."""
        scores = block[rows]
        columns = np.zeros(len(scores), np.int64)
        arrays = (
            self._margins[rows],
            self._least[rows],
            self._scores[rows],
            self._documents[rows],
            self._found[rows],
        )
        while not exact_kernels.sieve(scores, first_document, columns, self._wanted, *arrays):
            for row in np.flatnonzero(columns < scores.shape[1]).tolist():
                self._settle(row + (rows.start or 0))

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


Multiply = Callable[[Vectors, NDArray[np.float32]], None]


def _multiplier(device: str) -> Callable[[NDArray[np.float32]], Multiply]:
    """By the queries, a function that writes their products with a block of vectors into an array."""
    if device.startswith("cuda"):
        return lambda queries: _multiply_on(device, queries)
    if "torch" in sys.modules:  # its threads are set by whoever loaded it
        return lambda queries: _multiply_on("cpu", queries)
    return _multiply_with_numpy


def _multiply_with_numpy(queries: NDArray[np.float32]) -> Multiply:
    def multiply(vectors: Vectors, products: NDArray[np.float32]) -> None:
        np.matmul(queries, vectors.astype(np.float32, copy=False).T, out=products)

    return multiply


def _multiply_on(device: str, queries: NDArray[np.float32]) -> Multiply:
    import torch

    ours = torch.from_numpy(queries).to(device)

    def multiply(vectors: Vectors, products: NDArray[np.float32]) -> None:
        theirs = torch.from_numpy(np.asarray(vectors)).to(device).float()
        if device == "cpu":
            torch.mm(ours, theirs.T, out=torch.from_numpy(products))
        else:
            torch.from_numpy(products).copy_(ours @ theirs.T)

    return multiply
