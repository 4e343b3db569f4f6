"""What is known of a rebuilt checkpoint, kept in its folder as `checkpoint.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

FILE_NAME = "checkpoint.json"


class CheckpointKind(StrEnum):
    """What a checkpoint is, which decides the engines that can run it."""

    SENTENCE_ENCODER = "sentence-encoder"  # Transformer, Pooling, any Dense, perhaps Normalize
    STATIC_EMBEDDINGS = "static-embeddings"  # one vector per token, averaged
    SPARSE_ENCODER = "sparse-encoder"  # SPLADE, SPARTA-like, inference-free
    MULTI_VECTOR = "multi-vector"  # ColBERT: one projected vector per token
    CROSS_ENCODER = "cross-encoder"  # scores a query and a document together
    SEQ2SEQ = "seq2seq"  # T5: writes queries for documents, or expands queries
    TERM_WEIGHTING = "term-weighting"  # DeepCT: one weight per token
    QUERY_AUGMENTATION = "query-augmentation"  # an encoder, W and u


#: What `pooling` says of a plain encoder that is run as SPARTA.
SPARTA = "sparta"
#: Files beside a dense encoder's weights that make other kinds of it, as bge-m3 has them.
HEADS = {
    CheckpointKind.SPARSE_ENCODER: "sparse_linear.safetensors",
    CheckpointKind.MULTI_VECTOR: "colbert_linear.safetensors",
}
#: As their authors publish them: pickles, which `pack` converts.
PICKLED_HEADS = tuple(name.replace(".safetensors", ".pt") for name in HEADS.values())


@dataclass(frozen=True, slots=True)
class CheckpointDescription:
    """A rebuilt checkpoint as data.

    `parts` are the folders in it, each loadable by itself: ("model",), or ("query", "document") where queries and
    documents have an encoder each. `parameters` counts weights; `dimension` is of the vectors that come out;
    `maximum_length` counts tokens. `prompts` holds what may be put before a text by its name: what is put where
    nobody chooses by "query" and "document".
    `pooling` and `similarity` ("cosine" or "dot") are empty where the files do not say. `template` is the one of
    `checkpoints.templates` that a re-ranking language model is asked with, empty where none is known. `also` are the
    other kinds that HEADS make it. `sha256` is over the names and bytes of all rebuilt files but this one: the
    identity of the model. `files` has each one's own, in hexadecimal, by its name.
    """

    kind: CheckpointKind
    parts: tuple[str, ...]
    model_type: str
    parameters: int
    size: int
    sha256: str
    dimension: int | None = None
    maximum_length: int | None = None
    pooling: str = ""
    similarity: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    also: tuple[CheckpointKind, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[CheckpointKind]:
        """What it is, and what its heads make of it."""
        return frozenset((self.kind, *self.also))

    def write(self, folder: Path) -> None:
        """Write `checkpoint.json` into the rebuilt folder."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The description that these values are, as `asdict` and JSON leave them."""
        also = tuple(map(CheckpointKind, values.get("also", ())))
        own = {"kind": CheckpointKind(values["kind"]), "parts": tuple(values["parts"]), "also": also}
        return cls(**{**values, **own})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The description in a rebuilt folder. Raises FileNotFoundError where there is none."""
        return cls.of(json.loads((folder / FILE_NAME).read_text(encoding="utf-8")))
