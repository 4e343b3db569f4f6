"""Texts to sparse vectors over a vocabulary, through sentence-transformers' SparseEncoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.util import select_max_active_dims

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import Progress, Resources, ignore
from evaluation.engines.index.weighted_index import SparseRows
from evaluation.engines.neural.batching import (
    CPU_TOKENS,
    CUDA_TOKENS,
    Indices,
    OutputCheck,
    input_keys,
    run_in_batches,
)
from evaluation.engines.neural.encoding import PROBE
from evaluation.engines.neural.heads import load_sparse_models
from evaluation.engines.neural.loading import (
    Role,
    estimated_tokens,
    features_of,
    longest_text,
    prompts_of,
    use_dtype,
)

#: What a language model may hold at once of a value for each term at each token.
_CPU_BYTES, _CUDA_BYTES = 2**30, 2**33
#: Terms and weights of one text.
_Row = tuple[NDArray[np.int32], NDArray[np.float32]]


class SparseTextEncoder:
    """A learned sparse model: SPLADE, SPARTA-like, or with a table of weights instead of a model for queries."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        device, maximum_length = resources.device, parameters["maximum_length"]
        self._models = load_sparse_models(resources)
        for model in set(self._models.values()):
            use_dtype(model, parameters["compute_dtype"], device)
            model.max_seq_length = longest_text(model, model.max_seq_length, maximum_length)
        self._prompts = prompts_of(self._models, parameters)
        self._device, self._most_terms = device, parameters["most_terms"]
        self.maximum_length: int = self._models["document"].max_seq_length
        #: "cosine" where the model asks for it: vectors of length one, whose dot product it is; else "dot".
        self.similarity = "cosine" if self._models["query"].similarity_fn_name == "cosine" else "dot"
        #: Terms of the vocabulary, which only an output shows for sure.
        self.dimension = 0
        self.dimension = int(
            self._outputs([" ".join(PROBE)], np.zeros(1, np.intp), "document", None).shape[1]
        )
        if not self.dimension:
            raise ModelFailure("does_not_run", "the model's tokenizer finds no token in any text")
        self._batch_tokens = parameters["batch_tokens"] or self._tokens_at_once()

    def encode(self, texts: Sequence[str], role: Role, progress: Progress = ignore) -> SparseRows:
        """One row for each text. Of a document only the `most_terms` greatest weights stay. Raises ModelFailure."""
        found: dict[int, _Row] = {}
        check = OutputCheck()

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            matrix = batch.cpu().float().numpy()
            for index, row in zip(indices.tolist(), matrix, strict=True):
                terms = np.flatnonzero(row).astype(np.int32)
                found[index] = terms, row[terms]

        run_in_batches(
            estimated_tokens(texts, self._models[role].max_seq_length),
            lambda indices: self._outputs(texts, indices, role, check),
            keep,
            tokens=self._batch_tokens,
            device=self._device,
            progress=progress,
        )
        if role == "document":
            check.finish()
        rows = [found[index] for index in range(len(texts))]
        return SparseRows(
            np.cumsum([0, *(len(terms) for terms, _ in rows)], dtype=np.int64),
            np.concatenate([np.empty(0, np.int32), *(terms for terms, _ in rows)]),
            np.concatenate([np.empty(0, np.float32), *(weights for _, weights in rows)]),
        )

    def _tokens_at_once(self) -> int:
        """How many tokens fit, each with a float32 and a copy of it for each term."""
        room, most = (_CPU_BYTES, CPU_TOKENS) if self._device == "cpu" else (_CUDA_BYTES, CUDA_TOKENS)
        return min(room // (8 * self.dimension), most)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _outputs(
        self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck | None
    ) -> torch.Tensor:
        """Vectors of some of the texts: texts × terms."""
        model = self._models[role]
        features: dict[str, Any] = features_of(model, texts, indices, role, self._prompts[role], self._device)
        if not features["input_ids"].shape[1]:  # no words, and no special tokens beside them
            return torch.zeros(len(indices), self.dimension)
        keys = input_keys(features)
        outputs: torch.Tensor = model(features, task=role)["sentence_embedding"].float()
        if role == "document" and self._most_terms:
            outputs = select_max_active_dims(outputs, self._most_terms)
        if self.similarity == "cosine":
            outputs = torch.nn.functional.normalize(outputs, dim=1)
        if check is not None:
            check.see(keys, outputs)
        return outputs
