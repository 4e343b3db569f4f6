"""What a rebuilt checkpoint will consist of: JSON of our own writing, and tensors to copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.safetensors import Tensor


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One folder of a rebuilt checkpoint, or a folder in it: files by name, relative to it."""

    json: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def under(self, folder: str) -> ModelPart:
        """The same files in a sub-folder."""
        start = f"{folder}/" if folder else ""
        return ModelPart(
            {start + name: value for name, value in self.json.items()},
            {start + name: value for name, value in self.weights.items()},
        )

    def __or__(self, other: ModelPart) -> ModelPart:
        return ModelPart({**self.json, **other.json}, {**self.weights, **other.weights})

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        return sum(tensor.parameters for tensors in self.weights.values() for tensor in tensors.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole checkpoint, valid: what its description will say, and its parts by name.

    `template` is the prompt template of a re-ranking language model. `also` are the kinds that further heads make
    it.
    """

    kind: CheckpointKind
    parts: Mapping[str, ModelPart]
    model_type: str
    dimension: int | None = None
    maximum_length: int | None = None
    pooling: str = ""
    similarity: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    also: tuple[CheckpointKind, ...] = ()

    def describe(
        self, size: int = 0, sha256: str = "", files: Mapping[str, str] | None = None
    ) -> CheckpointDescription:
        """The description of what is made of it, which has so many bytes, this identity, and these files' checksums."""
        return CheckpointDescription(
            self.kind,
            tuple(self.parts),
            self.model_type,
            sum(part.parameters for part in self.parts.values()),
            size,
            sha256,
            self.dimension,
            self.maximum_length,
            self.pooling,
            self.similarity,
            dict(self.prompts),
            self.template,
            self.also,
            dict(files or {}),
        )
