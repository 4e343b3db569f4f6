"""BM25 as computed by Lucene, over words or word pieces, optionally with RM3 feedback.

S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the variant of
Lucene's BM25Similarity: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the field;
a term adds idf × tf / (tf + k1 × (1 − b + b × length / mean length)), with lengths rounded to one byte. Repeated query
terms count once for each occurrence.

Compared with bm25s, searching takes 0.88 of the CPU time, and indexing takes 0.38 of it and half of the memory
(docs/measurements/speed.md).

RM3 expands the query with terms of the top documents and searches again: N. Abdul-Jaleel et al., "UMass at TREC 2004:
Novelty and HARD", as computed by Anserini's Rm3Reranker. The most frequent terms (`feedback_terms`) of each of the top
documents (`feedback_documents`) form a language model, P(t | d) = tf / Σ tf. The mean of these models, weighted by the
BM25 scores of the documents, is truncated to `feedback_terms` terms and normalized, which yields the relevance model R.
The weights of the expanded query are λ × P(t | q) + (1 − λ) × R(t), where P(t | q) is the share of t in the query, and
λ is `original_query_weight`. Terms are not used for expansion if they occur in over a tenth of the documents, are
shorter than 2 or longer than 20 characters, or, in English, contain anything but letters and digits. Ties are broken by
the order of the vocabulary (in Anserini, by a hash table).

RM3 truncates each feedback document to its most frequent eligible terms, which depend only on the document and the
corpus. They are therefore computed once, from the postings, and need 6 bytes per term: `feedback_terms.npy`
(documents × terms, uint32 term numbers) and `feedback_frequencies.npy` (uint16, descending, padded with 0).

BM25 over a model's word pieces is the baseline for learned weights of pieces. The terms of a document are all pieces of
its title and text, without stop words, stemming, or a length limit. Special tokens, including the one for unknown
pieces, are not terms. N counts the documents that have a piece.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import MODEL_KINDS
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
    total_size,
)
from evaluation.engines.index.inverted_index import IndexBuilder, InvertedIndex
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, TermEngine, WordEngine
from evaluation.engines.index.word_pieces import WordPieces, group_by_size

#: Functions by value of `fields`. They return a document's texts, one for each separately scored field.
FIELDS: dict[str, Callable[[Document], tuple[str, ...]]] = {
    "title+text": lambda document: (f"{document.title} {document.text}",),
    "title": lambda document: (document.title,),
    "text": lambda document: (document.text,),
    "multifield": lambda document: (document.title, document.text),
}


class BM25(WordEngine):
    """BM25 over words."""

    label = "BM25"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self._texts = FIELDS[parameters["fields"]]

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus into `folder` and open the index, or open the prebuilt index without reading the corpus."""
        if self.resources.index is None:
            builder = IndexBuilder(folder, self.analyser, fields=len(self._texts(Document("", "", ""))))
            for document in corpus:
                builder.add(document.id, self._texts(document))
            builder.finish()
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open the prebuilt index of the resources, or the one in `folder`."""
        super().open(self.resources.index or folder)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query. Retrieved documents contain a query term."""
        for query in queries:
            yield self.searcher.rank(query.id, Counter(self.analyser(query.text)), depth)


TERMS_FILE, FREQUENCIES_FILE = "feedback_terms.npy", "feedback_frequencies.npy"
#: Documents per batch when feedback terms are computed, for locality of writes.
_BATCH_DOCUMENTS = 65_536
#: Patterns of terms that may expand a query under Anserini's rules, which replace a stop word list.
_ELIGIBLE_ENGLISH_TERM = re.compile(r"[a-z0-9]{2,20}")
_ELIGIBLE_TERM = re.compile(".{2,20}", re.DOTALL)
_MAX_SHARE = np.float32(0.1)
Weights = tuple[Numbers, NDArray[np.float64]]


class RM3(BM25):
    """BM25 with pseudo-relevance feedback. Its index adds the most frequent terms of each document."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self._queries = self._added_terms = 0

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Build the BM25 index and store each document's feedback terms."""
        super().build(corpus, folder)
        self._write_feedback_terms(folder)
        self.open(folder)

    def _write_feedback_terms(self, folder: Path) -> None:
        """Write the most frequent eligible terms of each document, and their frequencies, to two files in `folder`."""
        from evaluation.engines.index import kernels

        index = self.searcher.index
        shape = index.document_count, self.parameters["feedback_terms"]
        terms = new_map(folder / TERMS_FILE, np.uint32, shape)
        frequencies = new_map(folder / FREQUENCIES_FILE, np.uint16, shape)
        eligible_terms = self._get_eligible_terms(index)
        cursors, ends = index.offsets[eligible_terms].copy(), index.offsets[eligible_terms + 1].copy()
        postings = index.documents, index.frequencies, eligible_terms.astype(np.uint32)
        for first_document in range(0, index.document_count, _BATCH_DOCUMENTS):
            stop = min(first_document + _BATCH_DOCUMENTS, index.document_count)
            outputs = np.asarray(terms[first_document:stop]), np.asarray(frequencies[first_document:stop])
            kernels.collect_most_frequent(*postings, cursors, ends, first_document, stop, *outputs)
        terms.flush()
        frequencies.flush()

    def _get_eligible_terms(self, index: InvertedIndex) -> Numbers:
        """Return the terms that may expand a query: 2 to 20 characters, in at most a tenth of the documents.

        English terms must consist of ASCII letters and digits. That rule would exclude nearly all terms of some other
        languages.
        """
        share = np.diff(index.offsets).astype(np.float32) / np.float32(max(index.document_count, 1))
        form = _ELIGIBLE_ENGLISH_TERM if self.language == "en" else _ELIGIBLE_TERM
        matches = (form.fullmatch(term) is not None for term in index.terms())
        well_formed = np.fromiter(matches, np.bool_, len(share))
        return np.flatnonzero(well_formed & (share <= _MAX_SHARE))

    def open(self, folder: Path) -> None:
        """Open an index that `build` wrote, and the feedback terms if they exist already."""
        super().open(folder)
        ranks = self.searcher.index.ranks
        self._order = np.empty(len(ranks), np.uint32)
        self._order[ranks] = np.arange(len(ranks), dtype=np.uint32)
        if (folder / TERMS_FILE).exists():  # absent while the index is being built
            self._terms = np.load(folder / TERMS_FILE, mmap_mode="r")
            self._frequencies = np.load(folder / FREQUENCIES_FILE, mmap_mode="r")
        self._folder = folder

    def size(self) -> int:
        return total_size(*{self.searcher.index.folder, self._folder})

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each expanded query, or none if the original query has no results."""
        searcher = self.searcher
        for query in queries:
            with self.clock.part("first_stage"):
                counts = Counter(self.analyser(query.text))
                term_counts = {
                    index: count
                    for term, count in counts.items()
                    if (index := searcher.index.get_term_number(term)) >= 0
                }
                query_terms = (
                    np.array(list(term_counts), np.int64),
                    np.array(list(term_counts.values()), np.float64),
                )
                feedback = searcher.search(
                    query_terms[0], query_terms[1].astype(np.float32), self.parameters["feedback_documents"]
                )
            with self.clock.part("search"):
                shares = query_terms[0], query_terms[1] / max(counts.total(), 1)
                terms, weights = self._expand_query(shares, *feedback)
                self._queries += 1
                self._added_terms += len(np.setdiff1d(terms, query_terms[0]))
                ranking = searcher.result(query.id, terms, weights.astype(np.float32), depth)
            yield ranking

    def _expand_query(self, query_terms: Weights, ranks: Ranks, scores: Floats) -> Weights:
        """Return the terms with a positive weight in the expanded query, and these weights.

        They interpolate the query's own terms with the relevance model of the feedback documents.
        """
        relevance_model = self._build_relevance_model(self._order[ranks], scores)
        query_weight = self.parameters["original_query_weight"]
        terms, numbers = np.unique(np.concatenate([query_terms[0], relevance_model[0]]), return_inverse=True)
        combined = np.concatenate([query_weight * query_terms[1], (1 - query_weight) * relevance_model[1]])
        weights = np.bincount(numbers, combined, len(terms)).astype(np.float64)
        return terms[weights > 0], weights[weights > 0]

    def _build_relevance_model(self, documents: Ranks, scores: Floats) -> Weights:
        """Return the up to `feedback_terms` best terms of the feedback documents, with weights that add up to 1.

        Before normalization, a term's weight is the sum of its relative frequencies in the documents times
        their scores.
        """
        frequencies = self._frequencies[documents].astype(np.float64)
        norms = np.maximum(frequencies.sum(axis=1, keepdims=True), 1.0)
        weights = (frequencies / norms * scores[:, np.newaxis]).ravel()
        terms = self._terms[documents].ravel()[weights > 0]
        term_numbers, numbers = np.unique(terms.astype(np.int64), return_inverse=True)
        sums = np.bincount(numbers, weights[weights > 0], len(term_numbers))
        top_terms = np.lexsort((term_numbers, -sums))[: self.parameters["feedback_terms"]]
        return term_numbers[top_terms], sums[top_terms] / (sums[top_terms].sum() or 1.0)

    def facts(self) -> Mapping[str, FactValue]:
        return {"expansion_terms": self._added_terms / max(self._queries, 1)}


class WordPieceEngine(TermEngine):
    """An engine over word pieces. Its terms are the pieces' ids in decimal."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources, pieces: WordPieces | None = None) -> None:
        super().__init__(parameters, resources)
        self.pieces = pieces or WordPieces(resources.model, resources.threads)

    @property
    def analyser_name(self) -> str:
        return f"word pieces ({self.pieces.size:,})"

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index how often each word piece occurs in each document's title and text, and open the index."""
        builder = IndexBuilder(folder)
        for batch in group_by_size(corpus, lambda document: document.text):
            texts = [f"{document.title} {document.text}" for document in batch]
            for document, numbers in zip(batch, self.pieces.pieces(texts), strict=True):
                builder.add_counts(document.id, Counter(map(str, numbers)))
        builder.finish()
        self.open(folder)


class WordPieceBM25(WordPieceEngine):
    """BM25 over word pieces."""

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query. Retrieved documents contain a piece of the query."""
        for query in queries:
            (numbers,) = self.pieces.pieces([query.text])
            yield self.searcher.rank(query.id, Counter(map(str, numbers)), depth)


PARAMETERS = (
    K1,
    B,
    Parameter(
        "fields",
        "title+text",
        "indexed text: title and text as one field, only one of them, or both as separate fields with added scores",
        choices=tuple(FIELDS),
    ),
    STEMMING,
    LANGUAGE,
)

_MULTIFIELD = tuple(replace(p, default="multifield") if p.name == "fields" else p for p in PARAMETERS)


def word_index(parameters: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """Return the parameters that determine the content of the index."""
    return {name: parameters[name] for name in ("fields", "stemming", "language")}


_RM3_FIELDS = ("title+text", "title", "text")
_RM3_PARAMETERS = (
    *(replace(p, choices=_RM3_FIELDS) if p.name == "fields" else p for p in PARAMETERS),
    Parameter("feedback_documents", 10, "number of top documents used for feedback", minimum=1, maximum=1000),
    Parameter("feedback_terms", 10, "number of terms in the relevance model", minimum=1, maximum=1000),
    Parameter("original_query_weight", 0.5, "weight of the original query, 0 to 1", minimum=0.0, maximum=1.0),
)

DESCRIPTIONS = (
    EngineDescription(
        name="bm25",
        label="BM25",
        architecture="lexical",
        description="BM25 as in Lucene, title and text in one field (bm25-flat). The baseline of every board.",
        parameters=PARAMETERS,
        create=BM25,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-multifield",
        label="BM25 (multifield)",
        architecture="lexical",
        description="BM25 over title and text as two fields of equal weight, with added scores.",
        parameters=_MULTIFIELD,
        create=BM25,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-rm3",
        label="BM25 + RM3",
        architecture="lexical",
        description="BM25 with the query expanded by terms of the top documents (RM3, as in Anserini).",
        parameters=_RM3_PARAMETERS,
        create=RM3,
        word_index=word_index,
    ),
    EngineDescription(
        name="bm25-wordpiece",
        label="BM25 (word pieces)",
        architecture="lexical",
        description="BM25 over the word pieces of a model's tokenizer instead of stemmed words.",
        parameters=(K1, B),
        create=WordPieceBM25,
        checkpoints=MODEL_KINDS,
    ),
)
