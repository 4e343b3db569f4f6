"""BM25 as Lucene computes it, over an inverted index of our own: over words, with RM3, and over word pieces.

S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the variant of
Lucene's BM25Similarity: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the field;
a term adds idf × tf / (tf + k1 × (1 − b + b × length / mean length)), with lengths rounded to one byte. A term that
the query repeats counts as often as it is there.

Beside bm25s a search takes 0.96 of the CPU time, indexing 0.41 of it and half of the memory (docs/measurements/speed.md).

RM3 expands the query with terms of the documents that it finds first, and asks again:
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

Word pieces of a model in place of words are what learned weights of pieces are compared with. A document's terms are
all pieces of its title and text, however long, without stop words or stems; special tokens, also the one for unknown
pieces, are no terms. N counts the documents that have a piece.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.writing import new_map
from evaluation.engines.base import (
    EngineDescription,
    FactValue,
    Floats,
    Numbers,
    Parameter,
    ParameterValue,
    Ranks,
    Resources,
    SearchResult,
    size_of,
)
from evaluation.engines.index import kernels
from evaluation.engines.index.inverted_index import IndexBuilder, InvertedIndex
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, TermEngine, WordEngine
from evaluation.engines.index.word_pieces import WordPieces, grouped

#: What is indexed: name → the document's texts, one for each field that is scored apart.
FIELDS: dict[str, Callable[[Document], tuple[str, ...]]] = {
    "title+text": lambda document: (f"{document.title} {document.text}",),
    "title": lambda document: (document.title,),
    "text": lambda document: (document.text,),
    "multifield": lambda document: (document.title, document.text),
}


class BM25(WordEngine):
    """A BM25 engine; see `engines.base.Engine` for its methods."""

    label = "BM25"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self._texts = FIELDS[parameters["fields"]]

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus into the empty `folder` and open it; with an index as a resource, nothing is read."""
        if self.resources.index is None:
            builder = IndexBuilder(folder, self.analyser, fields=len(self._texts(Document("", "", ""))))
            for document in corpus:
                builder.add(document.id, self._texts(document))
            builder.finish()
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open the index among the resources, or the one that `build` left."""
        super().open(self.resources.index or folder)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query; only documents that have a term of it."""
        for query in queries:
            yield self.searcher.ranking(query.id, Counter(self.analyser(query.text)), depth)


TERMS_FILE, FREQUENCIES_FILE = "feedback_terms.npy", "feedback_frequencies.npy"
#: Documents are looked at so many at a time, so that what is written lies together.
_DOCUMENTS_AT_ONCE = 65_536
#: Which terms may expand a query: Anserini's rules, which stand in for a list of stop words.
_ELIGIBLE_ENGLISH = re.compile(r"[a-z0-9]{2,20}")
_ELIGIBLE = re.compile(".{2,20}", re.DOTALL)
_GREATEST_SHARE = np.float32(0.1)
Weights = tuple[Numbers, NDArray[np.float64]]


class RM3(BM25):
    """BM25 with pseudo-relevance feedback, over BM25's index with the documents' frequent terms beside it."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self._queries = self._added_terms = 0

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus as BM25 does, and find each document's terms for feedback."""
        super().build(corpus, folder)
        self._write_feedback_terms(folder)
        self.open(folder)

    def _write_feedback_terms(self, folder: Path) -> None:
        """Write the most frequent eligible terms of each document of the index (of one field) into `folder`."""
        index = self.searcher.index
        shape = index.document_count, self.parameters["feedback_terms"]
        terms = new_map(folder / TERMS_FILE, np.uint32, shape)
        frequencies = new_map(folder / FREQUENCIES_FILE, np.uint16, shape)
        eligible = self._eligible_terms(index)
        cursors, ends = index.offsets[eligible].copy(), index.offsets[eligible + 1].copy()
        postings = index.documents, index.frequencies, eligible.astype(np.uint32)
        for first in range(0, index.document_count, _DOCUMENTS_AT_ONCE):
            behind = min(first + _DOCUMENTS_AT_ONCE, index.document_count)
            kept = np.asarray(terms[first:behind]), np.asarray(frequencies[first:behind])
            kernels.keep_most_frequent(*postings, cursors, ends, first, behind, *kept)
        terms.flush()
        frequencies.flush()

    def _eligible_terms(self, index: InvertedIndex) -> Numbers:
        """Return the terms that may expand a query: of 2 to 20 characters, in at most a tenth of the documents.

        English ones must be plain letters and digits; in other languages that would leave nothing.
        """
        share = np.diff(index.offsets).astype(np.float32) / np.float32(max(index.document_count, 1))
        form = _ELIGIBLE_ENGLISH if self.language == "en" else _ELIGIBLE
        matches = (form.fullmatch(term) is not None for term in index.terms())
        well_formed = np.fromiter(matches, np.bool_, len(share))
        return np.flatnonzero(well_formed & (share <= _GREATEST_SHARE))

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        ranks = self.searcher.index.ranks
        self._order = np.empty(len(ranks), np.uint32)
        self._order[ranks] = np.arange(len(ranks), dtype=np.uint32)
        if (folder / TERMS_FILE).exists():  # not yet while it is being built
            self._terms = np.load(folder / TERMS_FILE, mmap_mode="r")
            self._frequencies = np.load(folder / FREQUENCIES_FILE, mmap_mode="r")
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
                ranking = searcher.result(query.id, places, weights.astype(np.float32), depth)
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


class WordPieceEngine(TermEngine):
    """An index of word pieces, whose terms are the pieces' numbers in decimal."""

    def __init__(
        self, parameters: Mapping[str, Any], resources: Resources, pieces: WordPieces | None = None
    ) -> None:
        super().__init__(parameters, resources)
        self.pieces = pieces or WordPieces(resources.model, resources.threads)

    @property
    def analyser_name(self) -> str:
        """Word pieces, and how many the model knows."""
        return f"word pieces ({self.pieces.size:,})"

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus into the empty `folder` and open it."""
        builder = IndexBuilder(folder)
        for some in grouped(corpus, lambda document: document.text):
            texts = [f"{document.title} {document.text}" for document in some]
            for document, numbers in zip(some, self.pieces.pieces(texts), strict=True):
                builder.add_counts(document.id, Counter(map(str, numbers)))
        builder.finish()
        self.open(folder)


class WordPieceBM25(WordPieceEngine):
    """BM25 over word pieces; a query's pieces count as often as they are there."""

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query; only documents that have a piece of it."""
        for query in queries:
            (numbers,) = self.pieces.pieces([query.text])
            yield self.searcher.ranking(query.id, Counter(map(str, numbers)), depth)


PARAMETERS = (
    K1,
    B,
    Parameter(
        "fields",
        "title+text",
        "what is indexed: title and text as one field, one of them, or both as fields whose scores are added",
        choices=tuple(FIELDS),
    ),
    STEMMING,
    LANGUAGE,
)

_MULTIFIELD = tuple(replace(p, default="multifield") if p.name == "fields" else p for p in PARAMETERS)


def word_index(parameters: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """Return the parameters that decide what the index holds."""
    return {name: parameters[name] for name in ("fields", "stemming", "language")}


_RM3_FIELDS = ("title+text", "title", "text")
_RM3_PARAMETERS = (
    *(replace(p, choices=_RM3_FIELDS) if p.name == "fields" else p for p in PARAMETERS),
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
        name="bm25",
        label="BM25",
        architecture="lexical",
        description="BM25 as Lucene computes it, title and text in one field (bm25-flat): the baseline of every board.",
        parameters=PARAMETERS,
        create=BM25,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-multifield",
        label="BM25 (multifield)",
        architecture="lexical",
        description="BM25 over title and text as two fields of equal weight, whose scores are added.",
        parameters=_MULTIFIELD,
        create=BM25,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-rm3",
        label="BM25 + RM3",
        architecture="lexical",
        description="BM25 whose query is expanded with terms of the documents found first (RM3, as in Anserini).",
        parameters=_RM3_PARAMETERS,
        create=RM3,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-wordpiece",
        label="BM25 (word pieces)",
        architecture="lexical",
        description="BM25 over the word pieces of a model's tokenizer in place of stemmed words.",
        parameters=(K1, B),
        create=WordPieceBM25,
        checkpoints=tuple(CheckpointKind),
    ),
)
