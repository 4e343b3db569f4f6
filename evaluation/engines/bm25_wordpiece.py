"""BM25 over a model's word pieces in place of words: what learned weights of pieces are to be compared with.

The same formula as `bm25` (see `term_search`). A document's terms are all pieces of its title and text, however long,
without stop words or stems; special tokens, also the one for unknown pieces, are no terms. N counts the documents that
have a piece.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.engines.base import EngineDescription, Resources, SearchResult
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.term_search import K1, B, TermEngine
from evaluation.engines.index.word_pieces import WordPieces, grouped


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


DESCRIPTIONS = (
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
