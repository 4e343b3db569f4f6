"""Rankings of groups of queries kept on disk as they are found, so that an interrupted search goes on behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from evaluation.core.writing import appearing
from evaluation.engines.base import SearchResult

Rankings = list[Mapping[str, SearchResult]]


class KeptRankings:
    """A folder of rankings, which is made; None keeps nothing. Scores come back as the float32 they were."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, number: int, search: Callable[[], Rankings]) -> tuple[Rankings, float]:
        """What `search` finds for the group of this number, now or before, and the seconds it took.

        A file that cannot be read, such as one that a lost machine left empty, is written again.
        """
        path = self._folder and self._folder / f"{number:06d}.json"
        if path and path.exists():
            try:
                return _read(orjson.loads(path.read_bytes()))
            except (ValueError, KeyError, TypeError, AttributeError):
                path.unlink()
        started = perf_counter()
        found = search()
        seconds = perf_counter() - started
        if path:
            rows = [
                {
                    label: [ranking.query_id, ranking.document_ids, ranking.scores.tolist()]
                    for label, ranking in rankings.items()
                }
                for rankings in found
            ]
            with appearing(path) as unfinished:
                unfinished.write_bytes(orjson.dumps({"seconds": seconds, "rankings": rows}))
        return found, seconds


def _read(kept: Mapping[str, Any]) -> tuple[Rankings, float]:
    found: Rankings = [
        {label: _ranking(*ranking) for label, ranking in row.items()} for row in kept["rankings"]
    ]
    return found, kept["seconds"]


def _ranking(query: str, ids: list[str], scores: list[float]) -> SearchResult:
    if len(ids) != len(scores):
        raise ValueError("there is not one score for each document")
    return SearchResult(query, ids, np.array(scores, np.float32))
