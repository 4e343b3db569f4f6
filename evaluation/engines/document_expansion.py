"""Document expansion: queries that a model writes for each document are indexed with it, and found by BM25.

R. Nogueira, J. Lin, "From doc2query to docTTTTTquery", 2019: a T5 reads the document (512 word pieces, as in the BEIR
paper, which uses 40 queries) and queries are drawn token by token from the 10 likeliest. Here the draws follow from
the seed and the document's text alone, so that shards and batches make no difference. What is indexed is title, text
and all queries, as one field; a document without a word has no queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    Progress,
    Resources,
    ShardedEngine,
    ignore,
)
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.rows import read_rows, write_rows
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, WordEngine, resolve_language

if TYPE_CHECKING:
    from evaluation.engines.neural.generation import TextWriter

#: A line for each document of a shard: its id, its text and the queries written for it.
_SHARD_FILE = "documents.jsonl"


class DocumentExpansion(WordEngine, ShardedEngine):
    """BM25 over documents and the queries written for them. `sampling` are the settings of TextWriter.sample."""

    def __init__(
        self, k1: float, b: float, stemming: bool, language: str, writer: TextWriter, sampling: dict[str, int]
    ) -> None:
        super().__init__(k1, b, stemming, language)
        self.writer, self.sampling = writer, sampling
        self._written = self._words = 0

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> DocumentExpansion:
        """An engine with the model of the checkpoint given. Raises ModelFailure."""
        sampling = {
            "count": parameters["queries_per_document"],
            "top_k": parameters["top_k"],
            "maximum_length": parameters["maximum_length"],
            "new_tokens": parameters["generated_tokens"],
            "seed": parameters["seed"],
        }
        spoken = resolve_language(parameters, resources)
        search = {name: spoken[name] for name in ("k1", "b", "stemming", "language")}
        return cls(**search, writer=load_writer(parameters, resources), sampling=sampling)

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write queries for the documents, and both into the empty `folder`. Raises ModelFailure."""
        texts = [f"{document.title} {document.text}".strip() for document in documents]
        worded = [number for number, text in enumerate(texts) if text]
        written = self.writer.sample([texts[number] for number in worded], **self.sampling, progress=progress)
        queries = dict(zip(worded, written, strict=True))
        rows = (
            {"_id": document.id, "text": text, "queries": queries.get(number, [])}
            for number, (document, text) in enumerate(zip(documents, texts, strict=True))
        )
        write_rows(folder / _SHARD_FILE, rows)

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index the documents of all shards with their queries into the empty `folder`, and open the index."""
        builder = IndexBuilder(folder, self.analyser)
        for row in read_rows([shard / _SHARD_FILE for shard in shards], progress):
            expansion = " ".join(row["queries"])
            self._written += len(row["queries"])
            self._words += len(expansion.split())
            builder.add(row["_id"], (f"{row['text']} {expansion}",))
        builder.finish()
        self.open(folder)

    def facts(self) -> Mapping[str, FactValue]:
        """How many queries a document has, and how many words they have together, in the mean."""
        documents = max(self.documents, 1)
        return {
            "queries_per_document": self._written / documents,
            "generated_length": self._words / documents,
            "maximum_length": self.sampling["maximum_length"],
        }


def load_writer(parameters: Mapping[str, Any], resources: Resources) -> TextWriter:
    """The sequence-to-sequence model of the checkpoint. Raises ModelFailure."""
    from evaluation.engines.neural.generation import TextWriter
    from evaluation.engines.neural.loading import prepare

    prepare(resources.threads)
    return TextWriter(resources.first_part, resources.device, parameters["compute_dtype"])


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
        create=DocumentExpansion.create,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        encoding_parameters=tuple(parameter.name for parameter in _SAMPLING),
        writes_texts=True,
    ),
)
