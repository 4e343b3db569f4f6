"""Encoding of texts as vectors with the models of a rebuilt checkpoint."""

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

#: Tokens per batch for static embeddings. Their lookups do not benefit from small batches.
_STATIC_TOKENS = 524_288

#: Texts that every usable model distinguishes, regardless of its language.
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
_MIN_PROBES = 8


class Encoder:
    """One encoder of a checkpoint. Raises ModelFailure if it cannot be loaded or does not distinguish texts.

    Args:
        folder: Folder of the model.
        device: Device of torch.
        parameters: Parameters of the dense engine.
        unit_length: Whether to normalize vectors.
    """

    def __init__(self, folder: Path, device: str, parameters: Mapping[str, Any], unit_length: bool) -> None:
        self._device, self._parameters, self._unit_length = device, parameters, unit_length
        self._model: SentenceTransformer = loading.load_encoder(SentenceTransformer, folder, device)
        loading.use_dtype(self._model, parameters["compute_dtype"], device)
        first_module = self._model[0]
        self._static = first_module if isinstance(first_module, StaticEmbedding) else None
        self.maximum_length = self._set_maximum_length()
        self.pooling = self._choose_pooling()
        if parameters["truncate_dimension"] != AUTO:
            self._model.truncate_dim = parameters["truncate_dimension"] or None
        self.dimension: int = self._model.get_embedding_dimension() or 0
        self._probe()

    def encode(self, texts: Sequence[str], prompt: str, output: Floats, progress: Progress = ignore) -> None:
        """Write the vector of each text, preceded by the prompt, to the rows of `output` (texts × dimension)."""
        tokens = self._tokenise([prompt + text for text in texts])
        prompt_length = self._prompt_length(prompt)

        def run(indices: Indices) -> torch.Tensor:
            vectors = self._model(self._features(tokens, indices, prompt_length))["sentence_embedding"]
            vectors = vectors.float()[:, : self.dimension]
            return torch.nn.functional.normalize(vectors, dim=1) if self._unit_length else vectors

        def keep(indices: Indices, vectors: torch.Tensor) -> None:
            output[indices] = vectors.cpu().numpy()
            if not np.isfinite(output[indices]).all():
                raise ModelFailure("not_finite_output", "the model returned a vector with infinite or undefined values")

        batch_tokens = self._parameters["batch_tokens"] or (_STATIC_TOKENS if self._static is not None else 0)
        loading.run_in_batches(tokens.lengths, run, keep, tokens=batch_tokens, device=self._device, progress=progress)

    def _tokenise(self, texts: list[str]) -> Tokenised:
        if self._static is None:
            return loading.tokenise(self._model.tokenizer, texts, self.maximum_length)
        return loading.tokenise_plainly(self._static.tokenizer, texts, self.maximum_length)

    def _features(self, tokens: Tokenised, indices: Indices, prompt_length: int) -> dict[str, Any]:
        """Return the model's inputs for the texts with the given indices, on its device.

        Static embeddings read concatenated token ids and their offsets, and other models padded token ids.
        """
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
        """Return the number of prompt tokens for poolings that exclude the prompt, otherwise 0."""
        if not prompt or self._static is not None:
            return 0
        return int(self._model.preprocess([""], prompt=prompt).get("prompt_length", 0))

    def _set_maximum_length(self) -> int | None:
        """Set the maximum number of tokens per text and return it; None if static embeddings have no limit."""
        requested_length = self._parameters["maximum_length"]
        if self._static is not None:
            return requested_length or None
        length = loading.resolve_maximum_length(self._model, self._model.max_seq_length, requested_length)
        self._model.max_seq_length = length
        return length

    def _choose_pooling(self) -> str:
        """Apply the requested pooling and return the pooling's name, "" if it is unknown.

        Raises ModelFailure if the model has no pooling to configure.
        """
        requested_pooling = self._parameters["pooling"]
        pooling = next((module for module in self._model if isinstance(module, Pooling)), None)
        if pooling is None:
            if requested_pooling != AUTO:
                raise ModelFailure("invalid_parameter", "the model has no configurable pooling; set pooling to auto")
            return "mean" if self._static is not None else ""
        if requested_pooling != AUTO:
            pooling.pooling_mode = requested_pooling
            pooling.pooling_output_dimension = pooling.embedding_dimension
        return pooling.pooling_mode if isinstance(pooling.pooling_mode, str) else "+".join(pooling.pooling_mode)

    def _probe(self) -> None:
        """Raise ModelFailure if the model returns the same vector for different texts."""
        tokens = self._tokenise(list(PROBE))
        distinct_texts = loading.index_distinct(tokens, len(PROBE))
        vectors = np.zeros((len(distinct_texts), self.dimension), np.float32)
        self.encode([PROBE[index] for index in distinct_texts], "", vectors)
        spread = float(np.ptp(vectors, axis=0).max(initial=0.0))
        if len(distinct_texts) >= _MIN_PROBES and spread <= 1e-6 * float(np.abs(vectors).max(initial=0.0)):
            raise ModelFailure(
                "constant_output", f"the model returns the same vector for {len(distinct_texts)} different texts"
            )
