"""The modules of sentence-transformers, one by one: each read into values of ours, and written from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.checkpoints import tokenizer, weights
from evaluation.checkpoints.configuration import ACTIVATIONS
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.tokenizer import read_tokenizer
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    read_values,
    refuse_forbidden_keys,
    refuse_unknown,
    subset_of,
    whole,
)

CONFIG = "config.json"
TRANSFORMER, POOLING, NORMALIZE, DENSE = "Transformer", "Pooling", "Normalize", "Dense"
STATIC, SPLADE, SPARSE_STATIC = "StaticEmbedding", "SpladePooling", "SparseStaticEmbedding"
MASK, ROUTER = "MultiVectorMask", "Router"

#: The class that each module is written as.
CLASSES = {
    TRANSFORMER: "sentence_transformers.base.modules.transformer.Transformer",
    POOLING: "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    NORMALIZE: "sentence_transformers.base.modules.normalize.Normalize",
    DENSE: "sentence_transformers.base.modules.dense.Dense",
    STATIC: "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
    SPLADE: "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    SPARSE_STATIC: "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
    MASK: "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    ROUTER: "sentence_transformers.base.modules.router.Router",
}
_PACKAGES = (
    "sentence_transformers.models", "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules", "sentence_transformers.sparse_encoder.models",
    "sentence_transformers.sparse_encoder.modules", "sentence_transformers.multi_vector_encoder.modules",
)  # fmt: skip
#: Every spelling that files have for them, and for nothing else.
TYPES: Mapping[str, str] = {
    **{f"{package}.{name}": name for package in _PACKAGES for name in CLASSES},
    **{
        f"{package}.{path.split('.')[-2]}.{name}": name
        for package in _PACKAGES
        for name, path in CLASSES.items()
    },
    "sentence_transformers.models.Asym": ROUTER,
    "sentence_transformers.sparse_encoder.models.MLMTransformer": TRANSFORMER,
    "sentence_transformers.sparse_encoder.models.MLMTransformer.MLMTransformer": TRANSFORMER,
    "pylate.models.Dense.Dense": DENSE,
}

_DENSE_ACTIVATIONS = ACTIVATIONS[:4]
_POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_POOLING = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_WIDTH = whole(1, 65_536)
_FEATURE = choice("token_embeddings", "sentence_embedding")
_WORDS = Rule(
    lambda value: (
        isinstance(value, list)
        and len(value) <= 2000
        and all(isinstance(word, str) and 0 < len(word) <= 64 for word in value)
    ),
    "a list of at most 2,000 short words",
)
_RULES: Mapping[str, dict[str, Rule]] = {
    POOLING: {
        "embedding_dimension": _WIDTH, "word_embedding_dimension": _WIDTH, "include_prompt": TRUTH,
        "pooling_mode": Rule(lambda value: _are_modes(value), "one or several of " + ", ".join(_POOLING_MODES)),
        **dict.fromkeys(_OLD_POOLING, TRUTH),
    },
    NORMALIZE: {"module_input_name": _FEATURE, "module_output_name": _FEATURE},
    DENSE: {
        "in_features": _WIDTH, "out_features": _WIDTH, "bias": TRUTH, "use_residual": TRUTH,
        "activation_function": Rule(lambda value: isinstance(value, str), "the name of an activation"),
        "module_input_name": _FEATURE, "module_output_name": _FEATURE,
    },
    SPLADE: {
        "pooling_strategy": choice("max", "sum"), "activation_function": choice("relu", "log1p_relu"),
        "word_embedding_dimension": whole(1, 512_000), "embedding_dimension": whole(1, 512_000),
    },
    SPARSE_STATIC: {"frozen": TRUTH},
    MASK: {
        "skiplist_words": _WORDS,
        "skiplist_tasks": subset_of(("query", "document"), 2),
    },
    STATIC: {},
}  # fmt: skip
WORDS_RULE = _WORDS


@dataclass(frozen=True, slots=True)
class Module:
    """A module as it was understood: its files, and how many dimensions go in and come out."""

    role: str
    part: ModelPart
    takes: int | None = None
    gives: int | None = None
    #: What a description says of it: how it pools.
    pooling: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_module(role: str, source: ModelFiles, findings: Findings) -> Module | None:
    """The module of this role in a folder, or None where it is refused. Transformer and Router have their own files."""
    found: dict[str, Any] = {}
    if source.has(CONFIG) and role != STATIC:
        found = read_object(source, CONFIG, findings) or {}
        refuse_forbidden_keys(found, findings, source.shown(CONFIG))
        refuse_unknown(found, _RULES[role], findings, source.shown(CONFIG))
    values = read_values(found, _RULES[role], findings, source.shown(CONFIG))
    return _READERS[role](values, source, findings)


def _pooling(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    modes = values.get("pooling_mode") or [name for key, name in _OLD_POOLING.items() if values.get(key)]
    modes = [modes] if isinstance(modes, str) else modes
    if not modes:
        findings.refuse(
            "value", source.shown(CONFIG), f"no way of pooling is chosen of {', '.join(_POOLING_MODES)}"
        )
        return None
    width = values.get("embedding_dimension") or values.get("word_embedding_dimension")
    written = {
        "embedding_dimension": width,
        "pooling_mode": modes[0] if len(modes) == 1 else modes,
        "include_prompt": values.get("include_prompt", True),
    }
    gives = width and width * len(modes)
    return Module(POOLING, ModelPart({CONFIG: written}), width, gives, "+".join(modes))


def pooling_by_name(mode: str, width: int) -> Module:
    """The module that pools in this way."""
    written = {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": True}
    return Module(POOLING, ModelPart({CONFIG: written}), width, width, mode)


def splade_by_name(strategy: str, activation: str = "relu") -> Module:
    """The module that pools a masked language model's outputs in this way."""
    written = {"pooling_strategy": strategy, "activation_function": activation, "embedding_dimension": None}
    return Module(SPLADE, ModelPart({CONFIG: written}), pooling=strategy)


def _splade(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    return splade_by_name(values.get("pooling_strategy", "max"), values.get("activation_function", "relu"))


def _normalize(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    return normalize(values.get("module_input_name", "sentence_embedding"))


def normalize(feature: str) -> Module:
    """The module that scales vectors of this kind to length one."""
    return Module(
        NORMALIZE, ModelPart({CONFIG: {"module_input_name": feature, "module_output_name": feature}})
    )


def _dense(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    tensors = weights.read_weights(source, findings)
    missing = [key for key in ("in_features", "out_features") if key not in values]
    if missing:
        findings.refuse("value", source.shown(CONFIG), f"there is no {listed(missing)}")
    activation = values.get("activation_function", ACTIVATIONS[1])
    if activation not in _DENSE_ACTIVATIONS:
        what = f"{quoted(activation)} is not one of {', '.join(_DENSE_ACTIVATIONS)}"
        findings.refuse("activation", source.shown(CONFIG), what, "activation_function")
    if missing or tensors is None:
        return None
    takes, gives = values["in_features"], values["out_features"]
    wanted = {
        "linear.weight": (gives, takes),
        **({"linear.bias": (gives,)} if values.get("bias", True) else {}),
    }
    if values.get("use_residual") and takes != gives:
        wanted["residual.weight"] = (gives, takes)
    if not weights.check_weights(wanted, tensors, weights.NAME, source, findings):
        return None
    return dense(values, activation, {name: tensors[name] for name in wanted}, source, findings)


def dense(
    values: Mapping[str, Any],
    activation: str,
    tensors: weights.Tensors,
    source: ModelFiles,
    findings: Findings,
) -> Module:
    """A projection with these weights."""
    weights.refuse_not_finite(tensors, source, findings)
    feature = values.get("module_input_name", "sentence_embedding")
    written = {
        "in_features": values["in_features"],
        "out_features": values["out_features"],
        "bias": "linear.bias" in tensors,
        "activation_function": activation,
        "module_input_name": feature,
        "module_output_name": feature,
        **({"use_residual": True} if values.get("use_residual") else {}),
    }
    part = ModelPart({CONFIG: written}, {weights.NAME: tensors})
    return Module(DENSE, part, values["in_features"], values["out_features"], facts=values)


def _static(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    tensors = weights.read_weights(source, findings)
    if tensors is None:
        return None
    embedding = tensors.get("embedding.weight") or tensors.get("embeddings")
    left = sorted(tensors.keys() - {"embedding.weight", "embeddings"})
    if embedding is None or left:
        what = f"it holds {listed(sorted(tensors))}, where embedding.weight alone would do"
        findings.refuse(
            "missing_weights" if embedding is None else "weights_shape", source.shown(weights.NAME), what
        )
        return None
    rows, width = embedding.shape if len(embedding.shape) == 2 else (0, 0)
    if not 0 < rows <= 2_000_000 or not 0 < width <= 65_536:
        what = "embedding.weight is no table of at most 2,000,000 × 65,536"
        findings.refuse("weights_shape", source.shown(weights.NAME), what)
        return None
    taken = {"embedding.weight": embedding}
    if not embedding.usable:
        findings.refuse(
            "weights_type", source.shown(weights.NAME), f"its type is {embedding.dtype}", "embedding.weight"
        )
    weights.refuse_not_finite(taken, source, findings)
    words = read_tokenizer(source, rows, findings, keep_truncation=True)
    if words is None:
        return None
    return Module(
        STATIC, ModelPart({tokenizer.NAME: words.content}, {weights.NAME: taken}), gives=width, pooling="mean"
    )


def _sparse_static(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    tensors = weights.read_weights(source, findings)
    if tensors is None:
        return None
    weight = tensors.get("weight")
    if weight is None or len(weight.shape) != 1 or not 0 < weight.shape[0] <= 512_000:
        findings.refuse(
            "missing_weights", source.shown(weights.NAME), "there is no list of weights, one for each token"
        )
        return None
    if not weight.usable:
        findings.refuse("weights_type", source.shown(weights.NAME), f"its type is {weight.dtype}", "weight")
    weights.refuse_not_finite({"weight": weight}, source, findings)
    words = read_tokenizer(source, weight.shape[0], findings)
    if words is None:
        return None
    json = {
        CONFIG: {"frozen": values.get("frozen", False)},
        tokenizer.NAME: words.content,
        tokenizer.SETTINGS: words.settings(words.maximum_length or 512, token_types=False),
    }
    return Module(SPARSE_STATIC, ModelPart(json, {weights.NAME: {"weight": weight}}), gives=weight.shape[0])


def _mask(values: dict[str, Any], source: ModelFiles, findings: Findings) -> Module | None:
    written = {
        "skiplist_words": values.get("skiplist_words", []),
        "skiplist_tasks": values.get("skiplist_tasks", ["document"]),
        "keep_only_token_ids": None,
    }
    return Module(MASK, ModelPart({CONFIG: written}))


_READERS = {
    POOLING: _pooling, SPLADE: _splade, NORMALIZE: _normalize, DENSE: _dense, STATIC: _static,
    SPARSE_STATIC: _sparse_static, MASK: _mask,
}  # fmt: skip


def _are_modes(value: object) -> bool:
    modes = [value] if isinstance(value, str) else value
    return subset_of(_POOLING_MODES, 6).accepts(modes) and bool(modes)


MODULE_FOLDER = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
