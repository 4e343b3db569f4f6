"""Dense retrieval: a text is one vector, made by one encoder or by one each for queries and documents.

V. Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", 2020 (two encoders); N. Reimers and
I. Gurevych, "Sentence-BERT", 2019 (one, with mean pooling). Texts are cut as in the BEIR paper (§4): at 512 tokens, or
at what the checkpoint was trained with.
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
    NamedNumbers,
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
    STORED,
    Cut,
    VectorIndex,
    build_index,
    bytes_of_vector,
    copy_vectors,
    is_learned,
    leading,
    learn,
    load_vectors,
    new_vectors,
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
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts, prompts_of

VECTORS = "embeddings.npy"
IDS = "ids"

#: How many documents there are, which may be fewer than the index has texts.
_COUNTED = "documents.json"
#: Queries whose results are compared with the exact ones.
_SAMPLE = 100
_MOST_DIMENSIONS = 65_536
#: Numbers of dimensions that are searched beside the main one.
MOST_SMALLER = 6
_NAMED_DIMENSIONS = NamedNumbers("dimensions", _MOST_DIMENSIONS, MOST_SMALLER, "all dimensions")


class DenseRetrieval(VariantEngine[int], DividedEngine):
    """A dense engine, whose variants are numbers of dimensions; see `engines.base` for its methods."""

    #: All of them in one pass over the documents, as far as that can be.
    queries_at_once = 1_024

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.encoding import Encoder
        from evaluation.engines.neural.loading import load_roles

        super().__init__(parameters, resources)
        self.checkpoint = CheckpointDescription.read(resources.model)
        check_parameters(parameters, self.checkpoint)
        self.similarity = (
            parameters["similarity"]
            if parameters["similarity"] != AUTO
            else self.checkpoint.similarity or "cosine"
        )
        self.texts_of = PassageReader(parameters)
        self._unit_length = self.similarity == "cosine" or parameters["normalise"]
        encoders = load_roles(
            resources,
            lambda folder: Encoder(folder, resources.device, parameters, unit_length=self._unit_length),
        )
        self._documents, self._queries = encoders["document"], encoders["query"]
        self.settings = _dimensions(parameters, self._documents.dimension)
        self._prompts = prompts_of(self.checkpoint.prompts, parameters)
        self._indexes: dict[int, VectorIndex] = {}
        self._sample: list[Floats] = []

    @property
    def analyser_name(self) -> str:
        """What makes the vectors, as printed beside results."""
        pooling = f", {self._documents.pooling} pooling" if self._documents.pooling else ""
        return f"{self.checkpoint.model_type}{pooling}, {self.similarity}"

    @property
    def _index(self) -> VectorIndex:
        """The main variant's index."""
        return self._indexes[self.main]

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return self._counted if self.texts_of.words else self._index.documents

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the vectors of the documents, or their passages (texts × dimension, float32), and their ids."""
        texts = [self.texts_of(document) for document in documents]
        vectors = new_vectors(folder / VECTORS, sum(map(len, texts)), self._documents.dimension)
        self._documents.encode(list(chain.from_iterable(texts)), self._prompts["document"], vectors, progress)
        with StringsWriter(folder, IDS) as ids:
            for document, own in zip(documents, texts, strict=True):
                for name in passage_ids(document.id, len(own)) if self.texts_of.words else [document.id]:
                    ids.write(name)

    @property
    def learns(self) -> bool:
        """Whether an index has centroids, codes or ranges."""
        return is_learned(self.parameters)

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Learn these from the vectors of all shards, once for each number of dimensions."""
        if not self.learns:
            return
        vectors = [load_vectors(shard / VECTORS) for shard in shards]
        for dimension in self.settings.values():
            own = self._folder(folder, dimension)
            own.mkdir(exist_ok=True)
            learn(vectors, own, self.parameters, self.resources.threads, self._cut(dimension))

    def build_part(
        self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore
    ) -> None:
        """Open the shards for exact search, or index them approximately; once for each number of dimensions."""
        for dimension in self.settings.values():
            vectors = [shard / VECTORS for shard in shards]
            own = self._folder(folder, dimension)
            if own != folder:
                vectors = [own / VECTORS / f"{shard_name(number)}.npy" for number in range(len(shards))]
                (own / VECTORS).mkdir(parents=True)
                for shard, copy in zip(shards, vectors, strict=True):
                    copy_vectors(shard / VECTORS, copy, self._cut(dimension))
            build_index(
                vectors,
                (str(name, "utf-8") for name in _ids(shards)),
                own,
                self.parameters,
                self.resources.threads,
                self._folder(learned, dimension),
            )
        (folder / _COUNTED).write_text(json.dumps(count_documents(_ids(shards))), encoding="utf-8")
        self.open(folder)
        progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index that was built."""
        self._counted = int(json.loads((folder / _COUNTED).read_text(encoding="utf-8")))
        self._indexes = {
            dimension: VectorIndex(self._folder(folder, dimension), self.parameters, self.resources)
            for dimension in self.settings.values()
        }

    def _cut(self, dimension: int) -> Cut:
        return partial(leading, dimension=dimension, unit_length=self._unit_length)

    def _folder(self, folder: Path, dimension: int) -> Path:
        """Where the index of vectors of so many dimensions lies."""
        return folder if dimension == self._documents.dimension else folder / f"dimensions-{dimension}"

    def size(self) -> int:
        """Return the bytes of vectors (or their index) and ids."""
        return self._index.size()

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, int]
    ) -> Iterator[Mapping[str, SearchResult]]:
        vectors = np.zeros((len(queries), self._queries.dimension), np.float32)
        with self.clock.part("query_encoding"):
            self._queries.encode([query.text for query in queries], self._prompts["query"], vectors)
        self._sample += list(vectors[: _SAMPLE - len(self._sample)])
        with self.clock.part("search"):
            found = {label: self._best(size, vectors, depth) for label, size in settings.items()}
        for place, query in enumerate(queries):
            yield {label: SearchResult(query.id, *best[place]) for label, best in found.items()}

    def _best(self, dimension: int, vectors: Floats, depth: int) -> list[tuple[list[str], Floats]]:
        """Ids and scores of the best documents for each of the queries' vectors, cut to so many dimensions."""
        index = self._indexes[dimension]
        vectors = self._cut(dimension)(vectors)
        if self.texts_of.words:
            return best_documents(index, vectors, depth, self._counted)
        return [(index.identifiers(numbers), scores) for numbers, scores in index.search(vectors, depth)]

    def facts(self) -> Mapping[str, FactValue]:
        """Dimension, similarity, lengths; what an approximate search or float16 loses, over up to 100 queries."""
        dimension, stored, index = self.main, self.parameters["stored_dtype"], self._index
        texts = index.documents / max(self.documents, 1)
        facts: dict[str, FactValue] = {
            "dimension": dimension,
            "similarity": self.similarity,
            "stored_dtype": stored,
            "index_kind": self.parameters["search"],
        }
        if self.parameters["search"] == "exact":
            facts["bytes_per_document"] = texts * bytes_of_vector(dimension, stored)
        if self.texts_of.words:
            facts["passages_per_document"] = texts
        if self._documents.maximum_length is not None:
            facts["maximum_length"] = self._documents.maximum_length
        if self._sample and self.documents:
            sample = self._cut(dimension)(np.stack(self._sample))
            if self.parameters["search"] != "exact":
                facts["recall_against_exact"] = index.overlap_with_exact(sample)
            elif stored != "float32":
                facts["overlap_with_float32"] = index.overlap_with_exact(sample)
        return facts


def _ids(shards: Sequence[Path]) -> Iterator[bytes]:
    """Yield the ids of all texts of these shards, in UTF-8."""
    return chain.from_iterable(Strings(shard, IDS) for shard in shards)


def _dimensions(parameters: Mapping[str, Any], own: int) -> dict[str, int]:
    """By label how many dimensions of vectors are searched, all that are encoded last. Raises InvalidParameter."""
    smaller, wanted = _NAMED_DIMENSIONS(parameters["dimensions"]), _truncation(parameters)
    if smaller and smaller[-1] >= own:
        raise InvalidParameter(
            f"dimensions = {smaller[-1]} is not possible: the main result has {own} dimensions."
        )
    main = f"{wanted} dimensions" if wanted else "all dimensions"
    return {**{f"{number} dimensions": number for number in smaller}, main: own}


def _truncation(parameters: Mapping[str, Any]) -> int:
    """Return the number of leading dimensions that a submission asks for; 0 where it asks for none."""
    wanted = parameters["truncate_dimension"]
    return 0 if wanted == AUTO else int(wanted)


def check_parameters(values: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    """Raise InvalidParameter where parameters do not go together, or not with the checkpoint."""
    if values["search"] != "exact" and values["stored_dtype"] != "float32":
        raise InvalidParameter(
            f"search = {values['search']} builds an index of its own from float32; leave stored_dtype at that."
        )
    check_passages(values)
    check_prompts(values, checkpoint)
    own = checkpoint.dimension if checkpoint and values["truncate_dimension"] == AUTO else None
    _dimensions(values, _truncation(values) or own or _MOST_DIMENSIONS + 1)
    static = checkpoint is not None and checkpoint.kind == CheckpointKind.STATIC_EMBEDDINGS
    if static and values["pooling"] not in (AUTO, "mean"):
        raise InvalidParameter("pooling is the mean of static embeddings; leave it at auto.")


PARAMETERS = (
    FIELDS_PARAMETER,
    Parameter(
        "similarity",
        AUTO,
        "inner product (dot) or cosine; auto is what the checkpoint says, where it says nothing cosine",
        choices=(AUTO, "cosine", "dot"),
    ),
    Parameter("normalise", False, "whether vectors get length one also where similarity is dot"),
    *PROMPT_PARAMETERS,
    Parameter(
        "pooling",
        AUTO,
        "how token vectors become one: their mean or greatest values, that of [CLS], that of the last token; auto is "
        "what the checkpoint says",
        choices=(AUTO, "mean", "cls", "max", "lasttoken"),
    ),
    MAXIMUM_LENGTH,
    Parameter(
        "truncate_dimension",
        AUTO,
        "leading dimensions kept of a vector; auto is what the checkpoint says (its truncate_dim); 0 is all",
        least=0,
        most=_MOST_DIMENSIONS,
    ),
    Parameter(
        "dimensions",
        "",
        "smaller numbers of leading dimensions that are searched too, from one encoding (Matryoshka), at most "
        f"{MOST_SMALLER}, such as 64,128,256; empty for none",
        check=_NAMED_DIMENSIONS,
    ),
    *PASSAGE_PARAMETERS,
    COMPUTE_DTYPE,
    BATCH_TOKENS,
    Parameter("stored_dtype", "float32", "what vectors are stored and searched in", choices=STORED),
    Parameter(
        "search",
        "exact",
        "exact, or an approximate index of faiss, whose recall is measured",
        choices=("exact", "hnsw", "ivf", "pq"),
    ),
    *INDEX_PARAMETERS,
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
            *ENCODING,
            "similarity",
            "normalise",
            "pooling",
            "passage_words",
            "passage_stride",
            "truncate_dimension",
        ),
        main_alone={"dimensions": ""},
        variants=lambda parameters: labels(_dimensions(parameters, _MOST_DIMENSIONS + 1)),
        check_parameters=check_parameters,
    ),
)
