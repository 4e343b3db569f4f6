"""Fusion of several runs into one ranking, without a corpus.

Reciprocal rank fusion (G. V. Cormack, C. L. A. Clarke, S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009): score(d) = Σ_r w_r / (k + rank_r(d)), k = 60, over the runs that
retrieve d. CombSUM (E. A. Fox, J. A. Shaw, "Combination of Multiple Searches", TREC-2, 1993), weighted: score(d) =
Σ_r w_r × s_r(d), where a run's scores for a query are scaled to 0 … 1 by (s − minimum) / (maximum − minimum), or are 1
if all of them are equal. The sum of raw scores (J. Chen et al., "BGE M3-Embedding", 2024) is meant for runs of one
model, which have comparable scores. A run contributes nothing to documents that it does not retrieve. Ranks follow
from trec_eval's order, regardless of the runs' rank columns.
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
    total_size,
)
from evaluation.runs.stored import IndexedRun

MIN_RUNS, MAX_RUNS = 2, 16
#: Function that maps the descending scores of a run's documents to their contributions.
Contribution = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Fusion(Engine):
    """Engine that fuses runs query by query. Its index is the runs' lines, grouped by query."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        k = parameters["rrf_k"]
        contributions: dict[str, Contribution] = {
            "rrf": lambda scores: 1.0 / (k + np.arange(1, len(scores) + 1)),
            "combsum": _normalize,
            "sum": lambda scores: scores,
        }
        self._contribution = contributions[parameters["method"]]
        self._weights = parse_weights(parameters["weights"], len(resources.runs))
        self._runs: list[IndexedRun] = []

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Write the lines of each run to `folder`, grouped by query, and open them. The corpus is not read.

        Raises InvalidContent for an invalid run.
        """
        for number, path in enumerate(self.resources.runs):
            IndexedRun.write(path, folder / f"{number:02d}")
        self.open(folder)

    def open(self, folder: Path) -> None:
        self._folder = folder
        self._runs = [IndexedRun(folder / f"{number:02d}") for number in range(len(self.resources.runs))]

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query, or none if no run contains the query."""
        for query in queries:
            with self.clock.part("search"):
                ranking = self._fuse(query.id, depth)
            yield ranking

    def _fuse(self, query_id: str, depth: int) -> SearchResult:
        """Return the query's `depth` documents with the largest weighted sums of the runs' contributions."""
        sums: dict[str, float] = {}
        for run, weight in zip(self._runs, self._weights, strict=True):
            ids, scores = run.documents(query_id)
            for document, value in zip(ids, (weight * self._contribution(scores)).tolist(), strict=True):
                sums[document] = sums.get(document, 0.0) + value
        names, totals = list(sums), np.array(list(sums.values()), np.float64)
        return SearchResult.from_scores(query_id, names, totals, depth)

    def size(self) -> int:
        return total_size(self._folder)

    @property
    def documents(self) -> int:
        return len(np.unique(np.concatenate([run.document_hashes() for run in self._runs])))

    @property
    def analyser_name(self) -> str:
        return "none"

    def facts(self) -> Mapping[str, FactValue]:
        return {"runs_fused": len(self.resources.runs)}


def parse_weights(text: str, run_count: int) -> tuple[float, ...]:
    """Return one weight for each run from a text such as "1,0.5". An empty text means 1 for all.

    Raises InvalidParameter if their number is wrong, a weight is negative or infinite, or all weights are 0.
    """
    if not text.strip():
        return (1.0,) * run_count
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    are_valid = all(0 <= weight < float("inf") for weight in weights) and any(weights)
    if len(weights) != run_count or not are_valid:
        raise InvalidParameter(
            f"weights = {text!r} is not valid; expected {run_count} non-negative numbers, one for each run, "
            f'such as "{",".join(["1"] * run_count)}", or no value for equal weights.'
        )
    return weights


def _normalize(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale descending scores to the range 0 to 1; all become 1 if they are equal."""
    if not len(scores) or scores[0] == scores[-1]:
        return np.ones(len(scores))
    return np.asarray((scores - scores[-1]) / (scores[0] - scores[-1]))


DESCRIPTIONS = (
    EngineDescription(
        name="fusion",
        label="Fusion of runs",
        architecture="fusion",
        description="Fuses several runs into one by reciprocal rank fusion or by the sum of normalized scores.",
        parameters=(
            Parameter(
                "method",
                "rrf",
                "sum of reciprocal ranks (rrf), of min-max normalized scores (combsum), or of raw scores (sum)",
                choices=("rrf", "combsum", "sum"),
            ),
            Parameter(
                "rrf_k",
                60,
                "constant k of rrf; larger values reduce the weight of top ranks",
                minimum=0,
                maximum=100_000,
            ),
            Parameter("weights", "", "weight of each run, such as 1,0.5; empty for equal weights"),
        ),
        create=Fusion,
        runs=(MIN_RUNS, MAX_RUNS),
        reads_corpus=False,
    ),
)
