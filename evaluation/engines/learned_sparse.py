"""Learned sparse retrieval: a model weights terms of its vocabulary, which are searched with an inverted index.

SPLADE: T. Formal et al., "SPLADE v2", 2021. SPARTA: T. Zhao et al., "SPARTA", 2021; the BEIR paper (N. Thakur et al.,
2021, §4) stores 2,000 of its weights per document. Inference-free models look up the weights of query terms in a
table. The search is exact: scores are dot products of the stored float32 weights. Only documents with positive scores
are retrieved.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.engines.base import (
    AUTO,
    BATCH_TOKENS,
    COMPUTE_DTYPE,
    ENCODING,
    MAXIMUM_LENGTH,
    DividedEngine,
    EngineDescription,
    FactValue,
    Parameter,
    Progress,
    Resources,
    SearchResult,
    ignore,
    total_size,
)
from evaluation.engines.index.inverted_index import WeightedIndex, write_sparse_shard, write_weighted_index
from evaluation.engines.passages import FIELDS, FIELDS_PARAMETER
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts


class LearnedSparse(DividedEngine):
    """A learned sparse engine."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.sided_encoders import SparseTextEncoder

        super().__init__(parameters, resources)
        self.encoder = SparseTextEncoder(resources, parameters)
        self.read_text = FIELDS[parameters["fields"]]
        self._queries = self._query_nonzeros = 0

    @property
    def analyser_name(self) -> str:
        return f"{self.encoder.dimension:,} terms, {self.encoder.maximum_length} tokens at most"

    @property
    def documents(self) -> int:
        return len(self.index)

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the documents' ids and one sparse row of weights per document."""
        rows = self.encoder.encode(list(map(self.read_text, documents)), "document", progress)
        write_sparse_shard(folder, [document.id for document in documents], rows)

    def build_part(self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore) -> None:
        write_weighted_index(shards, folder, self.encoder.dimension, progress)
        self.open(folder)

    def open(self, folder: Path) -> None:
        self.index = WeightedIndex(folder)

    def size(self) -> int:
        return total_size(self.index.folder)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query that have a positive score."""
        index = self.index
        with self.clock.part("query_encoding"):
            rows = self.encoder.encode([query.text for query in queries], "query")
        self._queries += len(queries)
        self._query_nonzeros += len(rows.terms)
        for number, query in enumerate(queries):
            with self.clock.part("search"):
                ranking = index.search(query.id, *rows.row(number), depth)
            yield ranking

    def facts(self) -> Mapping[str, FactValue]:
        """Return the dimension, the maximum length, and the mean numbers of weights of documents and queries."""
        return {
            "dimension": self.encoder.dimension,
            "similarity": self.encoder.similarity,
            "maximum_length": self.encoder.maximum_length,
            "nonzeros_per_document": self.index.nonzeros / max(self.documents, 1),
            "nonzeros_per_query": self._query_nonzeros / max(self._queries, 1),
        }


PARAMETERS = (
    Parameter(
        "most_terms",
        AUTO,
        "maximum number of terms per document, by largest weight; auto uses the checkpoint's max_active_dims, "
        "also for queries, or 2,000 if it has none; 0 keeps all",
        minimum=0,
        maximum=1_000_000,
    ),
    FIELDS_PARAMETER,
    *PROMPT_PARAMETERS,
    MAXIMUM_LENGTH,
    COMPUTE_DTYPE,
    BATCH_TOKENS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="learned-sparse",
        label="Learned sparse",
        architecture="learned-sparse",
        description="A model weights terms of its vocabulary (SPLADE, SPARTA, inference-free). The search is exact.",
        parameters=PARAMETERS,
        create=LearnedSparse,
        checkpoints=(CheckpointKind.SPARSE_ENCODER,),
        encoding_parameters=(*ENCODING, "most_terms"),
        check_parameters=check_prompts,
    ),
)
