"""Late interaction: as sentence-transformers saves it, as PyLate did, and as ColBERT's authors do."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import Any

from evaluation.checkpoints import modules as m
from evaluation.checkpoints import weights
from evaluation.checkpoints.chains import Chain
from evaluation.checkpoints.configuration import ACTIVATIONS
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.limits import MOST_POSITIONS
from evaluation.checkpoints.modules import Module
from evaluation.checkpoints.plan import ModelPart, Plan
from evaluation.checkpoints.settings import NAME as SETTINGS
from evaluation.checkpoints.settings import EncoderDefaults
from evaluation.checkpoints.transformer import read_transformer
from evaluation.checkpoints.values import TRUTH, read_values, text, whole

#: Settings of ColBERT's own code; JSON, despite the name.
STANFORD = "artifact.metadata"
_PROJECTION = ("linear.weight", "linear.bias")


def late_interaction_plan(chain: Chain, settings: EncoderDefaults) -> Plan:
    """Late interaction, as sentence-transformers saves it, or as PyLate did where the mask is not a module.

    A projection that does not say what it takes is of tokens; the library reads it so in these models alone.
    """
    modules = tuple(_token_level(module) for module in chain.modules)
    model_type = "MultiVectorEncoder" if m.MASK in chain.roles else "ColBERT"
    if model_type == "ColBERT":
        modules = tuple(module for module in modules if module.role != m.NORMALIZE)
    part = Chain(modules, chain.transformer).part()
    part |= ModelPart({SETTINGS: settings.written(model_type, **settings.late)})
    length = settings.late.get("document_length")
    if chain.transformer is not None:
        length = chain.transformer.settings.get("document_length", length)
    maximum = chain.maximum_length if length is None else length
    return Plan(
        CheckpointKind.MULTI_VECTOR, {"model": part}, chain.model_type, chain.dimension, maximum,
        prompts=settings.prompts,
    )  # fmt: skip


def _token_level(module: Module) -> Module:
    if module.role not in (m.DENSE, m.NORMALIZE):
        return module
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    json = {**module.part.json, m.CONFIG: {**module.part.json[m.CONFIG], **names}}
    return replace(module, part=ModelPart(json, module.part.weights))


def stanford_plan(source: ModelFiles, findings: Findings) -> Plan | None:
    """ColBERT as its authors save it: the projection among the encoder's weights, settings in artifact.metadata."""
    late = _stanford_settings(source, findings)
    model = read_transformer(source, "base", findings, beside=_PROJECTION)
    tensors = weights.read_weights(source, Findings())
    if model is None or tensors is None:
        return None
    taken = {name: tensors[name] for name in _PROJECTION if name in tensors}
    shape = taken["linear.weight"].shape if "linear.weight" in taken else ()
    if len(shape) != 2 or (model.hidden and shape[1] != model.hidden):
        what = f"there is no linear.weight with {model.hidden} columns"
        findings.refuse("missing_projection", source.shown(weights.NAME), what)
        return None
    values = {"in_features": shape[1], "out_features": shape[0]}
    dense = m.dense(values, ACTIVATIONS[0], taken)
    chain = Chain((Module(m.TRANSFORMER, model.module(), gives=shape[1]), dense), model)
    return late_interaction_plan(chain, EncoderDefaults("ColBERT", late=late))


def _stanford_settings(source: ModelFiles, findings: Findings) -> dict[str, Any]:
    found = read_object(source, STANFORD, findings) if source.has(STANFORD) else {}
    shown = source.shown(STANFORD)
    values = read_values(found or {}, _STANFORD_RULES, findings, shown)
    length = values.get("query_maxlen", 32)
    return {
        "query_prefix": values.get("query_token_id", "[unused0]") + " ",
        "document_prefix": values.get("doc_token_id", "[unused1]") + " ",
        "query_expansion": {
            "strategy": "fixed",
            "attend": values.get("attend_to_mask_tokens", False),
            "length": length,
        },
        "skiplist_words": list(string.punctuation) if values.get("mask_punctuation", True) else [],
        **({"document_length": values["doc_maxlen"]} if "doc_maxlen" in values else {}),
    }


_STANFORD_RULES = {
    "query_token_id": text(32), "doc_token_id": text(32), "query_maxlen": whole(1, 512),
    "doc_maxlen": whole(1, MOST_POSITIONS),
    "mask_punctuation": TRUTH, "attend_to_mask_tokens": TRUTH,
}  # fmt: skip
