"""Document expansion: queries that a model writes for each document are indexed with it, and found by BM25.

R. Nogueira, J. Lin, "From doc2query to docTTTTTquery", 2019: a T5 reads the document (512 word pieces, as in the BEIR
paper, which uses 40 queries) and queries are drawn token by token from the 10 likeliest. Here the draws follow from
the seed and the document's text alone, so that shards and batches make no difference. What is indexed is title, text
and all queries, as one field; a document without a word has no queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    Progress,
    Resources,
)
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, ReadWordsEngine

if TYPE_CHECKING:
    from evaluation.engines.neural.text_models import TextWriter


class DocumentExpansion(ReadWordsEngine):
    """BM25 over documents and the queries written for them."""

    shard_file = "documents.jsonl"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.writer = load_writer(parameters, resources)
        self._written = self._words = 0

    def rows(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> Iterable[Mapping[str, Any]]:
        """Return the documents with the queries that the model writes for them."""
        worded = [number for number, text in enumerate(texts) if text]
        written = self.writer.sample([texts[number] for number in worded], progress)
        queries = dict(zip(worded, written, strict=True))
        return (
            {"_id": identifier, "text": text, "queries": queries.get(number, [])}
            for number, (identifier, text) in enumerate(zip(ids, texts, strict=True))
        )

    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document with its queries."""
        expansion = " ".join(row["queries"])
        self._written += len(row["queries"])
        self._words += len(expansion.split())
        builder.add(row["_id"], (f"{row['text']} {expansion}",))

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many queries a document has, and how many words they have together, in the mean."""
        documents = max(self.documents, 1)
        return {
            "queries_per_document": self._written / documents,
            "generated_length": self._words / documents,
            "maximum_length": self.parameters["maximum_length"],
        }


def load_writer(parameters: Mapping[str, Any], resources: Resources) -> TextWriter:
    """Return the sequence-to-sequence model of the checkpoint. Raises ModelFailure."""
    from evaluation.engines.neural.text_models import TextWriter

    return TextWriter(parameters, resources)


_SAMPLING = (
    Parameter("queries_per_document", 40, "how many queries are written for a document", least=1, most=200),
    Parameter("top_k", 10, "how many of the likeliest tokens each is drawn from", least=1, most=1000),
    Parameter("maximum_length", 512, "how many tokens of a text are read", least=8, most=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "how many tokens a generated text has at most", least=1, most=512),
    Parameter("seed", 0, "which draws are made", least=0, most=2**31 - 1),
    COMPUTE_DTYPE,
)

DESCRIPTIONS = (
    EngineDescription(
        name="doc2query",
        label="Document expansion",
        architecture="document-expansion",
        description="BM25 over documents and queries that a T5 writes for them (docT5query).",
        parameters=(*_SAMPLING, K1, B, STEMMING, LANGUAGE),
        create=DocumentExpansion,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        encoding_parameters=tuple(parameter.name for parameter in _SAMPLING),
        writes_texts=True,
    ),
)
