"""DeepCT's model: a weight for each word piece, and from those a weight for each word of a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import Progress, ignore
from evaluation.engines.index.word_pieces import grouped
from evaluation.engines.neural.batching import (
    MOST_CHARACTERS,
    Indices,
    OutputCheck,
    Tokenised,
    input_keys,
    run_in_batches,
)
from evaluation.engines.neural.loading import load_transformer, maximum_length, model_failures, use_dtype


class TermWeigher:
    """A token classifier with one label, loaded. Raises ModelFailure where it cannot be, or has more labels."""

    def __init__(self, part: Path, device: str, dtype: str, longest: int) -> None:
        self._device = device
        self._model, self._tokenizer = load_transformer(
            part, transformers.AutoModelForTokenClassification, device
        )
        use_dtype(self._model, dtype, device)
        labels = self._model.config.num_labels
        if labels != 1:
            raise ModelFailure(
                "not_loadable", f"the model gives {labels} values for a token, and not one weight"
            )
        self.maximum_length = maximum_length(self._model, self._tokenizer, longest)
        self._check = OutputCheck()

    def weigh(self, texts: Sequence[str], progress: Progress = ignore) -> list[dict[str, float]]:
        """For each text the weight of each of its words (in lower case), as far as the model reads.

        A word has the weight of its first piece, and where it stands several times the greatest of its weights: as in
        DeepCT's own code. Raises ModelFailure.
        """
        found: list[dict[str, float]] = []
        for some in grouped([text[:MOST_CHARACTERS] for text in texts], str):
            found += self._weigh(some)
            progress(len(found) / len(texts))
        self._check.finish()
        return found

    def _weigh(self, texts: list[str]) -> list[dict[str, float]]:
        with model_failures():
            encoded = self._tokenizer(
                texts,
                truncation=True,
                max_length=self.maximum_length,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
        tokens = Tokenised.of(encoded["input_ids"], self._tokenizer.pad_token_id or 0)
        words: dict[int, dict[str, float]] = {}

        def run(indices: Indices) -> torch.Tensor:
            features = tokens.padded(indices, self._device)
            weights: torch.Tensor = self._model(**features).logits[:, :, 0].float()
            mask = features["attention_mask"]
            weights = weights * mask
            self._check.see(input_keys(features), weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True))
            return weights.cpu()

        def keep(indices: Indices, weights: torch.Tensor) -> None:
            for index, row in zip(indices.tolist(), weights.numpy(), strict=True):
                words[index] = _word_weights(texts[index], encoded, index, row)

        run_in_batches(tokens.lengths, run, keep, device=self._device)
        return [words[index] for index in range(len(texts))]


def _word_weights(text: str, encoded: Any, index: int, weights: NDArray[np.float32]) -> dict[str, float]:
    """The weights of the words of one text, from those of its pieces."""
    spans: dict[int, list[int]] = {}  # by number of the word: its first piece, where it starts, where it ends
    for piece, (word, (start, end)) in enumerate(
        zip(encoded.word_ids(index), encoded["offset_mapping"][index], strict=True)
    ):
        if word is not None:
            spans.setdefault(word, [piece, start, end])[2] = end
    found: dict[str, float] = {}
    for piece, start, end in spans.values():
        name = text[start:end].strip().lower()
        found[name] = max(float(weights[piece]), found.get(name, -np.inf))
    return found
