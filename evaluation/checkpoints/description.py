"""Description of a rebuilt checkpoint, stored as `checkpoint.json`, and plan of the files to write for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from evaluation.checkpoints.weights import Tensor

FILE_NAME = "checkpoint.json"


class CheckpointKind(StrEnum):
    """Kinds of checkpoints. The kind determines which engines can run a checkpoint."""

    SENTENCE_ENCODER = "sentence-encoder"  # Transformer, Pooling, any Dense, perhaps Normalize
    STATIC_EMBEDDINGS = "static-embeddings"  # one vector per token, averaged
    SPARSE_ENCODER = "sparse-encoder"  # SPLADE, SPARTA-like, inference-free
    MULTI_VECTOR = "multi-vector"  # ColBERT: one projected vector per token
    CROSS_ENCODER = "cross-encoder"  # scores a query and a document together
    SEQ2SEQ = "seq2seq"  # T5: writes queries for documents, or expands queries
    TERM_WEIGHTING = "term-weighting"  # DeepCT: one weight per token
    QUERY_AUGMENTATION = "query-augmentation"  # an encoder, W and u
    CONTAINER = "container"  # a container image, which is not rebuilt


#: Kinds of models that are rebuilt from weights and run by Runboard's own code.
MODEL_KINDS = tuple(kind for kind in CheckpointKind if kind != CheckpointKind.CONTAINER)


#: Value of `pooling` for a plain encoder that is run as SPARTA.
SPARTA = "sparta"
#: Files of additional heads next to a dense encoder's weights, as in bge-m3, and the kinds that they add.
HEADS = {
    CheckpointKind.SPARSE_ENCODER: "sparse_linear.safetensors",
    CheckpointKind.MULTI_VECTOR: "colbert_linear.safetensors",
}
#: Names of these heads as published pickles, which `pack` converts.
PICKLED_HEADS = tuple(name.replace(".safetensors", ".pt") for name in HEADS.values())


@dataclass(frozen=True, slots=True)
class CheckpointDescription:
    """Description of a rebuilt checkpoint.

    Attributes:
        kind: Its main kind.
        parts: Its separately loadable folders: ("model",), or ("query", "document") with an encoder for each.
        model_type: Model type of transformers.
        parameters: Number of weights.
        size: Bytes of all files.
        sha256: Checksum of the names and bytes of all rebuilt files but this one: the identity of the model.
        dimension: Dimension of the output vectors.
        maximum_length: Maximum length of a text in tokens.
        pooling: Combination of the tokens' outputs, empty if the files do not state it.
        similarity: "cosine" or "dot", empty if the files do not state it.
        prompts: Prefixes of queries and documents, by name: by default, "query" and "document".
        template: Template in `checkpoints.settings` for a re-ranking language model, empty if unknown.
        also: Additional kinds due to HEADS.
        files: Checksum of each file in hexadecimal, by name.
        image: Facts about a container image: digest, command, labels, layers, and expanded bytes.
    """

    kind: CheckpointKind
    parts: tuple[str, ...]
    model_type: str
    parameters: int = 0
    size: int = 0
    sha256: str = ""
    dimension: int | None = None
    maximum_length: int | None = None
    pooling: str = ""
    similarity: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    also: tuple[CheckpointKind, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    image: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[CheckpointKind]:
        """All kinds of the checkpoint, including the kinds that its heads add."""
        return frozenset((self.kind, *self.also))

    def write(self, folder: Path) -> None:
        (folder / FILE_NAME).write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the description from the output of `asdict` after a round trip through JSON."""
        also = tuple(map(CheckpointKind, values.get("also", ())))
        converted = {"kind": CheckpointKind(values["kind"]), "parts": tuple(values["parts"]), "also": also}
        return cls(**{**values, **converted})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the description of a rebuilt folder. Raises FileNotFoundError if there is none."""
        return cls.from_dict(json.loads((folder / FILE_NAME).read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True)
class ModelPart:
    """Files of a rebuilt checkpoint's folder or subfolder, by relative name."""

    json: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def in_folder(self, folder: str) -> ModelPart:
        """Return the same files in a subfolder."""
        start = f"{folder}/" if folder else ""
        return ModelPart(
            {start + name: value for name, value in self.json.items()},
            {start + name: value for name, value in self.weights.items()},
        )

    def __or__(self, other: ModelPart) -> ModelPart:
        return ModelPart({**self.json, **other.json}, {**self.weights, **other.weights})


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete valid checkpoint: its parts by name, and its description without the facts of the rebuilt files."""

    description: CheckpointDescription
    parts: Mapping[str, ModelPart]

    @property
    def tensors(self) -> list[Tensor]:
        files = [file for part in self.parts.values() for file in part.weights.values()]
        return [tensor for file in files for tensor in file.values()]

    def with_description(self, **changes: Any) -> Plan:
        """Return the plan with other values in its description."""
        return replace(self, description=replace(self.description, **changes))
