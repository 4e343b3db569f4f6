"""The content of a rebuilt checkpoint: JSON of our own writing, and tensors to copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.checkpoints.safetensors import Tensor


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One folder of a rebuilt checkpoint, or a folder in it: files by name, relative to it."""

    json: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def under(self, folder: str) -> ModelPart:
        """Return the same files in a sub-folder."""
        start = f"{folder}/" if folder else ""
        return ModelPart(
            {start + name: value for name, value in self.json.items()},
            {start + name: value for name, value in self.weights.items()},
        )

    def __or__(self, other: ModelPart) -> ModelPart:
        return ModelPart({**self.json, **other.json}, {**self.weights, **other.weights})

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [tensor for tensors in self.weights.values() for tensor in tensors.values()]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole valid checkpoint: its parts by name, and its description without the facts of the rebuilt files."""

    description: CheckpointDescription
    parts: Mapping[str, ModelPart]

    def described(self, **changes: Any) -> Plan:
        """Return the plan with other values in its description."""
        return replace(self, description=replace(self.description, **changes))
