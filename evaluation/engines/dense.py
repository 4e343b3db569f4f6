"""Dense retrieval: each text is one vector, from a shared encoder or from separate ones for queries and documents.

V. Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", 2020 (two encoders); N. Reimers and
I. Gurevych, "Sentence-BERT", 2019 (one encoder with mean pooling). Texts are truncated to 512 tokens, as in
the BEIR paper (§4), or to the maximum length of the checkpoint's training.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.strings import Strings, StringsWriter
from evaluation.engines.base import (
    AUTO,
    BATCH_TOKENS,
    COMPUTE_DTYPE,
    ENCODING,
    MAXIMUM_LENGTH,
    DividedEngine,
    EngineDescription,
    FactValue,
    Floats,
    InvalidParameter,
    NumberList,
    Parameter,
    Progress,
    Resources,
    SearchResult,
    VariantEngine,
    ignore,
    labels,
    shard_name,
)
from evaluation.engines.index.vector_index import (
    INDEX_PARAMETERS,
    STORED_DTYPES,
    Truncation,
    VectorIndex,
    build_index,
    bytes_per_vector,
    copy_vectors,
    is_learned,
    learn,
    load_vectors,
    new_vectors,
    truncate_vectors,
)
from evaluation.engines.passages import (
    FIELDS_PARAMETER,
    PASSAGE_PARAMETERS,
    PassageReader,
    best_documents,
    check_passages,
    count_documents,
    passage_ids,
)
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts, get_prompts

VECTORS = "embeddings.npy"
IDS = "ids"

#: File with the number of documents, which is smaller than the number of vectors if documents are split into passages.
_DOCUMENT_COUNT_FILE = "documents.json"
#: Number of queries for which results are compared with exact search.
_SAMPLE = 100
_MAX_DIMENSIONS = 65_536
#: Maximum number of smaller dimensions to search in addition to the main one.
MAX_SMALLER = 6
_NAMED_DIMENSIONS = NumberList("dimensions", _MAX_DIMENSIONS, MAX_SMALLER, "all dimensions")


class DenseRetrieval(VariantEngine[int], DividedEngine):
    """A dense engine. Its variants are numbers of dimensions."""

    #: Large batches need fewer passes over the document vectors.
    queries_at_once = 1_024

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.checkpoint = CheckpointDescription.read(resources.model)
        check_parameters(parameters, self.checkpoint)
        self.similarity = (
            parameters["similarity"] if parameters["similarity"] != AUTO else self.checkpoint.similarity or "cosine"
        )
        self.read_passages = PassageReader(parameters)
        self.unit_length = self.similarity == "cosine" or parameters["normalise"]
        encoders = self.load_encoders()
        self._documents, self._queries = encoders["document"], encoders["query"]
        self.settings = _dimensions(parameters, self._documents.dimension)
        self._prompts = get_prompts(self.checkpoint.prompts, parameters)
        self._indexes: dict[int, VectorIndex] = {}
        self._sample: list[Floats] = []

    def load_encoders(self) -> Mapping[Any, Any]:
        """Return the encoders of queries and documents, keyed by "query" and "document"."""
        from evaluation.engines.neural.encoding import Encoder
        from evaluation.engines.neural.loading import load_roles

        device, parameters = self.resources.device, self.parameters
        return load_roles(
            self.resources, lambda folder: Encoder(folder, device, parameters, unit_length=self.unit_length)
        )

    @property
    def analyser_name(self) -> str:
        pooling = f", {self._documents.pooling} pooling" if self._documents.pooling else ""
        return f"{self.checkpoint.model_type}{pooling}, {self.similarity}"

    @property
    def _index(self) -> VectorIndex:
        return self._indexes[self.main]

    @property
    def documents(self) -> int:
        return self._document_count if self.read_passages.words else self._index.documents

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the vectors of documents or their passages (texts × dimension, float32), and their ids."""
        texts = [self.read_passages(document) for document in documents]
        vectors = new_vectors(folder / VECTORS, sum(map(len, texts)), self._documents.dimension)
        self._documents.encode(list(chain.from_iterable(texts)), self._prompts["document"], vectors, progress)
        with StringsWriter(folder, IDS) as ids:
            for document, passages in zip(documents, texts, strict=True):
                for name in passage_ids(document.id, len(passages)) if self.read_passages.words else [document.id]:
                    ids.write(name)

    @property
    def learns(self) -> bool:
        """Whether the index has centroids, codes, or ranges."""
        return is_learned(self.parameters)

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Learn centroids, codes, or ranges from the vectors of all shards, once for each number of dimensions.

        Does nothing if the index needs no learned data.
        """
        if not self.learns:
            return
        vectors = [load_vectors(shard / VECTORS) for shard in shards]
        for dimension in self.settings.values():
            index_folder = self._index_folder(folder, dimension)
            index_folder.mkdir(exist_ok=True)
            learn(
                vectors,
                index_folder,
                self.parameters,
                self.resources.threads,
                self._get_truncation(dimension),
            )

    def build_part(self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore) -> None:
        """Index the vectors of the shards, once for each number of dimensions, and open the indexes.

        Smaller numbers of dimensions need truncated copies of the vectors. Exact search reads float32 vectors
        directly.
        """
        for dimension in self.settings.values():
            vectors = [shard / VECTORS for shard in shards]
            index_folder = self._index_folder(folder, dimension)
            if index_folder != folder:
                vectors = [index_folder / VECTORS / f"{shard_name(number)}.npy" for number in range(len(shards))]
                (index_folder / VECTORS).mkdir(parents=True)
                for shard, copy in zip(shards, vectors, strict=True):
                    copy_vectors(shard / VECTORS, copy, self._get_truncation(dimension))
            build_index(
                vectors,
                (str(name, "utf-8") for name in _read_ids(shards)),
                index_folder,
                self.parameters,
                self.resources.threads,
                self._index_folder(learned, dimension),
            )
        (folder / _DOCUMENT_COUNT_FILE).write_text(json.dumps(count_documents(_read_ids(shards))), encoding="utf-8")
        self.open(folder)
        progress(1.0)

    def open(self, folder: Path) -> None:
        """Open the index of each number of dimensions, and read the number of documents."""
        self._document_count = int(json.loads((folder / _DOCUMENT_COUNT_FILE).read_text(encoding="utf-8")))
        self._indexes = {
            dimension: VectorIndex(self._index_folder(folder, dimension), self.parameters, self.resources)
            for dimension in self.settings.values()
        }

    def _get_truncation(self, dimension: int) -> Truncation:
        return partial(truncate_vectors, dimension=dimension, unit_length=self.unit_length)

    def _index_folder(self, folder: Path, dimension: int) -> Path:
        return folder if dimension == self._documents.dimension else folder / f"dimensions-{dimension}"

    def size(self) -> int:
        return self._index.size()

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, int]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's best `depth` documents for each setting, which is a number of leading dimensions."""
        vectors = np.zeros((len(queries), self._queries.dimension), np.float32)
        with self.clock.part("query_encoding"):
            self._queries.encode([query.text for query in queries], self._prompts["query"], vectors)
        self._sample += list(vectors[: _SAMPLE - len(self._sample)])
        with self.clock.part("search"):
            results = {label: self._find_best(size, vectors, depth) for label, size in settings.items()}
        for index, query in enumerate(queries):
            yield {label: SearchResult(query.id, *rankings[index]) for label, rankings in results.items()}

    def _find_best(self, dimension: int, vectors: Floats, depth: int) -> list[tuple[list[str], Floats]]:
        """Truncate query vectors to `dimension`, and return ids and scores of the best `depth` documents for each."""
        index = self._indexes[dimension]
        vectors = self._get_truncation(dimension)(vectors)
        if self.read_passages.words:
            return best_documents(index, vectors, depth, self._document_count)
        return [(index.identifiers(numbers), scores) for numbers, scores in index.search(vectors, depth)]

    def facts(self) -> Mapping[str, FactValue]:
        """Return dimension, similarity, storage, and lengths, and how well the index agrees with exact float32 search.

        The agreement is measured over up to 100 queries, only for approximate search and for lower precision.
        """
        dimension, stored_dtype, index = self.main, self.parameters["stored_dtype"], self._index
        texts = index.documents / max(self.documents, 1)
        facts: dict[str, FactValue] = {
            "dimension": dimension,
            "similarity": self.similarity,
            "stored_dtype": stored_dtype,
            "index_kind": self.parameters["search"],
        }
        if self.parameters["search"] == "exact":
            facts["bytes_per_document"] = texts * bytes_per_vector(dimension, stored_dtype)
        if self.read_passages.words:
            facts["passages_per_document"] = texts
        if self._documents.maximum_length is not None:
            facts["maximum_length"] = self._documents.maximum_length
        if self._sample and self.documents:
            sample = self._get_truncation(dimension)(np.stack(self._sample))
            if self.parameters["search"] != "exact":
                facts["recall_against_exact"] = index.overlap_with_exact(sample)
            elif stored_dtype != "float32":
                facts["overlap_with_float32"] = index.overlap_with_exact(sample)
        return facts


def _read_ids(shards: Sequence[Path]) -> Iterator[bytes]:
    return chain.from_iterable(Strings(shard, IDS) for shard in shards)


def _dimensions(parameters: Mapping[str, Any], dimension: int) -> dict[str, int]:
    """Return the numbers of dimensions to search, keyed by label, with the full vectors last.

    Raises InvalidParameter if another number is not below `dimension`.
    """
    smaller_dimensions, truncation = _NAMED_DIMENSIONS(parameters["dimensions"]), _truncation(parameters)
    if smaller_dimensions and smaller_dimensions[-1] >= dimension:
        raise InvalidParameter(
            f"dimensions = {smaller_dimensions[-1]} is not valid: the main result has only {dimension} dimensions."
        )
    main = f"{truncation} dimensions" if truncation else "all dimensions"
    return {**{f"{number} dimensions": number for number in smaller_dimensions}, main: dimension}


def _truncation(parameters: Mapping[str, Any]) -> int:
    """Return the number of leading dimensions that a submission requests, 0 if it requests none."""
    value = parameters["truncate_dimension"]
    return 0 if value == AUTO else int(value)


def check_parameters(values: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    """Raise InvalidParameter if parameters are incompatible with each other or with the checkpoint."""
    if values["search"] != "exact" and values["stored_dtype"] != "float32":
        raise InvalidParameter(
            f"search = {values['search']} builds its index from float32 vectors; set stored_dtype to float32."
        )
    check_passages(values)
    check_prompts(values, checkpoint)
    dimension = checkpoint.dimension if checkpoint and values["truncate_dimension"] == AUTO else None
    _dimensions(values, _truncation(values) or dimension or _MAX_DIMENSIONS + 1)
    static = checkpoint is not None and checkpoint.kind == CheckpointKind.STATIC_EMBEDDINGS
    if static and values["pooling"] not in (AUTO, "mean"):
        raise InvalidParameter("Static embeddings are always pooled by their mean; set pooling to auto.")


PARAMETERS = (
    FIELDS_PARAMETER,
    Parameter(
        "similarity",
        AUTO,
        "inner product (dot) or cosine; auto uses the checkpoint's setting, or cosine if it has none",
        choices=(AUTO, "cosine", "dot"),
    ),
    Parameter("normalise", False, "whether to normalize vectors to unit length even if similarity is dot"),
    *PROMPT_PARAMETERS,
    Parameter(
        "pooling",
        AUTO,
        "how token vectors are combined: by mean or maximum, or the vector of [CLS] or of the last token; auto uses "
        "the checkpoint's setting",
        choices=(AUTO, "mean", "cls", "max", "lasttoken"),
    ),
    MAXIMUM_LENGTH,
    Parameter(
        "truncate_dimension",
        AUTO,
        "number of leading dimensions to keep; auto uses the checkpoint's truncate_dim; 0 keeps all",
        minimum=0,
        maximum=_MAX_DIMENSIONS,
    ),
    Parameter(
        "dimensions",
        "",
        "smaller numbers of leading dimensions to search with the same encoding (Matryoshka), such as 64,128,256; at "
        f"most {MAX_SMALLER}; empty for none",
        check=_NAMED_DIMENSIONS,
    ),
    *PASSAGE_PARAMETERS,
    COMPUTE_DTYPE,
    BATCH_TOKENS,
    Parameter("stored_dtype", "float32", "data type in which vectors are stored and searched", choices=STORED_DTYPES),
    Parameter(
        "search",
        "exact",
        "exact search, or an approximate faiss index with measured recall",
        choices=("exact", "hnsw", "ivf", "pq"),
    ),
    *INDEX_PARAMETERS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="dense",
        label="Dense",
        architecture="dense",
        description="Dense bi-encoder: one vector per text, from one encoder or two, searched by inner product.",
        parameters=PARAMETERS,
        create=DenseRetrieval,
        checkpoints=(CheckpointKind.SENTENCE_ENCODER, CheckpointKind.STATIC_EMBEDDINGS),
        encoding_parameters=(
            *ENCODING,
            "similarity",
            "normalise",
            "pooling",
            "passage_words",
            "passage_stride",
            "truncate_dimension",
        ),
        main_alone={"dimensions": ""},
        variants=lambda parameters: labels(_dimensions(parameters, _MAX_DIMENSIONS + 1)),
        check_parameters=check_parameters,
    ),
)
