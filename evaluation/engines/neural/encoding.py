"""Texts to vectors, with the encoders of a rebuilt checkpoint."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

from evaluation.core.problems import ModelFailure
from evaluation.engines.base import AUTO, Floats, Progress, ignore
from evaluation.engines.neural import loading
from evaluation.engines.neural.loading import Indices, Tokenised

#: A lookup in a table gains nothing from small batches.
_STATIC_TOKENS = 524_288

#: Texts that no usable model takes for the same, whatever its language.
PROBE = (
    "",
    "a",
    "the heart",
    "blood pressure in 12 patients",
    "What is the speed of sound, and who measured it first?",
    "Berlin, Paris und Rom liegen in Europa.",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
    "search engines rank documents by how well they answer a query",
    "зимний вечер",
    "检索系统",
)
_LEAST_PROBES = 8


class Encoder:
    """One encoder of a checkpoint, loaded. Raises ModelFailure where it cannot be, or makes nothing of texts.

    `parameters` are those of the dense engine; `unit_length` asks for vectors of length one.
    """

    def __init__(self, folder: Path, device: str, parameters: Mapping[str, Any], unit_length: bool) -> None:
        self._device, self._parameters, self._unit_length = device, parameters, unit_length
        self._model: SentenceTransformer = loading.load_encoder(SentenceTransformer, folder, device)
        loading.use_dtype(self._model, parameters["compute_dtype"], device)
        first = self._model[0]
        self._static = first if isinstance(first, StaticEmbedding) else None
        self.maximum_length = self._maximum_length()
        self.pooling = self._choose_pooling()
        if parameters["truncate_dimension"] != AUTO:
            self._model.truncate_dim = parameters["truncate_dimension"] or None
        self.dimension: int = self._model.get_embedding_dimension() or 0
        self._probe()

    def encode(self, texts: Sequence[str], prompt: str, into: Floats, progress: Progress = ignore) -> None:
        """Write the vector of each text, with the prompt before it, to its row of `into` (texts × dimension)."""
        tokens = self._tokenise([prompt + text for text in texts])
        prompt_length = self._prompt_length(prompt)

        def run(indices: Indices) -> torch.Tensor:
            vectors = self._model(self._features(tokens, indices, prompt_length))["sentence_embedding"]
            vectors = vectors.float()[:, : self.dimension]
            return torch.nn.functional.normalize(vectors, dim=1) if self._unit_length else vectors

        def keep(indices: Indices, vectors: torch.Tensor) -> None:
            into[indices] = vectors.cpu().numpy()
            if not np.isfinite(into[indices]).all():
                raise ModelFailure("not_finite_output", "a vector that the model made is not finite")

        at_once = self._parameters["batch_tokens"] or (_STATIC_TOKENS if self._static is not None else 0)
        loading.run_in_batches(
            tokens.lengths, run, keep, tokens=at_once, device=self._device, progress=progress
        )

    def _tokenise(self, texts: list[str]) -> Tokenised:
        if self._static is None:
            return loading.tokenise(self._model.tokenizer, texts, self.maximum_length)
        return loading.tokenise_plainly(self._static.tokenizer, texts, self.maximum_length)

    def _features(self, tokens: Tokenised, indices: Indices, prompt_length: int) -> dict[str, Any]:
        if self._static is None:
            features: dict[str, Any] = tokens.padded(indices, self._device)
            if prompt_length:
                features["prompt_length"] = prompt_length
            return features
        lengths = tokens.lengths[indices]
        ids = np.concatenate([np.zeros(0, np.int32), *(tokens[i] for i in indices)]).astype(np.int64)
        return {
            "input_ids": torch.from_numpy(ids).to(self._device),
            "offsets": torch.from_numpy(np.cumsum(lengths) - lengths).to(self._device),
        }

    def _prompt_length(self, prompt: str) -> int:
        """Tokens of the prompt, for poolings that leave it out."""
        if not prompt or self._static is not None:
            return 0
        return int(self._model.preprocess([""], prompt=prompt).get("prompt_length", 0))

    def _maximum_length(self) -> int | None:
        """Tokens that are read of a text; None where the model sets no limit (static embeddings)."""
        asked = self._parameters["maximum_length"]
        if self._static is not None:
            return asked or None
        longest = loading.longest_text(self._model, self._model.max_seq_length, asked)
        self._model.max_seq_length = longest
        return longest

    def _choose_pooling(self) -> str:
        """Set the pooling that is asked for; return what it is in words."""
        asked = self._parameters["pooling"]
        pooling = next((module for module in self._model if isinstance(module, Pooling)), None)
        if pooling is None:
            if asked != AUTO:
                raise ModelFailure(
                    "invalid_parameter", "the model has no pooling that could be changed; leave it at auto"
                )
            return "mean" if self._static is not None else ""
        if asked != AUTO:
            pooling.pooling_mode = asked
            pooling.pooling_output_dimension = pooling.embedding_dimension
        return (
            pooling.pooling_mode if isinstance(pooling.pooling_mode, str) else "+".join(pooling.pooling_mode)
        )

    def _probe(self) -> None:
        """Raise ModelFailure where the model gives different texts the same vector, or none."""
        tokens = self._tokenise(list(PROBE))
        chosen = loading.index_distinct(tokens, len(PROBE))
        vectors = np.zeros((len(chosen), self.dimension), np.float32)
        self.encode([PROBE[index] for index in chosen], "", vectors)
        spread = float(np.ptp(vectors, axis=0).max(initial=0.0))
        if len(chosen) >= _LEAST_PROBES and spread <= 1e-6 * float(np.abs(vectors).max(initial=0.0)):
            raise ModelFailure(
                "constant_output", f"the model gives the same vector for {len(chosen)} different texts"
            )
