"""Fusion of runs: one ranking from several, without a corpus.

Reciprocal rank fusion (G. V. Cormack, C. L. A. Clarke, S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009): score(d) = Σ_r w_r / (k + rank_r(d)), k = 60, over the runs that
retrieve d. CombSUM (E. A. Fox, J. A. Shaw, "Combination of Multiple Searches", TREC-2, 1993), weighted: score(d) =
Σ_r w_r × s_r(d), where a run's scores for a query are first brought to 0 … 1 by (s − least) / (greatest − least); where
a run gives all documents of a query the same score, each counts 1. The sum of scores as they are (J. Chen et al.,
"BGE M3-Embedding", 2024) is for runs of one model, whose scores are alike. A document that a run does not retrieve adds
nothing. Ranks are trec_eval's, whatever the runs' rank columns say.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import Document, Query
from evaluation.engines.base import (
    Engine,
    EngineDescription,
    FactValue,
    InvalidParameter,
    Parameter,
    Resources,
    SearchResult,
    size_of,
)
from evaluation.runs.stored import IndexedRun

LEAST_RUNS, MOST_RUNS = 2, 16
#: A method gives each document of a run, best first with scores that descend, what it adds to its sum.
Contribution = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Fusion(Engine):
    """Joins runs query by query; what it keeps on disk are the runs' lines, put together by query."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        k = parameters["rrf_k"]
        contributions: dict[str, Contribution] = {
            "rrf": lambda scores: 1.0 / (k + np.arange(1, len(scores) + 1)),
            "combsum": _normalised,
            "sum": lambda scores: scores,
        }
        self._contribution = contributions[parameters["method"]]
        self._weights = parse_weights(parameters["weights"], len(resources.runs))
        self._runs: list[IndexedRun] = []

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Put the lines of each run together by query; the corpus is not looked at. Raises InvalidContent."""
        for number, path in enumerate(self.resources.runs):
            IndexedRun.write(path, folder / f"{number:02d}")
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        self._folder = folder
        self._runs = [IndexedRun(folder / f"{number:02d}") for number in range(len(self.resources.runs))]

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query; none where no run has the query."""
        for query in queries:
            with self.clock.part("search"):
                ranking = self._fused(query.id, depth)
            yield ranking

    def _fused(self, query_id: str, depth: int) -> SearchResult:
        sums: dict[str, float] = {}
        for run, weight in zip(self._runs, self._weights, strict=True):
            ids, scores = run.documents(query_id)
            added = weight * self._contribution(scores)
            for document, value in zip(ids, added.tolist(), strict=True):
                sums[document] = sums.get(document, 0.0) + value
        names, totals = list(sums), np.array(list(sums.values()), np.float64)
        return SearchResult.ranked(query_id, names, totals, depth)

    def size(self) -> int:
        """Return the bytes of the runs' lines on disk."""
        return size_of(self._folder)

    @property
    def documents(self) -> int:
        """How many different documents the runs hold."""
        return len(np.unique(np.concatenate([run.document_hashes() for run in self._runs])))

    @property
    def analyser_name(self) -> str:
        """None: texts are not looked at."""
        return "none"

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many runs were fused."""
        return {"runs_fused": len(self.resources.runs)}


def parse_weights(text: str, runs: int) -> tuple[float, ...]:
    """Return a weight for each run from "1,0.5"; all 1 where there is no text. Raises InvalidParameter."""
    if not text.strip():
        return (1.0,) * runs
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    usable = all(0 <= weight < float("inf") for weight in weights) and any(weights)
    if len(weights) != runs or not usable:
        raise InvalidParameter(
            f"weights = {text!r} is not possible; it takes {runs} numbers, one for each run and none below 0, "
            f'such as "{",".join(["1"] * runs)}", or nothing where all runs count alike.'
        )
    return weights


def _normalised(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores from 0 to 1; 1 where all are equal."""
    if not len(scores) or scores[0] == scores[-1]:
        return np.ones(len(scores))
    return np.asarray((scores - scores[-1]) / (scores[0] - scores[-1]))


DESCRIPTIONS = (
    EngineDescription(
        name="fusion",
        label="Fusion of runs",
        architecture="fusion",
        description="Several runs joined into one by reciprocal rank fusion, or by the sum of normalised scores.",
        parameters=(
            Parameter(
                "method",
                "rrf",
                "reciprocal ranks, min-max normalised scores, or scores as they are, are added",
                choices=("rrf", "combsum", "sum"),
            ),
            Parameter("rrf_k", 60, "how little the first ranks stand out (rrf)", least=0, most=100_000),
            Parameter(
                "weights", "", "how much each run counts, such as 1,0.5; nothing where all count alike"
            ),
        ),
        create=Fusion,
        runs=(LEAST_RUNS, MOST_RUNS),
        reads_corpus=False,
    ),
)
