"""Vectors of today's families equal those of bare transformers: as a model card's snippet makes them, in one batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation.neural import created, rebuilt
from tests.evaluation.tiny_families import byte_tokenizer, save_encoder

INSTRUCTION = "Instruct: Given a question, retrieve passages that answer it\nQuery: "
#: An empty text, short ones, one in another script, one of over 600 tokens.
TEXTS = ["", "a", "heart disease and blood pressure", "зимний вечер", "stock market price fell " * 30]


@dataclass(frozen=True)
class Family:
    """A row of the table: how a model is saved. `mutants` are rows that must have other vectors."""

    model_type: str
    pooling: str = "mean"
    side: str = "right"
    behind: tuple[str, ...] = ("Normalize",)
    begin: bool = False
    end: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.model_type, self.pooling, self.side, *self.behind, *self.more])

    @property
    def mutants(self) -> list[Family]:
        """Another pooling; the last column of texts padded on the right; causal attention for a model without."""
        found = [replace(self, pooling="mean" if self.pooling != "mean" else "cls")]
        if self.pooling == "lasttoken":
            found.append(replace(self, pooling="last column", side="right"))
        if self.more:
            found.append(replace(self, more={name: not value for name, value in self.more.items()}))
        return found


QUICK = [
    Family("qwen3", "lasttoken", "left"),
    Family("gemma3_text", behind=("Dense", "Dense"), begin=True, more={"use_bidirectional_attention": True}),
    Family("roberta", "cls", behind=("Dense", "LayerNorm"), begin=True),  # ANCE
]  # fmt: skip
WIDE = [
    *(Family(name, pooling, side) for name in ("qwen2", "qwen3", "mistral", "llama", "gemma3_text", "phi3", "lfm2")
      for pooling in ("lasttoken", "mean") for side in ("left", "right")),
    *(Family(name, "lasttoken", "left", end=False) for name in ("qwen2", "llama", "lfm2")),
    Family("qwen2", "mean", "left", more={"is_causal": False}),
    Family("qwen3", "mean", "left", more={"is_causal": False}),
    Family("llama", "mean", more={"is_causal": False}),
    Family("mistral", "mean", more={"is_causal": False}),
    *(Family(name, pooling, begin=True) for pooling in ("mean", "cls")
      for name in ("deberta-v2", "nomic_bert", "gte", "eurobert", "jina_embeddings_v3", "longformer", "modernbert",
                   "xlm-roberta")),
    Family("bart"), Family("umt5"), Family("t5"),
]  # fmt: skip


@lru_cache(maxsize=2)
def plain_model(folder: Path, model_type: str, more: tuple[tuple[str, Any], ...]) -> Any:
    """A model as its card loads it."""
    import transformers

    name = {"t5": "T5EncoderModel", "umt5": "UMT5EncoderModel"}.get(model_type, "AutoModel")
    return getattr(transformers, name).from_pretrained(folder, **dict(more)).eval()


def plain_vectors(folder: Path, family: Family, texts: list[str]) -> NDArray[np.float32]:
    """Encode as model cards show: tokenizer, AutoModel, pooling, and further modules, with all texts in one batch."""
    import torch
    import transformers
    from safetensors.torch import load_file

    words = transformers.AutoTokenizer.from_pretrained(folder, padding_side=family.side)
    model = plain_model(folder, family.model_type, tuple(family.more.items()))
    batch = words(texts, padding=True, return_tensors="pt")
    mask = batch["attention_mask"]
    with torch.inference_mode():
        states = model(input_ids=batch["input_ids"], attention_mask=mask).last_hidden_state
        rows = torch.arange(len(texts))
        if family.pooling == "mean":
            vectors = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1e-9)
        elif family.pooling == "cls":
            vectors = states[:, 0]
        elif family.side == "left" or family.pooling == "last column":
            vectors = states[:, -1]
        else:
            vectors = states[rows, mask.sum(1) - 1]
        for number, module in enumerate(family.behind, 2):
            file = folder / f"{number}_{module}" / "model.safetensors"
            weights = load_file(file) if file.exists() else {}
            if module == "Dense":
                vectors = vectors @ weights["linear.weight"].T
            elif module == "LayerNorm":
                shape = vectors.shape[1:]
                norm = (weights["norm.weight"], weights["norm.bias"])
                vectors = torch.nn.functional.layer_norm(vectors, shape, *norm)
            else:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
    found: NDArray[np.float32] = vectors.numpy()
    return found


@pytest.mark.parametrize("family", [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in WIDE)], ids=str)
def test_vectors_are_those_of_bare_transformers(family: Family, tmp_path: Path) -> None:
    def make(folder: Path) -> Path:
        words = byte_tokenizer(family.side, family.begin, family.end)
        return save_encoder(folder, family.model_type, family.pooling, words, family.behind, **family.more)

    checkpoint = rebuilt(tmp_path, make, CheckpointKind.SENTENCE_ENCODER)
    published = tmp_path / "raw"
    assert check_checkpoint(checkpoint).valid
    engine = created("dense", checkpoint, similarity="dot", batch_tokens=100_000)
    texts = TEXTS
    if not (family.begin or family.end):  # the library has no answer for a text without any token
        engine._queries.encode([*TEXTS, ""], "", np.zeros((len(TEXTS) + 1, engine._queries.dimension), np.float32))
        texts = TEXTS[1:]
    found = np.zeros((len(texts), engine._queries.dimension), np.float32)
    engine._queries.encode(texts, INSTRUCTION, found)
    prompted = [INSTRUCTION + text for text in texts]
    expected = plain_vectors(published, family, prompted)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    for mutant in family.mutants:
        assert np.abs(found - plain_vectors(published, mutant, prompted)).max() > 1e-3
    engine._queries.encode(texts, "", found)
    plain = plain_vectors(published, family, texts)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-5 * np.abs(plain).max())
    assert np.abs(plain - expected).max() > 1e-3  # the prompt counts
