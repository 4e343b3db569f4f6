"""Texts to one vector a token, through sentence-transformers' MultiVectorEncoder, and MaxSim over such vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from sentence_transformers import MultiVectorEncoder

from evaluation.checkpoints.description import HEADS, CheckpointKind
from evaluation.core.errors import ModelFailure
from evaluation.engines.base import Progress, Resources, ignore
from evaluation.engines.index.token_store import Block
from evaluation.engines.neural.batching import Indices, OutputCheck, input_keys
from evaluation.engines.neural.encoding import PROBE
from evaluation.engines.neural.heads import load_token_model
from evaluation.engines.neural.loading import Role, load_roles, longest_text
from evaluation.engines.neural.sides import SidedEncoder

#: Takes some texts' indices, how many vectors each has, and these vectors, one text's behind the other's.
Keep = Callable[[NDArray[np.intp], NDArray[np.int64], NDArray[np.float32]], None]
_Batch = tuple[torch.Tensor, torch.Tensor]


class TokenEncoder(SidedEncoder[_Batch]):
    """A late-interaction model of sentence-transformers, PyLate or the Stanford code."""

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        models = load_roles(resources, lambda folder: _load(folder, resources.device))
        super().__init__(models, parameters, resources.device)
        self.maximum_length = _limit_lengths(self._models, parameters["maximum_length"])
        self.mean = self._models["query"].similarity_fn_name == "meanmaxsim"
        self.dimension = 0
        text = " ".join(PROBE)
        self.dimension = int(self._outputs([text], np.zeros(1, np.intp), "document", None)[0].shape[1])

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        keep: Keep,
        progress: Progress = ignore,
    ) -> None:
        """Give `keep` the vectors of all texts, batch by batch, the longest texts first. Raises ModelFailure."""

        def keep_batch(indices: Indices, batch: _Batch) -> None:
            keep(indices, batch[1].cpu().numpy(), batch[0].cpu().float().numpy())

        self._run(texts, role, keep_batch, progress)

    def encode_queries(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """The vectors of each query (tokens × dimension, float32), on the device."""
        found: dict[int, torch.Tensor] = {}

        def keep(indices: NDArray[np.intp], counts: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
            parts = torch.split(torch.from_numpy(vectors).to(self._device), counts.tolist())
            found.update(zip(indices.tolist(), parts, strict=True))

        self.encode(texts, "query", keep)
        return [found[index] for index in range(len(texts))]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _outputs(
        self, texts: Sequence[str], indices: Indices, role: Role, check: OutputCheck | None
    ) -> _Batch:
        """(vectors of some of the texts, one behind the other; how many each has)."""
        features = self._features(texts, indices, role)
        if not features["input_ids"].shape[1]:  # no words, and no special tokens beside them
            return torch.zeros(0, self.dimension), torch.zeros(len(indices), dtype=torch.int64)
        keys = input_keys(features)
        features = self._models[role](features, task=role)
        vectors, mask = features["token_embeddings"].float(), features["attention_mask"].bool()
        if check is not None:
            check.see(keys, vectors.masked_fill(~mask.unsqueeze(-1), -1e9).amax(1))
        return vectors[mask], mask.sum(1)


def _load(folder: Path, device: str) -> MultiVectorEncoder:
    if not _has_projection(folder):
        raise ModelFailure(
            "missing_projection", "the checkpoint has no projection; the library would make up a random one"
        )
    return load_token_model(folder, device).eval()


def _has_projection(folder: Path) -> bool:
    """Whether the files bring what turns the encoder's states into the vectors that are compared.

    That is a Dense module with its weights, or, as the Stanford code saves it, `linear.weight` beside the encoder's, or
    bge-m3's head.
    """
    if (folder / HEADS[CheckpointKind.MULTI_VECTOR]).is_file():
        return True
    modules, weights = folder / "modules.json", folder / "model.safetensors"
    if modules.is_file():
        dense = [one["path"] for one in json.loads(modules.read_bytes()) if one["type"].endswith("Dense")]
        return any((folder / path / "model.safetensors").is_file() for path in dense)
    config = json.loads((folder / "config.json").read_bytes())
    if "HF_ColBERT" not in (config.get("architectures") or ()) or not weights.is_file():
        return False
    with safe_open(weights, "pt") as tensors:
        return "linear.weight" in tensors.keys()  # noqa: SIM118


def _limit_lengths(models: Mapping[Role, MultiVectorEncoder], wanted: int) -> int:
    """Set how many tokens of texts are read: `wanted` of documents, 0 for the checkpoint's own; return that."""
    lengths = {}
    for role, model in models.items():
        first = model[0]
        own = getattr(first, f"{role}_length", None) or model.max_seq_length
        lengths[role] = longest_text(model, own, wanted if role == "document" else 0)
        if getattr(first, "query_expansion", None) is None or role == "document":
            setattr(first, f"{role}_length", lengths[role])
    return lengths["document"]


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction(queries: Sequence[torch.Tensor], block: Block, mean: bool) -> NDArray[np.float32]:
    """MaxSim (queries × documents): the sum, over a query's vectors, of each one's greatest inner product.

    O. Khattab and M. Zaharia, "ColBERT", 2020. With `mean`, the mean in place of the sum. A document without vectors
    gets -inf.
    """
    device = queries[0].device
    vectors = torch.from_numpy(block.vectors).to(device).float()
    return _add_greatest(vectors @ torch.cat(list(queries)).T, queries, block, mean)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def late_interaction_of_each(query: torch.Tensor, block: Block, mean: bool) -> NDArray[np.float32]:
    """MaxSim of each document, multiplied alone: what else is in the block does not touch its last bits."""
    vectors = torch.from_numpy(block.vectors).to(query.device).float()
    parts = (part.clone() @ query.T for part in torch.split(vectors, block.counts.tolist()))
    products = torch.cat([query.new_empty(0, len(query)), *parts])
    similarities: NDArray[np.float32] = _add_greatest(products, [query], block, mean)[0]
    return similarities


def _add_greatest(
    products: torch.Tensor, queries: Sequence[torch.Tensor], block: Block, mean: bool
) -> NDArray[np.float32]:
    device = products.device
    counts = torch.from_numpy(block.counts).to(device)
    greatest = torch.segment_reduce(products, "max", lengths=counts, axis=0, initial=-torch.inf)
    # Some dozen float32 add up in float64 without rounding, so in any order to the same.
    parts = torch.split(greatest.double(), [len(query) for query in queries], dim=1)
    scores = [part.mean(1) if mean else part.sum(1) for part in parts]
    similarities: NDArray[np.float32] = torch.stack(scores).float().cpu().numpy()
    return similarities
