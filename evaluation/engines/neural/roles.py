"""The two sides of an encoder: a model for queries and one for documents, often the same, and what it puts first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.engines.base import AUTO
from evaluation.engines.neural.batching import MOST_CHARACTERS, Indices, use_cores
from evaluation.engines.neural.limits import positions
from evaluation.engines.neural.loading import prepare

Model = TypeVar("Model")
Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
#: No text is read further than this many tokens, whatever a checkpoint says.
LONGEST = 512
#: Texts of so many characters are not worth looking for a place to cut them.
_SHORT = 8 * LONGEST
_FIRST_WORDS = re.compile(rf"(?:\s*\S+){{0,{2 * LONGEST}}}")
#: Where a prompt may stand in a checkpoint, by what it is for.
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


def load_roles(checkpoint: Path, threads: int, load: Callable[[Path], Model]) -> dict[Role, Model]:
    """The model for queries and the one for documents, loaded once where they are the same, in a process set up."""
    use_cores(threads)
    prepare(threads)
    folders: dict[Role, Path] = {role: part_folder(checkpoint, role) for role in ROLES}
    loaded = {folder: load(folder) for folder in dict.fromkeys(folders.values())}
    return {role: loaded[folder] for role, folder in folders.items()}


def part_folder(checkpoint: Path, role: Role) -> Path:
    """The folder of the part that encodes queries, or documents."""
    parts = CheckpointDescription.read(checkpoint).parts
    return checkpoint / (role if role in parts else parts[0])


def prompt_for(model: Any, role: Role, wanted: str) -> str | None:
    """What stands before each text: what is wanted, or, for AUTO, what the model itself names for that role."""
    if wanted != AUTO:
        return wanted
    return next((model.prompts[name] for name in _PROMPT_NAMES[role] if model.prompts.get(name)), None)


def longest_text(model: Any, own: int | None, wanted: int) -> int:
    """Tokens of a text that are read: `wanted`, 0 for the checkpoint's own, as far as the model has positions."""
    asked = min(wanted or own or LONGEST, LONGEST)
    transformer = model.transformers_model
    return asked if transformer is None else positions(transformer.config, asked)


def features_of(
    model: Any, texts: Sequence[str], indices: Indices, role: Role, prompt: str | None, device: str
) -> dict[str, Any]:
    """Some of the texts as the library itself prepares them for the model, on its device."""
    some = [readable_part(texts[index]) for index in indices.tolist()]
    features = model.preprocess(some, prompt=prompt, task=role)
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in features.items()
    }


def readable_part(text: str) -> str:
    """The text, without what lies behind all that any model here reads: a word is one token at least."""
    if len(text) <= _SHORT:
        return text
    words = _FIRST_WORDS.match(text[:MOST_CHARACTERS])
    return words.group() if words else ""


def character_lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    """Characters of each text, which stand for its tokens where batches are made of texts of like length."""
    return np.array([min(len(text), _SHORT) for text in texts], np.int64)
