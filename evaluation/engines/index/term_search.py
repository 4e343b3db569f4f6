"""BM25 search for weighted query terms, and the base classes of its engines.

A document's score is Σ weight × idf × tf / (tf + k1 × (1 − b + b × length / mean length)) over the query's terms, as
Lucene's BM25Similarity computes it: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the
field, lengths are rounded to one byte, and there is no factor k1 + 1. In plain BM25 the weight of a term is its
frequency in the query. Engines over words sort documents with equal scores by ascending id, and make their scores
distinct, as Anserini does: trec_eval would otherwise sort ties in descending order.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.engines.base import (
    Engine,
    Floats,
    Numbers,
    Parameter,
    Ranks,
    Resources,
    SearchResult,
    total_size,
)
from evaluation.engines.index.inverted_index import DECODED_LENGTHS, FIELD_MARK, InvertedIndex
from evaluation.text import analyser_for
from evaluation.text.languages import known_language_code, language_code

#: Parameter value for the language of the corpus.
AUTO_LANGUAGE = "auto"

K1 = Parameter("k1", 0.9, "saturation of term frequencies; 0 ignores repetitions", minimum=0.0, maximum=100.0)
B = Parameter("b", 0.4, "strength of length normalization, from 0 (none) to 1 (full)", minimum=0.0, maximum=1.0)
STEMMING = Parameter("stemming", True, "whether to reduce words to stems")
LANGUAGE = Parameter(
    "language",
    AUTO_LANGUAGE,
    "language of the analyzer: a code, such as de, deu, or de-AT, or an English name; auto is the corpus's language, "
    "by default English",
    canonical=lambda text: text if text == AUTO_LANGUAGE else language_code(text),
)


def resolve_language(parameters: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """Return the parameters with a language code, replacing `AUTO_LANGUAGE` by the corpus's language."""
    value = parameters["language"]
    language = resources.language if value == AUTO_LANGUAGE else value
    return {**parameters, "language": known_language_code(language)}


class TermSearch:
    """Search of an index with BM25's parameters."""

    def __init__(self, folder: Path, k1: float, b: float, anserini_ties: bool = False) -> None:
        self.anserini_ties = anserini_ties
        self.index = index = InvertedIndex(folder)
        self._inverse_norms = np.stack(
            [
                inverse_norms(k1, b, tokens, documents)
                for tokens, documents in zip(index.tokens, index.documents_with_field, strict=True)
            ]
        )

    def rank(self, query_id: str, terms: Mapping[str, float], depth: int) -> SearchResult:
        """Return a query's best `depth` documents for weighted terms, which are searched in every field."""
        rows = [
            (number, field, weight)
            for field in range(self.index.fields)
            for term, weight in terms.items()
            if (number := self.index.get_term_number(FIELD_MARK * field + term)) >= 0
        ]
        if not rows:
            return SearchResult(query_id, [], np.empty(0, np.float32))
        term_numbers, fields, weights = zip(*rows, strict=True)
        arrays = np.array(term_numbers, np.int64), np.array(weights, np.float32)
        return self.result(query_id, *arrays, depth, np.array(fields, np.int64))

    def result(
        self, query_id: str, terms: Numbers, weights: Floats, depth: int, fields: Numbers | None = None
    ) -> SearchResult:
        """Return a query's best `depth` documents for weighted term numbers, as `search` finds them.

        Scores are made distinct if ties are broken as in Anserini.
        """
        ranks, scores = self.search(terms, weights, depth, fields)
        if self.anserini_ties:
            from evaluation.engines.index import kernels

            kernels.write_order_into_scores(scores)
        return SearchResult(query_id, self.index.identifiers(ranks), scores)

    def search(
        self, terms: Numbers, weights: Floats, depth: int, fields: Numbers | None = None
    ) -> tuple[Ranks, Floats]:
        """Return ranks and scores of the best `depth` documents, best first.

        Args:
            terms: Distinct term numbers of the index.
            weights: Factors of the terms' idf.
            depth: Number of documents.
            fields: Field of each term, by default the first field.
        """
        index = self.index
        if not len(terms):
            return np.empty(0, np.uint32), np.empty(0, np.float32)
        if fields is None:
            fields = np.zeros(len(terms), np.int64)
        totals = np.array(index.documents_with_field, np.int64)[fields]
        frequencies = index.offsets[terms + 1] - index.offsets[terms]
        return index.find_best(
            terms,
            weights * inverse_document_frequency(totals, frequencies),
            depth,
            (fields.astype(np.uint64), index.lengths, self._inverse_norms),
            ascending=self.anserini_ties,
        )


class TermEngine(Engine):
    """Base class of engines that search with BM25. Subclasses define the terms. Compiles the kernels."""

    #: Whether documents with equal scores are sorted by ascending id, with scores made distinct.
    anserini_ties = False

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.index import kernels

        super().__init__(parameters, resources)
        kernels.load()
        self.k1, self.b = parameters["k1"], parameters["b"]

    @property
    def documents(self) -> int:
        return self.searcher.index.document_count

    def open(self, folder: Path) -> None:
        self.searcher = TermSearch(folder, self.k1, self.b, self.anserini_ties)

    def size(self) -> int:
        return total_size(self.searcher.index.folder)


class WordEngine(TermEngine):
    """A TermEngine for words of a language. Ties are broken as in Anserini."""

    anserini_ties = True

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.language = resolve_language(parameters, resources)["language"]
        self.analyser = analyser_for(self.language, parameters["stemming"])

    @property
    def analyser_name(self) -> str:
        return self.analyser.name


def inverse_document_frequency(documents: Numbers, document_frequencies: Numbers) -> Floats:
    """Return Lucene's BM25Similarity.idf, computed in float64 and rounded to float32."""
    frequencies = document_frequencies.astype(np.float64)
    return np.log(1 + (documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)


def inverse_norms(k1: float, b: float, tokens: int, documents: int) -> Floats:
    """Return 1 / (k1 × (1 − b + b × length / mean length)) by length code.

    The order of float32 operations is that of Lucene.
    """
    one = np.float32(1)
    mean_length = np.float32(tokens / max(documents, 1)) or one
    lengths = DECODED_LENGTHS.astype(np.float32)
    with np.errstate(divide="ignore"):  # infinite for k1 = 0, so that every frequency counts as one
        norms: Floats = one / (np.float32(k1) * ((one - np.float32(b)) + np.float32(b) * lengths / mean_length))
    return norms
