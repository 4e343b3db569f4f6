"""BM25 over an opened index, for queries whose terms have any weights; and what engines that search so have in common.

A document's score is Σ weight × idf × tf / (tf + k1 × (1 − b + b × length / mean length)) over the query's terms, as
Lucene's BM25Similarity computes it: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the
field, lengths are rounded to one byte, and there is no factor k1 + 1. In plain BM25 the weight of a term is how often
the query has it. Engines over words put documents with equal scores into ascending order of their ids, and write that
order into the scores, as Anserini does: trec_eval would otherwise read ties in descending order.
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
    size_of,
)
from evaluation.engines.index import kernels
from evaluation.engines.index.inverted_index import DECODED_LENGTHS, FIELD_MARK, InvertedIndex
from evaluation.text import analyser_for
from evaluation.text.languages import known_language_code, language_code

#: The language is that of the corpus.
AUTO_LANGUAGE = "auto"

K1 = Parameter("k1", 0.9, "how slowly repetitions of a term stop adding to the score", least=0.0, most=100.0)
B = Parameter(
    "b", 0.4, "how strongly long documents are held back: 0 not at all, 1 fully", least=0.0, most=1.0
)
STEMMING = Parameter("stemming", True, "whether words are reduced to stems")
LANGUAGE = Parameter(
    "language",
    AUTO_LANGUAGE,
    "how text is cut into terms: a code, such as de, deu, or de-AT, or an English name; auto is the corpus's language, "
    "by default English",
    canonical=lambda text: text if text == AUTO_LANGUAGE else language_code(text),
)


def resolve_language(parameters: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """Return the parameters with the code of the language, the corpus's in place of `AUTO_LANGUAGE`."""
    named = parameters["language"]
    language = resources.language if named == AUTO_LANGUAGE else named
    return {**parameters, "language": known_language_code(language)}


class TermSearch:
    """An opened index and BM25's parameters."""

    def __init__(self, folder: Path, k1: float, b: float, anserini_ties: bool = False) -> None:
        self.anserini_ties = anserini_ties
        self.index = index = InvertedIndex(folder)
        self._inverse_norms = np.stack(
            [
                inverse_norms(k1, b, tokens, documents)
                for tokens, documents in zip(index.tokens, index.documents_with_field, strict=True)
            ]
        )

    def ranking(self, query_id: str, terms: Mapping[str, float], depth: int) -> SearchResult:
        """The best `depth` documents for terms with their weights, in every field; only documents that have one."""
        rows = [
            (place, field, weight)
            for field in range(self.index.fields)
            for term, weight in terms.items()
            if (place := self.index.place(FIELD_MARK * field + term)) >= 0
        ]
        if not rows:
            return SearchResult(query_id, [], np.empty(0, np.float32))
        places, fields, weights = zip(*rows, strict=True)
        numbers = np.array(places, np.int64), np.array(weights, np.float32)
        return self.result(query_id, *numbers, depth, np.array(fields, np.int64))

    def result(
        self, query_id: str, places: Numbers, weights: Floats, depth: int, fields: Numbers | None = None
    ) -> SearchResult:
        """Return the ids that `search` finds, with distinct scores if ties are treated as in Anserini."""
        ranks, scores = self.search(places, weights, depth, fields)
        if self.anserini_ties:
            kernels.write_order_into_scores(scores)
        return SearchResult(query_id, self.index.identifiers(ranks), scores)

    def search(
        self, places: Numbers, weights: Floats, depth: int, fields: Numbers | None = None
    ) -> tuple[Ranks, Floats]:
        """Return the best `depth` documents as (places in the order of identifiers, scores), best first.

        `places` are the index's numbers of the terms, each once, `weights` multiply their idf, and `fields` says to
        which field a term belongs (by default all to the first).
        """
        index = self.index
        if not len(places):
            return np.empty(0, np.uint32), np.empty(0, np.float32)
        if fields is None:
            fields = np.zeros(len(places), np.int64)
        totals = np.array(index.documents_with_field, np.int64)[fields]
        frequencies = index.offsets[places + 1] - index.offsets[places]
        return index.best(
            places,
            weights * inverse_document_frequency(totals, frequencies),
            depth,
            (fields.astype(np.uint64), index.lengths, self._inverse_norms),
            kernels.ASCENDING if self.anserini_ties else kernels.DESCENDING,
        )


class TermEngine(Engine):
    """An engine that searches with BM25 whatever it indexed; subclasses say what that is. Its kernels are compiled."""

    #: Whether documents with equal scores are in ascending order of their ids, and their scores made different.
    anserini_ties = False

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        kernels.load()
        self.k1, self.b = parameters["k1"], parameters["b"]

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return self.searcher.index.document_count

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        self.searcher = TermSearch(folder, self.k1, self.b, self.anserini_ties)

    def size(self) -> int:
        """Return the bytes of the index on disk."""
        return size_of(self.searcher.index.folder)


class WordEngine(TermEngine):
    """A TermEngine whose terms are words of a language; it treats ties as Anserini does."""

    anserini_ties = True

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.language = resolve_language(parameters, resources)["language"]
        self.analyser = analyser_for(self.language, parameters["stemming"])

    @property
    def analyser_name(self) -> str:
        """The analyser, as printed beside results."""
        return self.analyser.name


def inverse_document_frequency(documents: Numbers, document_frequencies: Numbers) -> Floats:
    """BM25Similarity.idf: computed in double precision, kept in float32."""
    frequencies = document_frequencies.astype(np.float64)
    return np.log(1 + (documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)


def inverse_norms(k1: float, b: float, tokens: int, documents: int) -> Floats:
    """By encoded length, 1 / (k1 × (1 − b + b × length / mean length)), in Lucene's order of float32 operations."""
    one = np.float32(1)
    mean_length = np.float32(tokens / max(documents, 1)) or one
    lengths = DECODED_LENGTHS.astype(np.float32)
    with np.errstate(divide="ignore"):  # k1 = 0 makes it infinite, and every frequency count as one
        norms: Floats = one / (
            np.float32(k1) * ((one - np.float32(b)) + np.float32(b) * lengths / mean_length)
        )
    return norms
