"""The first documents of every query of a run, in one small memory-mapped file: what pages show of a run.

A run has up to 1,000 documents for each query, and is compressed as a whole. Of these a page shows ten, of one query;
a comparison needs ten of each. So they are read out of the run once. The file has one line for each query, in order of
the queries' bytes: its id, a tab, its documents from the first on, separated by single spaces (an id has no white
space). A query is found by bisection.
"""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.runs.stored import lines_of_run

#: One more than pages show: where a document that is its query itself is left out, another takes its place.
KEPT = 11

_Heap = list[tuple[float, bytes]]


def write_top_documents(run: Path, target: Path) -> None:
    """Write the first `KEPT` documents of every query of an accepted run (any form, any compression) to `target`.

    In the order of `first_documents`, whose time and memory it takes.
    """
    best = first_documents(run, KEPT)
    with target.open("wb") as out:
        for query in sorted(best):
            out.write(query + b"\t" + b" ".join(best[query]) + b"\n")


def first_documents(run: Path, depth: int) -> dict[bytes, list[bytes]]:
    """The first `depth` documents of every query of an accepted run, best first.

    The order is trec_eval's: scores as float32, descending, then document ids descending by their bytes. Takes about a
    microsecond a line, and as much memory as the documents kept.
    """
    heaps: dict[bytes, _Heap] = {}
    query, floor = b"", -np.inf
    heap: _Heap = []
    with lines_of_run(run) as lines:
        for fields in filter(None, map(bytes.split, lines)):
            if fields[0] != query:
                if fields[0].startswith(b"#"):
                    continue
                query = fields[0]
                heap = heaps.setdefault(query, [])
                floor = _floor(heap, depth)
            score = float(fields[4])
            if score < floor:
                continue
            item = (float(np.float32(score)), fields[2])
            if len(heap) < depth:
                heapq.heappush(heap, item)
            elif item > heap[0]:
                heapq.heapreplace(heap, item)
            floor = _floor(heap, depth)
    return {query: [document for _, document in sorted(heap, reverse=True)] for query, heap in heaps.items()}


def _floor(heap: _Heap, depth: int) -> float:
    """A score that is certainly not among the first if it is below this, however it is rounded."""
    if len(heap) < depth:
        return -np.inf
    return float(np.nextafter(np.float32(heap[0][0]), np.float32(-np.inf)))


class TopDocuments:
    """What `write_top_documents` wrote. Ids as `str`, best first, `KEPT` at most."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            empty = not path.stat().st_size
            self._text = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def of(self, query_id: str) -> list[str]:
        """The first documents of one query; none where the run has nothing for it."""
        wanted, text = query_id.encode(), self._text
        low, high = 0, len(text)
        while low < high:  # a line that begins in [low, high) may be the one
            start = text.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = text.find(b"\n", start)
            query, _, documents = text[start:end].partition(b"\t")
            if query == wanted:
                return documents.decode().split(" ")
            if query < wanted:
                low = end + 1
            else:
                high = start
        return []

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        """(query id, its first documents) of every query, in order of the ids' bytes."""
        for line in bytes(self._text).split(b"\n")[:-1]:
            query, _, documents = line.decode().partition("\t")
            yield query, documents.split(" ")


def shown(documents: list[str], query_id: str, *, depth: int, drop_self_matches: bool) -> list[str]:
    """The first `depth` of these documents, without the one that has the query's own id where that is dropped."""
    kept = [name for name in documents if name != query_id] if drop_self_matches else documents
    return kept[:depth]
