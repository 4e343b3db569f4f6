"""Dense retrieval: a text is one vector, made by one encoder or by one each for queries and documents.

V. Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", 2020 (two encoders); N. Reimers and
I. Gurevych, "Sentence-BERT", 2019 (one, with mean pooling). Texts are cut as in the BEIR paper (§4): at 512 tokens, or
at what the checkpoint was trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.strings import Strings, StringsWriter
from evaluation.engines.base import (
    AUTO,
    BATCH_TOKENS,
    COMPUTE_DTYPE,
    MAXIMUM_LENGTH,
    EngineDescription,
    FactValue,
    InvalidParameter,
    Parameter,
    Progress,
    Resources,
    SearchResult,
    ShardedEngine,
    ignore,
    opened,
)
from evaluation.engines.index.vector_index import (
    APPROXIMATE_PARAMETERS,
    STORED,
    VectorIndex,
    build_index,
    new_vectors,
)

if TYPE_CHECKING:
    from evaluation.engines.neural.encoding import Encoder

VECTORS = "embeddings.npy"
IDS = "ids"

FIELDS: dict[str, Callable[[Document], str]] = {
    "title+text": lambda document: f"{document.title} {document.text}".strip(),
    "title": lambda document: document.title,
    "text": lambda document: document.text,
}

#: Queries whose results are compared with the exact ones.
_SAMPLE = 100


class DenseRetrieval(ShardedEngine):
    """A dense engine; see `engines.base` for its methods."""

    #: All of them in one pass over the documents, as far as that can be.
    queries_at_once = 1_024

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural import loading
        from evaluation.engines.neural.encoding import Encoder, EncoderSettings

        super().__init__()
        self.parameters = parameters
        self.resources = resources
        self.checkpoint = CheckpointDescription.read(resources.model)
        self._check()
        self.similarity = (
            parameters["similarity"]
            if parameters["similarity"] != AUTO
            else self.checkpoint.similarity or "cosine"
        )
        self.text_of = FIELDS[parameters["fields"]]
        loading.prepare(resources.threads)
        settings = EncoderSettings(
            pooling=parameters["pooling"],
            maximum_length=parameters["maximum_length"],
            truncate_dimension=parameters["truncate_dimension"],
            unit_length=self.similarity == "cosine" or parameters["normalise"],
            batch_tokens=parameters["batch_tokens"],
            compute_dtype=parameters["compute_dtype"],
        )
        encoders = {
            part: Encoder(resources.model / part, resources.device, settings)
            for part in self.checkpoint.parts
        }
        self._documents: Encoder = encoders.get("document") or encoders["model"]
        self._queries: Encoder = encoders.get("query") or encoders["model"]
        self._index: VectorIndex | None = None
        self._sample: list[NDArray[np.float32]] = []

    def _check(self) -> None:
        """Raise InvalidParameter where parameters do not go together."""
        values = self.parameters
        if values["search"] != "exact" and values["stored_dtype"] != "float32":
            raise InvalidParameter(
                f"search = {values['search']} builds an index of its own from float32; leave stored_dtype at that."
            )
        if self.checkpoint.kind == CheckpointKind.STATIC_EMBEDDINGS and values["pooling"] not in (
            AUTO,
            "mean",
        ):
            raise InvalidParameter("Static embeddings are averaged; leave pooling at auto.")

    @property
    def analyser_name(self) -> str:
        """What makes the vectors, as printed beside results."""
        pooling = f", {self._documents.pooling} pooling" if self._documents.pooling else ""
        return f"{self.checkpoint.model_type}{pooling}, {self.similarity}"

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return opened(self._index).documents

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the documents' vectors (documents × dimension, float32) and ids."""
        vectors = new_vectors(folder / VECTORS, len(documents), self._documents.dimension)
        self._documents.encode(
            list(map(self.text_of, documents)), self._prompt("document"), vectors, progress
        )
        with StringsWriter(folder, IDS) as ids:
            for document in documents:
                ids.write(document.id)

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Open the shards for exact search, or index them approximately."""
        build_index(
            [shard / VECTORS for shard in shards],
            [str(name, "utf-8") for shard in shards for name in Strings(shard, IDS)],
            folder,
            self.parameters,
            self.resources.threads,
        )
        self.open(folder)
        progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index that was built."""
        self._index = VectorIndex(folder, self.parameters, self.resources)

    def size(self) -> int:
        """Bytes of vectors (or their index) and ids."""
        return opened(self._index).size()

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """The best `depth` documents of each query."""
        index = opened(self._index)
        waiting = iter(queries)
        while some := list(islice(waiting, self.queries_at_once)):
            vectors = np.zeros((len(some), self._queries.dimension), np.float32)
            with self.clock.part("query_encoding"):
                self._queries.encode([query.text for query in some], self._prompt("query"), vectors)
            self._sample += list(vectors[: _SAMPLE - len(self._sample)])
            with self.clock.part("search"):
                found = list(index.search(vectors, depth))
            for query, (documents, scores) in zip(some, found, strict=True):
                yield SearchResult(query.id, index.identifiers(documents), scores)

    def facts(self) -> Mapping[str, FactValue]:
        """Dimension, similarity, lengths; what an approximate search or float16 loses, over up to 100 queries."""
        facts: dict[str, FactValue] = {
            "dimension": self._documents.dimension,
            "similarity": self.similarity,
            "stored_dtype": self.parameters["stored_dtype"],
            "index_kind": self.parameters["search"],
        }
        if self._documents.maximum_length is not None:
            facts["maximum_length"] = self._documents.maximum_length
        if self._sample and self.documents:
            sample = np.stack(self._sample)
            if self.parameters["search"] != "exact":
                facts["recall_against_exact"] = opened(self._index).overlap_with_exact(sample)
            elif self.parameters["stored_dtype"] != "float32":
                facts["overlap_with_float32"] = opened(self._index).overlap_with_exact(sample)
        return facts

    def _prompt(self, side: str) -> str:
        asked: str = self.parameters[f"{side}_prompt"]
        return self.checkpoint.prompts.get(side, "") if asked == AUTO else asked


PARAMETERS = (
    Parameter(
        "fields",
        "title+text",
        "what is encoded: title and text with a blank between, or one of them",
        choices=tuple(FIELDS),
    ),
    Parameter(
        "similarity",
        AUTO,
        "inner product (dot) or cosine; auto is what the checkpoint says, where it says nothing cosine",
        choices=(AUTO, "cosine", "dot"),
    ),
    Parameter("normalise", False, "whether vectors get length one also where similarity is dot"),
    Parameter("query_prompt", AUTO, "put before each query; auto is what the checkpoint says"),
    Parameter("document_prompt", AUTO, "put before each document; auto is what the checkpoint says"),
    Parameter(
        "pooling",
        AUTO,
        "how token vectors become one: their mean or greatest values, that of [CLS], that of the last token; auto is "
        "what the checkpoint says",
        choices=(AUTO, "mean", "cls", "max", "lasttoken"),
    ),
    MAXIMUM_LENGTH,
    Parameter("truncate_dimension", 0, "leading dimensions kept of a vector; 0 is all", least=0, most=65_536),
    COMPUTE_DTYPE,
    BATCH_TOKENS,
    Parameter("stored_dtype", "float32", "what vectors are stored and searched in", choices=STORED),
    Parameter(
        "search",
        "exact",
        "exact, or an approximate index of faiss, whose recall is measured",
        choices=("exact", "hnsw", "ivf", "pq"),
    ),
    *APPROXIMATE_PARAMETERS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="dense",
        label="Dense",
        architecture="dense",
        description="Dense bi-encoder: one vector for each text, by one encoder or two, searched by inner product.",
        parameters=PARAMETERS,
        create=DenseRetrieval,
        checkpoints=(CheckpointKind.SENTENCE_ENCODER, CheckpointKind.STATIC_EMBEDDINGS),
        encoding_parameters=(
            "fields",
            "similarity",
            "normalise",
            "document_prompt",
            "pooling",
            "maximum_length",
            "truncate_dimension",
            "compute_dtype",
            "batch_tokens",
        ),
    ),
)
