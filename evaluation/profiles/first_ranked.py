"""The first documents of every query of a run, without holding the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.engines.stored_run import lines_of_run
from evaluation.ordering import trec_order

#: A query's candidates are cut back when there are so many times more than wanted.
_SLACK = 8


class _Candidates:
    """The documents of one query that may still be among its first."""

    __slots__ = ("depth", "floor", "ids", "scores")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.ids: list[bytes] = []
        self.scores: list[float] = []
        #: What scores less is no longer among the first, however float32 rounds.
        self.floor = -np.inf

    def add(self, document: bytes, score: float) -> None:
        if score < self.floor:
            return
        self.ids.append(document)
        self.scores.append(score)
        if len(self.ids) >= _SLACK * self.depth:
            self.cut()

    def cut(self) -> None:
        """Keep the first `depth` different documents."""
        kept: dict[bytes, float] = {}
        for place in trec_order(self.ids, self.scores).tolist():
            kept.setdefault(self.ids[place], self.scores[place])
            if len(kept) == self.depth:
                break
        self.ids, self.scores = list(kept), list(kept.values())
        if len(kept) == self.depth:
            lowest = float(np.nextafter(np.float32(self.scores[-1]), np.float32(-np.inf)))
            self.floor = lowest


def first_ranked(path: Path, depth: int) -> dict[str, list[str]]:
    """The ids of each query's first `depth` documents in trec_eval's order, by query; fewer where it has fewer.

    The run is one that was accepted before, in any form and compression. Memory is bounded by queries × depth.
    """
    queries: dict[bytes, _Candidates] = {}
    with lines_of_run(path) as lines:
        for line in lines:
            fields = line.split()
            if len(fields) < 5 or fields[0].startswith(b"#"):
                continue
            candidates = queries.get(fields[0])
            if candidates is None:
                candidates = queries[fields[0]] = _Candidates(depth)
            candidates.add(fields[2], float(fields[4]))
    for candidates in queries.values():
        candidates.cut()
    return {
        str(query, "utf-8"): [str(document, "utf-8") for document in candidates.ids]
        for query, candidates in queries.items()
    }
