"""What finds the documents that a re-ranker looks at: BM25 as on every board, or a run that was made before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.collection import Document, Query
from evaluation.engines import bm25
from evaluation.engines.base import Engine, Ranking, Resources
from evaluation.engines.ordered_ids import OrderedIds
from evaluation.engines.rankings import read_rankings
from evaluation.errors import InvalidContent
from evaluation.problems import Problem

_NO_SCORES: NDArray[np.float32] = np.empty(0, np.float32)


class FirstStage:
    """BM25 with its defaults over the same corpus, or, where one is given, a run."""

    def __init__(self, runs: Sequence[Path], deepest: int) -> None:
        """`deepest` says how much of a run will be asked for."""
        self._rankings = read_rankings(runs[0], deepest) if runs else {}
        self._engine: Engine | None = None
        if not runs:
            (description,) = (one for one in bm25.DESCRIPTIONS if one.name == "bm25")
            self._engine = description.create(description.complete({}), Resources())

    @property
    def name(self) -> str:
        """What it is, for people."""
        return "BM25" if self._engine else "a run"

    def build(self, documents: Iterable[Document], folder: Path) -> None:
        """Read all documents, and index them in `folder`, which is made, if an index is needed."""
        folder.mkdir()
        if self._engine is None:
            deque(documents, maxlen=0)
        else:
            self._engine.build(documents, folder)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        if self._engine is not None:
            self._engine.open(folder)

    def size(self) -> int:
        """Bytes of its index."""
        return self._engine.size() if self._engine else 0

    def rankings(self, queries: Sequence[Query], depth: int) -> list[Ranking]:
        """The best `depth` documents of each query; none for a query that the run does not name."""
        if self._engine is not None:
            return list(self._engine.search(queries, depth))
        found = (self._rankings.get(query.id, Ranking(query.id, [], _NO_SCORES)) for query in queries)
        return [Ranking(one.query_id, one.document_ids[:depth], one.scores[:depth]) for one in found]


def numbers_of(ranking: Ranking, ids: OrderedIds) -> NDArray[np.int64]:
    """The documents of a first stage by their numbers. Raises InvalidContent where the corpus lacks one."""
    numbers = [ids.find(identifier) for identifier in ranking.document_ids]
    if -1 in numbers:
        name = ranking.document_ids[numbers.index(-1)]
        message = f"the run to re-rank names the document {name!r} for query {ranking.query_id!r}"
        hint = "The corpus has no such document; give a run over this version of the dataset."
        raise InvalidContent.of(Problem("error", "unknown_document", numbers.count(-1), message, hint))
    return np.array(numbers, np.int64)
