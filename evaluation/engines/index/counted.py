"""Searches of faiss whose multiply-adds are told to whoever counts operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.engines import operations


def counted_search(
    index: Any, queries: NDArray[np.float32], depth: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """What `index.search` finds for queries × dimensions: scores, and numbers of vectors."""
    if not operations.are_counted():
        return _search(index, queries, depth)
    import faiss

    counters: Any = faiss.cvar
    lists, graph = counters.indexIVF_stats, counters.hnsw_stats
    lists.reset()
    graph.reset()
    found = _search(index, queries, depth)
    compared = lists.ndis + graph.ndis
    if hasattr(index, "nprobe"):
        compared += len(queries) * index.nlist
    elif hasattr(index, "pq"):  # products of the values that codes have are added up, one for each piece
        operations.add(lambda: len(queries) * (index.ntotal * index.pq.M + index.d * index.pq.ksub))
    elif not hasattr(index, "hnsw"):
        compared = len(queries) * index.ntotal
    operations.add(lambda: compared * index.d)
    return found


def _search(
    index: Any, queries: NDArray[np.float32], depth: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    scores, numbers = index.search(queries, depth)
    return scores, numbers
