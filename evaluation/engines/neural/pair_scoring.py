"""Scores of queries and documents read together, through sentence-transformers' CrossEncoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.engines.base import Resources
from evaluation.engines.neural.batching import Indices, OutputCheck, input_keys, run_in_batches
from evaluation.engines.neural.loading import (
    estimated_tokens,
    load_cross_encoder,
    longest_text,
    part_folder,
    prepare,
    readable_part,
    use_dtype,
)


class PairScorer:
    """A cross-encoder with one label, its scores as the model gives them (logits)."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        prepare(resources.threads)
        self._device, self._batch_tokens = resources.device, parameters["batch_tokens"]
        self._model = load_cross_encoder(part_folder(resources.model, "query"), self._device).eval()
        use_dtype(self._model, parameters["compute_dtype"], self._device)
        own = self._model.max_seq_length
        self.maximum_length = longest_text(self._model, own, parameters["maximum_length"])
        self._model.max_seq_length = self.maximum_length
        self._check = OutputCheck()

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float32]:
        """The score of each pair of queries[i] and documents[i]. Raises ModelFailure."""
        scores = np.empty(len(queries), np.float32)

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            scores[indices] = batch.float().cpu().numpy()

        longest = self.maximum_length
        both = estimated_tokens(queries, longest) + estimated_tokens(documents, longest)
        run_in_batches(
            np.minimum(both, longest),
            lambda indices: self._outputs(queries, documents, indices),
            keep,
            tokens=self._batch_tokens,
            device=self._device,
        )
        self._check.finish()
        return scores

    def _outputs(self, queries: Sequence[str], documents: Sequence[str], indices: Indices) -> torch.Tensor:
        """Scores of some of the pairs."""
        pairs = [
            tuple(readable_part(texts[index], self.maximum_length) for texts in (queries, documents))
            for index in indices.tolist()
        ]
        prompt = self._model.prompts.get(self._model.default_prompt_name or "")
        features = self._model.preprocess(pairs, prompt=prompt)
        tensors = {name: value.to(self._device) for name, value in features.items() if torch.is_tensor(value)}
        keys = input_keys(tensors)
        outputs: torch.Tensor = self._model({**features, **tensors})["scores"]
        outputs = outputs.reshape(len(pairs), -1)[:, 0]
        self._check.see(keys, outputs)
        return outputs
