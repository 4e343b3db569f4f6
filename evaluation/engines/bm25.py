"""BM25 as Lucene computes it, over an inverted index of our own.

S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the variant of
Lucene's BM25Similarity: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the field;
a term adds idf × tf / (tf + k1 × (1 − b + b × length / mean length)), with lengths rounded to one byte. A term that
the query repeats counts as often as it is there.

Beside bm25s a search takes 0.96 of the CPU time, indexing 0.41 of it and half of the memory (docs/benchmarks.md).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.collections.beir import Document, Query
from evaluation.engines.base import EngineDescription, Parameter, ParameterValue, Resources, SearchResult
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, WordEngine

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
)
