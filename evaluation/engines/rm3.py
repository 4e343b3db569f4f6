"""BM25 with RM3: the query is expanded with terms of the documents that it finds first, and asked again.

N. Abdul-Jaleel and others, "UMass at TREC 2004: Novelty and HARD", as Anserini's Rm3Reranker computes it. Of each of
the best documents (`feedback_documents`) the most frequent terms (`feedback_terms`) make a language model, P(t | d) =
tf / Σ tf. Their mean, each weighted by its document's BM25 score, is cut to `feedback_terms` terms and normalised: the
relevance model R. The query that is asked then has the weights λ × P(t | q) + (1 − λ) × R(t), with P(t | q) the share
of t in the query, and λ `original_query_weight`. Terms that stand in over a tenth of the documents, or are shorter
than two or longer than twenty characters, or in English are not plain letters and digits, expand no query. Of equal
weights the first in the vocabulary's order is kept (Anserini leaves that to a hash table).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import Document, Query
from evaluation.engines.base import EngineDescription, FactValue, Parameter, Ranking, Resources
from evaluation.engines.bm25 import BM25, PARAMETERS
from evaluation.engines.index import feedback_terms, kernels
from evaluation.engines.index.term_search import TermSearch, with_language

Weights = tuple[NDArray[np.int64], NDArray[np.float64]]


class RM3(BM25):
    """BM25 with pseudo-relevance feedback, over BM25's index with the documents' frequent terms beside it."""

    def __init__(
        self,
        *,
        feedback_documents: int,
        feedback_terms: int,
        original_query_weight: float,
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        self.feedback_documents = feedback_documents
        self.feedback_terms = feedback_terms
        self.original_query_weight = original_query_weight
        self._english = parameters["language"].lower().replace("_", "-").split("-")[0] == "en"
        self._queries = self._added_terms = 0

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> RM3:
        """An engine with all of its parameters given, its compiled parts loaded."""
        kernels.load()
        feedback_terms.load()
        return cls(**with_language(parameters, resources))

    def build(
        self, corpus: Iterable[Document], folder: Path, progress: Callable[[float], None] | None = None
    ) -> None:
        """Index the corpus as BM25 does, and find each document's terms for feedback."""
        super().build(corpus, folder)
        feedback_terms.write_feedback_terms(self.searcher.index, self.feedback_terms, self._english)
        self.open(folder)
        if progress is not None:
            progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        ranks = self.searcher.index.ranks
        self._order = np.empty(len(ranks), np.uint32)
        self._order[ranks] = np.arange(len(ranks), dtype=np.uint32)
        if (folder / feedback_terms.TERMS_FILE).exists():  # not yet while it is being built
            self._terms, self._frequencies = feedback_terms.read_feedback_terms(folder)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[Ranking]:
        """The best `depth` documents of each expanded query; none where the query itself finds none."""
        searcher = self.searcher
        for query in queries:
            with self.clock.part("first_stage"):
                counts = Counter(self.analyser(query.text))
                asked = _known(searcher, counts)
                feedback = searcher.search(asked[0], asked[1].astype(np.float32), self.feedback_documents)
            with self.clock.part("search"):
                shares = asked[0], asked[1] / max(counts.total(), 1)
                places, weights = self._expanded(shares, *feedback)
                self._queries += 1
                self._added_terms += len(np.setdiff1d(places, asked[0]))
                ranks, scores = searcher.search(places, weights.astype(np.float32), depth)
                identifiers = searcher.index.identifiers(ranks)
            yield Ranking(query.id, identifiers, scores)

    def _expanded(self, asked: Weights, ranks: NDArray[np.uint32], scores: NDArray[np.float32]) -> Weights:
        """The query's terms and those of the documents found, with their weights in the query to ask."""
        found = self._relevance_model(self._order[ranks], scores)
        own = self.original_query_weight
        places, numbers = np.unique(np.concatenate([asked[0], found[0]]), return_inverse=True)
        both = np.concatenate([own * asked[1], (1 - own) * found[1]])
        weights = np.bincount(numbers, both, len(places)).astype(np.float64)
        return places[weights > 0], weights[weights > 0]

    def _relevance_model(self, documents: NDArray[np.uint32], scores: NDArray[np.float32]) -> Weights:
        """The terms that the documents, weighted by their scores, speak of most; weights add up to 1."""
        frequencies = self._frequencies[documents].astype(np.float64)
        norms = np.maximum(frequencies.sum(axis=1, keepdims=True), 1.0)
        weights = (frequencies / norms * scores[:, np.newaxis]).ravel()
        terms = self._terms[documents].ravel()[weights > 0]
        places, numbers = np.unique(terms.astype(np.int64), return_inverse=True)
        sums = np.bincount(numbers, weights[weights > 0], len(places))
        best = np.lexsort((places, -sums))[: self.feedback_terms]
        return places[best], sums[best] / (sums[best].sum() or 1.0)

    def facts(self) -> Mapping[str, FactValue]:
        """How many terms a query gains, in the mean."""
        return {"expansion_terms": self._added_terms / max(self._queries, 1)}


def _known(searcher: TermSearch, counts: Mapping[str, int]) -> Weights:
    """The numbers of the terms that the index has, and how often the query has them."""
    known = {place: count for term, count in counts.items() if (place := searcher.index.place(term)) >= 0}
    return np.array(list(known), np.int64), np.array(list(known.values()), np.float64)


_FIELDS = ("title+text", "title", "text")
_PARAMETERS = (
    *(Parameter(p.name, p.default, p.description, _FIELDS) if p.name == "fields" else p for p in PARAMETERS),
    Parameter(
        "feedback_documents", 10, "how many of the first documents are learned from", least=1, most=1000
    ),
    Parameter("feedback_terms", 10, "how many terms their relevance model keeps", least=1, most=1000),
    Parameter(
        "original_query_weight", 0.5, "the share of the query itself in what is asked", least=0.0, most=1.0
    ),
)

DESCRIPTIONS = (
    EngineDescription(
        name="bm25-rm3",
        label="BM25 + RM3",
        architecture="lexical",
        description="BM25 whose query is expanded with terms of the documents found first (RM3, as in Anserini).",
        parameters=_PARAMETERS,
        create=RM3.create,
    ),
)
