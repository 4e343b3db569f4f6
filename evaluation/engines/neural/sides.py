"""Encoders of sentence-transformers with a model for queries and one for documents: what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.engines.base import Progress
from evaluation.engines.neural.batching import Indices, OutputCheck, run_in_batches
from evaluation.engines.neural.loading import USUAL_LENGTH, Role, readable_part, use_dtype
from evaluation.engines.prompts import prompt_of

Output = TypeVar("Output")
#: A token has about so many characters, or bytes of UTF-8 where a character is a word.
_BYTES_PER_TOKEN = 4


class SidedEncoder(ABC, Generic[Output]):
    """The models of both sides, their prompts, and texts run through them in batches."""

    def __init__(self, models: Mapping[Role, Any], parameters: Mapping[str, Any], device: str) -> None:
        self._models, self._device = models, device
        for model in set(models.values()):
            use_dtype(model, parameters["compute_dtype"], device)
        self._prompts = {
            role: prompt_of(model.prompts, role, parameters[f"{role}_prompt"])
            for role, model in models.items()
        }
        self._batch_tokens = parameters["batch_tokens"]

    @abstractmethod
    def _outputs(
        self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck | None
    ) -> Output:
        """What the model of a side makes of some of the texts, seen by `check`."""

    def _run(
        self, texts: Sequence[str], role: Role, keep: Callable[[Indices, Output], None], progress: Progress
    ) -> None:
        """Give `keep` the outputs for all texts, the longest first. Raises ModelFailure."""
        check = OutputCheck()
        run_in_batches(
            _estimated_tokens(texts, self._models[role].max_seq_length),
            lambda indices: self._outputs(texts, indices, role, check),
            keep,
            tokens=self._batch_tokens,
            device=self._device,
            progress=progress,
        )
        if role == "document":
            check.finish()

    def _features(self, texts: Sequence[str], indices: Indices, role: Role) -> dict[str, Any]:
        """Some of the texts as the library itself prepares them for the model, on its device."""
        model = self._models[role]
        some = [readable_part(texts[index], model.max_seq_length) for index in indices.tolist()]
        features = model.preprocess(some, prompt=self._prompts[role] or None, task=role)
        return {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in features.items()
        }


def _estimated_tokens(texts: Sequence[str], most: int | None) -> NDArray[np.int64]:
    """About how many tokens of each text are read, special ones among them, for batches of texts of like length."""
    most = most or USUAL_LENGTH
    sizes = (len(text[: 8 * most].encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 2 for text in texts)
    return np.fromiter((min(size, most) for size in sizes), np.int64, len(texts))
