"""BM25 as Lucene computes it, over an inverted index of our own.

S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the variant of
Lucene's BM25Similarity: idf = ln(1 + (N − df + 0.5) / (df + 0.5)), where N counts documents that have the field;
a term adds idf × tf / (tf + k1 × (1 − b + b × length / mean length)), with lengths rounded to one byte. A term that
the query repeats counts as often as it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analysis import analyser_for
from evaluation.collection import Document, Query
from evaluation.engines import kernels
from evaluation.engines.base import Engine, EngineDescription, Parameter, Ranking, Resources
from evaluation.engines.inversion import FIELD_MARK, IndexBuilder
from evaluation.engines.inverted_index import InvertedIndex
from evaluation.engines.lengths import DECODED_LENGTHS

#: What is indexed: name → the document's texts, one for each field that is scored apart.
FIELDS: dict[str, Callable[[Document], tuple[str, ...]]] = {
    "title+text": lambda document: (f"{document.title} {document.text}",),
    "title": lambda document: (document.title,),
    "text": lambda document: (document.text,),
    "multifield": lambda document: (document.title, document.text),
}

#: Room for candidates beyond what is wanted; see `kernels.search`.
_SPARE_KEYS = 1000


class BM25(Engine):
    """A BM25 engine; see `engines.base.Engine` for its methods."""

    def __init__(self, k1: float, b: float, fields: str, stemming: bool, language: str) -> None:
        super().__init__()
        self.k1 = k1
        self.b = b
        self.texts = FIELDS[fields]
        self.analyser = analyser_for(language, stemming)
        self.index: InvertedIndex | None = None

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> BM25:
        """An engine with all of PARAMETERS given, its compiled parts loaded."""
        kernels.load()
        return cls(**parameters)

    @property
    def analyser_name(self) -> str:
        """The analyser, as printed beside results."""
        return self.analyser.name

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return self._opened().document_count

    def build(
        self, corpus: Iterable[Document], folder: Path, progress: Callable[[float], None] | None = None
    ) -> None:
        """Index the corpus into the empty `folder` and open it. `progress` is told 1 at the end."""
        builder = IndexBuilder(folder, self.analyser, fields=len(self.texts(Document("", "", ""))))
        for document in corpus:
            builder.add(document.id, self.texts(document))
        builder.finish()
        self.open(folder)
        if progress is not None:
            progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        self.index = index = InvertedIndex(folder)
        self._inverse_norms = np.stack(
            [
                inverse_norms(self.k1, self.b, tokens, documents)
                for tokens, documents in zip(index.tokens, index.documents_with_field, strict=True)
            ]
        )
        self._sums = np.zeros(kernels.BLOCK_SIZE, np.float64)

    def size(self) -> int:
        """Bytes of the index on disk."""
        return self._opened().size()

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[Ranking]:
        """The best `depth` documents of each query; only documents that have a term of it."""
        index = self._opened()
        keys = np.empty(2 * depth + _SPARE_KEYS, np.uint64)
        for query in queries:
            found = self._search_terms(index, Counter(self.analyser(query.text)), depth, keys)
            best = np.sort(keys[:found])[::-1]
            scores = (best >> np.uint64(32)).astype(np.uint32).view(np.float32)
            ranks = np.uint32(0xFFFFFFFF) - best.astype(np.uint32)
            yield Ranking(query.id, index.identifiers(ranks), scores)

    def _search_terms(
        self, index: InvertedIndex, terms: Mapping[str, int], depth: int, keys: NDArray[np.uint64]
    ) -> int:
        """Leave the best documents' keys in `keys`; return how many there are."""
        rows = [
            (place, field, count)
            for field in range(index.fields)
            for term, count in terms.items()
            if (place := index.place(FIELD_MARK * field + term)) >= 0
        ]
        if not rows:
            return 0
        places, fields, counts = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        starts, ends = index.offsets[places], index.offsets[places + 1]
        totals = np.array(index.documents_with_field, np.int64)[fields]
        return kernels.search(
            index.documents,
            index.frequencies,
            starts.astype(np.uint64),
            ends.astype(np.uint64),
            counts.astype(np.float32) * inverse_document_frequency(totals, ends - starts),
            fields.astype(np.uint64),
            index.lengths,
            self._inverse_norms,
            index.ranks,
            depth,
            self._sums,
            keys,
        )

    def _opened(self) -> InvertedIndex:
        if self.index is None:
            raise RuntimeError("build or open an index first")
        return self.index


def inverse_document_frequency(
    documents: NDArray[np.int64], document_frequencies: NDArray[np.int64]
) -> NDArray[np.float32]:
    """BM25Similarity.idf: computed in double precision, kept in float32."""
    frequencies = document_frequencies.astype(np.float64)
    return np.log(1 + (documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)


def inverse_norms(k1: float, b: float, tokens: int, documents: int) -> NDArray[np.float32]:
    """By encoded length, 1 / (k1 × (1 − b + b × length / mean length)), in Lucene's order of float32 operations."""
    one = np.float32(1)
    mean_length = np.float32(tokens / max(documents, 1)) or one
    lengths = DECODED_LENGTHS.astype(np.float32)
    with np.errstate(divide="ignore"):  # k1 = 0 makes it infinite, and every frequency count as one
        norms: NDArray[np.float32] = one / (
            np.float32(k1) * ((one - np.float32(b)) + np.float32(b) * lengths / mean_length)
        )
    return norms


PARAMETERS = (
    Parameter("k1", 0.9, "how slowly repetitions of a term stop adding to the score", least=0.0, most=100.0),
    Parameter(
        "b", 0.4, "how strongly long documents are held back: 0 not at all, 1 fully", least=0.0, most=1.0
    ),
    Parameter(
        "fields",
        "title+text",
        "what is indexed: title and text as one field, one of them, or both as fields whose scores are added",
        choices=tuple(FIELDS),
    ),
    Parameter("stemming", True, "whether words are reduced to stems"),
    Parameter(
        "language",
        "en",
        "ISO 639-1 code of the corpus's language; without a stemmer for it, words stay as they are",
    ),
)

_MULTIFIELD = tuple(
    Parameter(p.name, "multifield", p.description, p.choices) if p.name == "fields" else p for p in PARAMETERS
)

DESCRIPTIONS = (
    EngineDescription(
        name="bm25",
        label="BM25",
        architecture="lexical",
        description="BM25 as Lucene computes it, title and text in one field (bm25-flat): the baseline of every board.",
        parameters=PARAMETERS,
        create=BM25.create,
    ),
    EngineDescription(
        name="bm25-multifield",
        label="BM25 (multifield)",
        architecture="lexical",
        description="BM25 over title and text as two fields of equal weight, whose scores are added.",
        parameters=_MULTIFIELD,
        create=BM25.create,
    ),
)
