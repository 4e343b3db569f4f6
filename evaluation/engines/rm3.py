"""BM25 with RM3: the query is expanded with terms of the documents that it finds first, and asked again.

N. Abdul-Jaleel and others, "UMass at TREC 2004: Novelty and HARD", as Anserini's Rm3Reranker computes it. Of each of
the best documents (`feedback_documents`) the most frequent terms (`feedback_terms`) make a language model, P(t | d) =
tf / Σ tf. Their mean, each weighted by its document's BM25 score, is cut to `feedback_terms` terms and normalised: the
relevance model R. The query that is asked then has the weights λ × P(t | q) + (1 − λ) × R(t), with P(t | q) the share
of t in the query, and λ `original_query_weight`. Terms that stand in over a tenth of the documents, or are shorter
than two or longer than twenty characters, or in English are not plain letters and digits, expand no query. Of equal
weights the first in the vocabulary's order is kept (Anserini leaves that to a hash table).

RM3 cuts every feedback document to its most frequent eligible terms before it does anything else, and which these are
depends on the document and the corpus alone. So they are found once, from the postings: 6 bytes a term kept, in
`feedback_terms.npy` (documents × terms, uint32: numbers of terms) and `feedback_frequencies.npy` (uint16, descending;
0 where a document has no more).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import Document, Query
from evaluation.core.writing import new_map
from evaluation.engines.base import (
    EngineDescription,
    FactValue,
    Floats,
    Numbers,
    Parameter,
    Ranks,
    Resources,
    SearchResult,
    size_of,
)
from evaluation.engines.bm25 import BM25, PARAMETERS, word_index
from evaluation.engines.index import kernels
from evaluation.engines.index.inverted_index import InvertedIndex

TERMS_FILE, FREQUENCIES_FILE = "feedback_terms.npy", "feedback_frequencies.npy"
#: Documents are looked at so many at a time, so that what is written lies together.
_DOCUMENTS_AT_ONCE = 65_536
#: Which terms may expand a query: Anserini's rules, which stand in for a list of stop words.
_ELIGIBLE_ENGLISH = re.compile(r"[a-z0-9]{2,20}")
_ELIGIBLE = re.compile(".{2,20}", re.DOTALL)
_GREATEST_SHARE = np.float32(0.1)


def write_feedback_terms(index: InvertedIndex, folder: Path, kept: int, english: bool) -> None:
    """Write the `kept` most frequent eligible terms of each document of the index (of one field) into `folder`."""
    shape = (index.document_count, kept)
    terms = new_map(folder / TERMS_FILE, np.uint32, shape)
    frequencies = new_map(folder / FREQUENCIES_FILE, np.uint16, shape)
    eligible = _eligible(index, english)
    cursors, ends = index.offsets[eligible].copy(), index.offsets[eligible + 1].copy()
    for first in range(0, index.document_count, _DOCUMENTS_AT_ONCE):
        behind = min(first + _DOCUMENTS_AT_ONCE, index.document_count)
        kernels.keep_most_frequent(
            index.documents,
            index.frequencies,
            eligible.astype(np.uint32),
            cursors,
            ends,
            first,
            behind,
            np.asarray(terms[first:behind]),
            np.asarray(frequencies[first:behind]),
        )
    terms.flush()
    frequencies.flush()


def read_feedback_terms(folder: Path) -> tuple[Ranks, NDArray[np.uint16]]:
    """Return (numbers of terms, frequencies), documents × terms kept, mapped from the index's folder."""
    return np.load(folder / TERMS_FILE, mmap_mode="r"), np.load(folder / FREQUENCIES_FILE, mmap_mode="r")


def _eligible(index: InvertedIndex, english: bool) -> Numbers:
    """Numbers of the terms that may expand a query: of 2 to 20 characters, in at most a tenth of the documents.

    English ones must be plain letters and digits; in other languages that would leave nothing.
    """
    share = np.diff(index.offsets).astype(np.float32) / np.float32(max(index.document_count, 1))
    form = _ELIGIBLE_ENGLISH if english else _ELIGIBLE
    matches = (form.fullmatch(term) is not None for term in index.terms())
    well_formed = np.fromiter(matches, np.bool_, len(share))
    return np.flatnonzero(well_formed & (share <= _GREATEST_SHARE))


Weights = tuple[Numbers, NDArray[np.float64]]


class RM3(BM25):
    """BM25 with pseudo-relevance feedback, over BM25's index with the documents' frequent terms beside it."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self._queries = self._added_terms = 0

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus as BM25 does, and find each document's terms for feedback."""
        super().build(corpus, folder)
        write_feedback_terms(
            self.searcher.index, folder, self.parameters["feedback_terms"], english=self.language == "en"
        )
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        ranks = self.searcher.index.ranks
        self._order = np.empty(len(ranks), np.uint32)
        self._order[ranks] = np.arange(len(ranks), dtype=np.uint32)
        if (folder / TERMS_FILE).exists():  # not yet while it is being built
            self._terms, self._frequencies = read_feedback_terms(folder)
        self._folder = folder

    def size(self) -> int:
        """Return the bytes of BM25's index and of the documents' terms, wherever they are."""
        return size_of(*{self.searcher.index.folder, self._folder})

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each expanded query; none where the query itself finds none."""
        searcher = self.searcher
        for query in queries:
            with self.clock.part("first_stage"):
                counts = Counter(self.analyser(query.text))
                known = {
                    place: count
                    for term, count in counts.items()
                    if (place := searcher.index.place(term)) >= 0
                }
                asked = np.array(list(known), np.int64), np.array(list(known.values()), np.float64)
                feedback = searcher.search(
                    asked[0], asked[1].astype(np.float32), self.parameters["feedback_documents"]
                )
            with self.clock.part("search"):
                shares = asked[0], asked[1] / max(counts.total(), 1)
                places, weights = self._expanded(shares, *feedback)
                self._queries += 1
                self._added_terms += len(np.setdiff1d(places, asked[0]))
                ranks, scores = searcher.search(places, weights.astype(np.float32), depth)
                ranking = searcher.result(query.id, ranks, scores)
            yield ranking

    def _expanded(self, asked: Weights, ranks: Ranks, scores: Floats) -> Weights:
        """Return the query's terms and those of the documents found, with their weights in the query to ask."""
        found = self._relevance_model(self._order[ranks], scores)
        own = self.parameters["original_query_weight"]
        places, numbers = np.unique(np.concatenate([asked[0], found[0]]), return_inverse=True)
        both = np.concatenate([own * asked[1], (1 - own) * found[1]])
        weights = np.bincount(numbers, both, len(places)).astype(np.float64)
        return places[weights > 0], weights[weights > 0]

    def _relevance_model(self, documents: Ranks, scores: Floats) -> Weights:
        """Return the terms that the documents, weighted by their scores, speak of most; weights add up to 1."""
        frequencies = self._frequencies[documents].astype(np.float64)
        norms = np.maximum(frequencies.sum(axis=1, keepdims=True), 1.0)
        weights = (frequencies / norms * scores[:, np.newaxis]).ravel()
        terms = self._terms[documents].ravel()[weights > 0]
        places, numbers = np.unique(terms.astype(np.int64), return_inverse=True)
        sums = np.bincount(numbers, weights[weights > 0], len(places))
        best = np.lexsort((places, -sums))[: self.parameters["feedback_terms"]]
        return places[best], sums[best] / (sums[best].sum() or 1.0)

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many terms a query gains, in the mean."""
        return {"expansion_terms": self._added_terms / max(self._queries, 1)}


_FIELDS = ("title+text", "title", "text")
_PARAMETERS = (
    *(replace(p, choices=_FIELDS) if p.name == "fields" else p for p in PARAMETERS),
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
        create=RM3,
        word_index=word_index,
    ),
)
