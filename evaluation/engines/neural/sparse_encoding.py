"""Texts to sparse vectors over a vocabulary, through sentence-transformers' SparseEncoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.util import select_max_active_dims

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import AUTO, Progress, Resources, ignore
from evaluation.engines.index.weighted_index import SparseRows
from evaluation.engines.neural.batching import CPU_TOKENS, CUDA_TOKENS, Indices, OutputCheck, input_keys
from evaluation.engines.neural.encoding import PROBE
from evaluation.engines.neural.heads import load_sparse_models
from evaluation.engines.neural.loading import Role, longest_text
from evaluation.engines.neural.sides import SidedEncoder

#: What a language model may hold at once of a value for each term at each token.
_CPU_BYTES, _CUDA_BYTES = 2**30, 2**33
#: Terms of a document if neither the submission nor the checkpoint limits them.
_USUAL_TERMS = 2000
#: Terms and weights of one text.
_Row = tuple[NDArray[np.int32], NDArray[np.float32]]


class SparseTextEncoder(SidedEncoder[torch.Tensor]):
    """A learned sparse model: SPLADE, SPARTA-like, or with a table of weights instead of a model for queries."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        super().__init__(load_sparse_models(resources), parameters, resources.device)
        for model in set(self._models.values()):
            own = model.max_seq_length
            model.max_seq_length = longest_text(model, own, parameters["maximum_length"])
        self._most_terms = parameters["most_terms"]
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
        self._batch_tokens = self._batch_tokens or self._tokens_at_once()

    def encode(self, texts: Sequence[str], role: Role, progress: Progress = ignore) -> SparseRows:
        """Return one row for each text, of its `most_terms` greatest weights. Raises ModelFailure."""
        found: dict[int, _Row] = {}

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            matrix = batch.cpu().float().numpy()
            for index, row in zip(indices.tolist(), matrix, strict=True):
                terms = np.flatnonzero(row).astype(np.int32)
                found[index] = terms, row[terms]

        self._run(texts, role, keep, progress)
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
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # no words, and no special tokens beside them
            return torch.zeros(len(indices), self.dimension)
        keys = input_keys(features)
        model = self._models[role]
        own = {"max_active_dims": model.max_active_dims} if model.max_active_dims else {}
        outputs: torch.Tensor = model(features, task=role, **own)["sentence_embedding"].float()
        most = model.max_active_dims
        if role == "document":
            most = (most or _USUAL_TERMS) if self._most_terms == AUTO else self._most_terms
        if most:
            outputs = select_max_active_dims(outputs, most)
        if self.similarity == "cosine":
            outputs = torch.nn.functional.normalize(outputs, dim=1)
        if check is not None:
            check.see(keys, outputs)
        return outputs
