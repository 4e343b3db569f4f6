"""The model of learned query augmentation: an encoder, W (vocabulary × dimension) and u (dimension)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers

from evaluation.core.problems import ModelFailure
from evaluation.engines.base import Floats, Numbers, Resources
from evaluation.engines.neural.batching import Indices, OutputCheck, Tokenised, collect_batches, input_keys
from evaluation.engines.neural.loading import load_transformer, maximum_length, model_failures

FILE_NAME = "augmentation.safetensors"


@dataclass(frozen=True, slots=True)
class QueryWeights:
    """What the model says of a query: a(q) where it is above 0 (pieces' numbers and values), and w(q) by token."""

    added: Numbers
    values: Floats
    token_weights: Floats


class _Encoder:
    """transformers.AutoModel, for checkpoints with or without a pooler, which is not used here."""

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
        model, found = transformers.AutoModel.from_pretrained(folder, **options)
        missing = {name for name in found["missing_keys"] if not name.startswith("pooler.")}
        return model, {**found, "missing_keys": missing}


class AugmentationModel:
    """a(q) = ReLU(W · enc(q)[CLS]) and w(q)_i = ReLU(uᵀ enc(q)_i). Raises ModelFailure where it cannot be loaded.

    `projection` is W, with a row for each piece, and `weighting` is u.
    """

    def __init__(self, parameters: Mapping[str, Any], resources: Resources, pieces: int) -> None:
        part, self._device = resources.first_part, resources.device
        self.encoder, tokenizer = load_transformer(resources, _Encoder, parameters["compute_dtype"])
        self.maximum_length = maximum_length(self.encoder, tokenizer, parameters["maximum_length"])
        self.padding_id = tokenizer.pad_token_id or 0
        self._check = OutputCheck()
        dimension = self.encoder.config.hidden_size
        with model_failures():
            tensors = safetensors.torch.load_file(part / FILE_NAME, self._device)
        missing = {"W", "u"} - set(tensors)
        if missing:
            raise ModelFailure("missing_weights", f"{FILE_NAME} lacks {' and '.join(sorted(missing))}")
        self.projection, self.weighting = tensors["W"].float(), tensors["u"].float().reshape(-1)
        rows, columns = self.projection.shape if self.projection.ndim == 2 else (0, 0)
        if rows < pieces or columns != dimension or len(self.weighting) != dimension:
            raise ModelFailure(
                "not_loadable",
                f"W is {'×'.join(map(str, self.projection.shape))} and u has {len(self.weighting)} values, "
                f"for {pieces} word pieces and vectors of {dimension}",
            )
        self.projection = self.projection[:pieces]  # rows behind the last piece only fill up a matrix

    def encode(self, inputs: Sequence[Sequence[int]]) -> list[QueryWeights]:
        """Return what the model says of queries given as token numbers, special ones included. Raises ModelFailure."""
        tokens = Tokenised.of(inputs, self.padding_id)
        lengths = tokens.lengths

        def run(indices: Indices) -> Iterator[QueryWeights]:
            features = tokens.padded(indices, self._device)
            vectors = self.encoder(**features).last_hidden_state.float()
            self._check.see(input_keys(features), vectors[:, 0])
            added = torch.relu(vectors[:, 0] @ self.projection.T).cpu().numpy()
            weights = torch.relu(vectors @ self.weighting).cpu().numpy()
            return map(_query_weights, added, weights, lengths[indices])

        found = collect_batches(lengths, run, device=self._device)
        self._check.finish()
        return found


def _query_weights(added: Floats, weights: Floats, length: int) -> QueryWeights:
    if not (np.isfinite(added).all() and np.isfinite(weights).all()):
        raise ModelFailure("not_finite_output", "the model gives weights that are no finite numbers")
    terms = np.flatnonzero(added)
    return QueryWeights(terms, added[terms], weights[:length].copy())
