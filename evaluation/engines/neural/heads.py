"""Heads that no library saves as modules: SPARTA's, and the sparse and multi-vector ones beside bge-m3's encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

from evaluation.checkpoints.description import HEADS, SPARTA, CheckpointDescription, CheckpointKind
from evaluation.engines.base import Resources
from evaluation.engines.neural.loading import (
    Role,
    library_options,
    load_multi_vector_encoder,
    load_roles,
    load_sentence_encoder,
    load_sparse_encoder,
    model_failures,
    prepare,
)

Features = dict[str, Any]


class SpartaPooling(torch.nn.Module):  # type: ignore[misc]
    """log(1 + ReLU(max_t E · h_t)) over the input embeddings E, those of special tokens left out.

    T. Zhao and others, "SPARTA", 2021, equations 5 and 6; as beir/retrieval/models/sparta.py of
    https://github.com/beir-cellar/beir computes it for a text by itself (it lets padding take part).
    """

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        weights = (
            transformer.model.get_input_embeddings().weight[: len(transformer.tokenizer)].detach().clone()
        )
        weights[transformer.tokenizer.all_special_ids] = 0.0
        self.embeddings = torch.nn.Parameter(weights)

    def forward(self, features: Features) -> Features:
        products = features["token_embeddings"] @ self.embeddings.T
        products = products.masked_fill(features["attention_mask"][..., None] == 0, -torch.inf)
        return {**features, "sentence_embedding": products.amax(1).relu().log1p()}


class TermCounts(SparseStaticEmbedding):  # type: ignore[misc]
    """How often a text has each term, without any model: SPARTA's queries."""

    def forward(self, features: Features) -> Features:
        ids, mask = features["input_ids"], features["attention_mask"]
        counts = torch.zeros(len(ids), self.num_dimensions, device=ids.device)
        return {**features, "sentence_embedding": counts.scatter_add(1, ids, mask.float()) * self.weight}


class LexicalWeights(torch.nn.Module):  # type: ignore[misc]
    """For each term the greatest ReLU(w · h_t + b) of its tokens, without special ones.

    J. Chen and others, "BGE M3-Embedding", 2024; FlagEmbedding/inference/embedder/encoder_only/m3.py of
    https://github.com/FlagOpen/FlagEmbedding.
    """

    def __init__(self, transformer: Transformer, head: Path) -> None:
        super().__init__()
        words = transformer.tokenizer
        self.linear = _linear(head)
        self.terms: int = transformer.config.vocab_size
        unused = (words.cls_token_id, words.eos_token_id, words.pad_token_id, words.unk_token_id)
        self.unused = torch.tensor([number for number in unused if number is not None])

    def forward(self, features: Features) -> Features:
        ids = features["input_ids"]
        weights = self.linear(features["token_embeddings"])[..., 0].relu()
        weights = weights.masked_fill(torch.isin(ids, self.unused.to(ids.device)), 0.0)
        found = torch.zeros(len(ids), self.terms, dtype=weights.dtype, device=ids.device)
        return {**features, "sentence_embedding": found.scatter_reduce(1, ids, weights, "amax")}


def load_sparse_models(resources: Resources) -> dict[Role, SparseEncoder]:
    """The sparse model of each side, with the head that its checkpoint has. Raises ModelFailure."""
    if CheckpointDescription.read(resources.model).pooling == SPARTA:
        return _load_sparta(resources.first_part, resources)
    return load_roles(resources, lambda folder: _load_sparse(folder, resources.device).eval())


def load_token_model(folder: Path, device: str) -> MultiVectorEncoder:
    """A late-interaction model. Raises ModelFailure.

    bge-m3's head leaves the first token out, and the mean of MaxSim counts.
    """
    head = folder / HEADS[CheckpointKind.MULTI_VECTOR]
    if not head.is_file():
        return load_multi_vector_encoder(folder, device)
    transformer = load_sentence_encoder(folder, device)[0]
    with model_failures():
        linear = _linear(head)
        projection = Dense(
            linear.in_features,
            linear.out_features,
            activation_function=torch.nn.Identity(),
            init_weight=linear.weight,
            init_bias=linear.bias,
            module_input_name="token_embeddings",
        )
        mask = MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"])
        modules = [transformer, projection, mask, Normalize(module_input_name="token_embeddings")]
        return MultiVectorEncoder(modules=modules, device=device, similarity_fn_name="meanmaxsim")


def _load_sparse(folder: Path, device: str) -> SparseEncoder:
    head = folder / HEADS[CheckpointKind.SPARSE_ENCODER]
    if not head.is_file():
        return load_sparse_encoder(folder, device)
    transformer = load_sentence_encoder(folder, device)[0]
    with model_failures():
        return SparseEncoder(modules=[transformer, LexicalWeights(transformer, head)], device=device)


def _load_sparta(folder: Path, resources: Resources) -> dict[Role, SparseEncoder]:
    """A plain encoder for documents, and the words of queries."""
    prepare(resources.threads)
    with model_failures():
        transformer = Transformer(str(folder), **library_options(folder))
        words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        weight = torch.ones(len(words))
        weight[words.all_special_ids] = 0.0
        modules = [transformer, SpartaPooling(transformer)]
        documents = SparseEncoder(modules=modules, device=resources.device).eval()
        counts = TermCounts(tokenizer=words, weight=weight)
        return {"query": SparseEncoder(modules=[counts], device=resources.device), "document": documents}


def _linear(head: Path) -> torch.nn.Linear:
    weights = load_file(head)
    rows, columns = weights["weight"].shape
    linear = torch.nn.Linear(columns, rows)
    linear.load_state_dict(weights)
    return linear
