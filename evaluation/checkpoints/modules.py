"""The modules of sentence-transformers: recognised by their class, and each read into values and tensors.

What keys and tensors a class has, the library says where the model is checked. Here its name decides which class that
is, whatever package a release wrote before it, and its numbers how many dimensions go in and come out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluation.checkpoints import tokenizer, tokenizer_settings, weights
from evaluation.checkpoints.configuration import ACTIVATIONS, refuse_activation
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.json_reading import read_json, read_object
from evaluation.checkpoints.limits import MOST_STATIC_ROWS
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.tokenizer import read_tokenizer
from evaluation.checkpoints.values import (
    read_values,
    refuse_forbidden_keys,
    refuse_unknown,
    texts,
    typed_values,
)

MODULES, ROUTER_CONFIG = "modules.json", "router_config.json"
TRANSFORMER, POOLING, NORMALIZE, DENSE = "Transformer", "Pooling", "Normalize", "Dense"
STATIC, SPLADE, SPARSE_STATIC = "StaticEmbedding", "SpladePooling", "SparseStaticEmbedding"
MASK, ROUTER, LOGIT_SCORE, AUTO_ENCODER = "MultiVectorMask", "Router", "LogitScore", "SparseAutoEncoder"

_OWN = "sentence_transformers.sentence_transformer.modules"
#: The class that each module is written as.
CLASSES = {
    TRANSFORMER: "sentence_transformers.base.modules.transformer.Transformer",
    POOLING: f"{_OWN}.pooling.Pooling",
    NORMALIZE: "sentence_transformers.base.modules.normalize.Normalize",
    DENSE: "sentence_transformers.base.modules.dense.Dense",
    STATIC: f"{_OWN}.static_embedding.StaticEmbedding",
    SPLADE: "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    SPARSE_STATIC: "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
    AUTO_ENCODER: "sentence_transformers.sparse_encoder.modules.sparse_auto_encoder.SparseAutoEncoder",
    MASK: "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    ROUTER: "sentence_transformers.base.modules.router.Router",
    LOGIT_SCORE: "sentence_transformers.cross_encoder.modules.logit_score.LogitScore",
    "HierarchicalTokenPooling":
        "sentence_transformers.multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling",
    "LayerNorm": f"{_OWN}.layer_norm.LayerNorm",
    "Dropout": f"{_OWN}.dropout.Dropout",
    "WeightedLayerPooling": f"{_OWN}.weighted_layer_pooling.WeightedLayerPooling",
    "CNN": f"{_OWN}.cnn.CNN",
}  # fmt: skip
#: Other names of theirs.
_ALIASES = {"Asym": ROUTER, "MLMTransformer": TRANSFORMER}
#: Classes of the library that are not run, and why.
NOT_RUN = {
    **dict.fromkeys(("BoW", "WordEmbeddings", "WordWeights"), "it has a tokenizer of its own, not tokenizer.json"),
    **dict.fromkeys(("CLIPModel", "CLIP"), "it encodes pictures, and documents here are texts"),
    "LSTM": "it needs the lengths of texts, which the library's Transformer does not tell it",
    "LambdaTokenPooling": "it is a function, and no file holds one",
}  # fmt: skip
#: Spellings: of sentence-transformers, with or without its module's name, and of PyLate.
_TYPE = re.compile(r"(sentence_transformers|pylate)(\.[A-Za-z_]{1,40}){0,4}\.([A-Za-z]{1,40})", re.ASCII)

#: Where a module has its configuration, and which have weights.
_CONFIGS = {"CNN": "cnn_config.json"}
_WITH_WEIGHTS = frozenset(
    {DENSE, STATIC, SPARSE_STATIC, AUTO_ENCODER, "LayerNorm", "WeightedLayerPooling", "CNN"}
)
CONFIG = "config.json"
#: Modules that require a configuration file.
_NEEDS_CONFIG = frozenset(
    {POOLING, DENSE, AUTO_ENCODER, LOGIT_SCORE, "LayerNorm", "WeightedLayerPooling", "CNN"}
)
_WIDTHS = {
    DENSE: ("in_features", "out_features"), AUTO_ENCODER: ("input_dim", "hidden_dim"),
    "LayerNorm": ("dimension", "dimension"), POOLING: ("embedding_dimension", "embedding_dimension"),
}  # fmt: skip
#: Former names of the key for the input width.
_OLD_WIDTHS = {
    **dict.fromkeys((POOLING, SPLADE, "WeightedLayerPooling"), "word_embedding_dimension"),
    "CNN": "in_word_embedding_dimension",
}
_POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_POOLING = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
WORDS = texts(2000, 64)
_MOST_MODULES = 12
_ROUTES = {"query", "document"}
_FOLDER = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listed:
    """A module as modules.json names it: what it is, the name of its class there, and its files."""

    role: str
    spelling: str
    source: ModelFiles


@dataclass(frozen=True, slots=True)
class Module:
    """A module as it was understood: its files, and how many dimensions go in and come out."""

    role: str
    part: ModelPart
    takes: int | None = None
    gives: int | None = None
    #: What a description says of it: how it pools.
    pooling: str = ""


def read_module_list(source: ModelFiles, findings: Findings) -> list[Listed] | None:
    """The modules that modules.json names, or None where it is refused."""
    found = read_json(source, MODULES, findings)
    if found is None:
        return None
    shown = source.shown(MODULES)
    if not isinstance(found, list) or not 0 < len(found) <= _MOST_MODULES:
        findings.refuse("json_damaged", shown, f"it is no list of 1 to {_MOST_MODULES} modules")
        return None
    told = [{key: value for key, value in entry.items() if key != "path"} if isinstance(entry, dict) else entry
            for entry in found]  # fmt: skip
    refuse_forbidden_keys(told, findings, shown)
    modules: list[Listed] = []
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            findings.refuse("json_damaged", shown, "a module is no object { … }", f"[{number}]")
            return None
        refuse_unknown(entry, ("idx", "name", "path", "type", "kwargs"), findings, shown)
        keys = f"[{number}].path", f"[{number}].type"
        _list_module(modules, entry.get("path", ""), entry.get("type"), keys, source, shown, findings)
    return modules if len(modules) == len(found) else None


def _list_module(
    modules: list[Listed],
    path: object,
    name: object,
    keys: tuple[str, str],
    source: ModelFiles,
    shown: str,
    findings: Findings,
) -> None:
    """Put a module behind those before it, or refuse its folder or its class; `keys` are of these in the file."""
    role, folder = _role(name, keys[1], shown, findings), _folder(path)
    if folder is None:
        findings.refuse("value", shown, f"{quoted(path)} is no folder beside it", keys[0])
    elif (within := source.within(folder)) in [each.source for each in modules]:
        # every copy would be read and written, however large
        findings.refuse("value", shown, f"{quoted(path)} is named twice", keys[0])
    elif role:
        modules.append(Listed(role, str(name), within))


def _folder(path: object) -> str | None:
    """A module's folder, empty for that of modules.json itself; None where the path may not be one."""
    if not isinstance(path, str):
        return None
    folder = "" if path == "." else path.removesuffix("/")
    return folder if not folder or _FOLDER.fullmatch(folder) else None


def role_of(name: object) -> str:
    """Which module a class's full name is of, in any spelling; empty for every other name."""
    found = _TYPE.fullmatch(name) if isinstance(name, str) else None
    known = _ALIASES.get(found[3], found[3]) if found else ""
    return known if known in CLASSES or known in NOT_RUN else ""


def _role(name: object, key: str, shown: str, findings: Findings) -> str:
    role = role_of(name)
    if role in NOT_RUN:
        findings.refuse("module_not_run", shown, f"{role} is not run: {NOT_RUN[role]}", key)
        return ""
    if not role:
        findings.refuse("module_type", shown, f"{quoted(name)} is not taken", key)
    return role


def read_routes(source: ModelFiles, findings: Findings) -> dict[str, list[Listed]] | None:
    """The modules for queries and for documents that a Router names, or None where it is refused."""
    name = ROUTER_CONFIG if source.has(ROUTER_CONFIG) else CONFIG
    found = read_object(source, name, findings) if source.has(name) else None
    if found is None:
        what = "the Router's own file is missing or damaged"
        findings.refuse("missing_config", source.shown(ROUTER_CONFIG), what)
        return None
    shown = source.shown(name)
    refuse_forbidden_keys(found, findings, shown)
    refuse_unknown(found, ("types", "structure", "parameters"), findings, shown)
    types, structure = found.get("types"), found.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict) or set(structure) != _ROUTES:
        what = "there are not exactly the two routes query and document"
        findings.refuse("value", shown, what, "structure")
        return None
    parameters = found.get("parameters") or {}
    if not isinstance(parameters, dict) or parameters.get("route_mappings"):
        findings.refuse("value", shown, "only an empty object is taken", "parameters.route_mappings")
    routes: dict[str, list[Listed]] = {}
    for role, names in structure.items():
        if not isinstance(names, list) or not 0 < len(names) <= _MOST_MODULES:
            findings.refuse("value", shown, "it is no list of modules", f"structure.{role}")
            return None
        routes[role] = []
        for each in names:
            kept_as = types.get(each) if isinstance(each, str) else None
            keys = f"structure.{role}", f"types.{each}"
            _list_module(routes[role], each, kept_as, keys, source, shown, findings)
        if len(routes[role]) < len(names):
            return None
    return routes


def read_module(listed: Listed, findings: Findings) -> Module | None:
    """A module's files, or None where they are refused. Transformer and Router have readers of their own."""
    role, source = listed.role, listed.source
    if role in _NEEDS_CONFIG and not source.has(_CONFIGS.get(role, CONFIG)):
        message = "the file is missing, although the list of modules names its folder"
        findings.refuse("missing_config", source.shown(_CONFIGS.get(role, CONFIG)), message)
        return None
    values = _read_values(role, source, findings)
    part = ModelPart({_CONFIGS.get(role, CONFIG): values} if role != STATIC else {})
    takes, gives = (_count(values.get(key)) for key in _WIDTHS.get(role, ("", "")))
    if role in _WITH_WEIGHTS:
        tensors = weights.read_weights(source, findings, buffers=True)
        if tensors is None:
            return None
        part |= ModelPart(weights={weights.NAME: tensors})
        if role in (STATIC, SPARSE_STATIC):
            return _with_tokenizer(role, part, tensors, source, findings)
    pooling = ""
    if role == POOLING:
        modes = values.get("pooling_mode")
        modes = modes if isinstance(modes, list) else [modes]
        if not modes or any(mode not in _POOLING_MODES for mode in modes):
            what = f"no way of pooling is chosen of {', '.join(_POOLING_MODES)}"
            findings.refuse("value", source.shown(CONFIG), what)
            return None
        gives, pooling = takes and takes * len(modes), "+".join(modes)
    elif role == "CNN":
        takes, kernels = _count(values.get("in_embedding_dimension")), values.get("kernel_sizes")
        gives = (_count(values.get("out_channels")) or 0) * (len(kernels) if isinstance(kernels, list) else 0)
    elif role == SPLADE:
        pooling = str(values.get("pooling_strategy", "max"))
    return Module(role, part, takes, gives, pooling)


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _read_values(role: str, source: ModelFiles, findings: Findings) -> dict[str, Any]:
    """A module's configuration, its keys as the library calls them now."""
    name = _CONFIGS.get(role, CONFIG)
    if role == STATIC or not source.has(name):
        return {}
    shown = source.shown(name)
    found = {
        key: value for key, value in (read_object(source, name, findings) or {}).items() if value is not None
    }
    refuse_forbidden_keys(found, findings, shown)
    words = read_values(found, {"skiplist_words": WORDS}, findings, shown)
    if role == DENSE:
        activation = found.setdefault("activation_function", ACTIVATIONS[1])
        refuse_activation(activation, findings, shown, "activation_function")
    if role in _OLD_WIDTHS and (width := found.pop(_OLD_WIDTHS[role], None)) is not None:
        found.setdefault(_OLD_WIDTHS[role].replace("word_", ""), width)
    if role == POOLING:
        old = [mode for key, mode in _OLD_POOLING.items() if found.pop(key, None) is True]
        modes = found.setdefault("pooling_mode", old)
        if isinstance(modes, list) and len(modes) == 1:
            found["pooling_mode"] = modes[0]
    return typed_values({key: found[key] for key in found.keys() - words.keys()}, findings, shown) | words


def _with_tokenizer(
    role: str, part: ModelPart, tensors: weights.Tensors, source: ModelFiles, findings: Findings
) -> Module | None:
    """A vector or a weight for each token, and the tokenizer whose ids they go by."""
    shown = source.shown(weights.NAME)
    name = next((name for name in ("embedding.weight", "embeddings", "weight") if name in tensors), "")
    table = tensors.get(name)
    dimensions = 1 if role == SPARSE_STATIC else 2
    if table is None or len(table.shape) != dimensions or table.shape[0] > MOST_STATIC_ROWS:
        what = f"there is no table of at most {MOST_STATIC_ROWS:,} rows, one for each token"
        findings.refuse("missing_weights" if table is None else "weights_shape", shown, what)
        return None
    rows = tensors.get("mapping", table).shape[0]
    words = read_tokenizer(source, rows, findings, keep_truncation=role == STATIC)
    if words is None:
        return None
    part |= ModelPart({tokenizer.NAME: words.content})
    if role == SPARSE_STATIC:
        settings = words.written_settings(words.maximum_length or 512, token_types=False)
        part |= ModelPart(
            {tokenizer_settings.NAME: {"tokenizer_class": tokenizer_settings.GENERIC, **settings}}
        )
    return Module(role, part, gives=table.shape[-1], pooling="mean" if role == STATIC else "")


def pooling_by_name(mode: str, width: int) -> Module:
    """The module that pools in this way."""
    written = {"pooling_mode": mode, "include_prompt": True}
    return pooling_with_width(Module(POOLING, ModelPart({CONFIG: written}), pooling=mode), width)


def pooling_with_width(module: Module, width: int) -> Module:
    """Return the pooling module for token outputs with `width` dimensions."""
    written = {**module.part.json[CONFIG], "embedding_dimension": width}
    gives = width * (module.pooling.count("+") + 1)
    return replace(module, part=ModelPart({CONFIG: written}), takes=width, gives=gives)


def splade_by_name(strategy: str) -> Module:
    """The module that pools a masked language model's outputs in this way."""
    written = {"pooling_strategy": strategy, "activation_function": "relu"}
    return Module(SPLADE, ModelPart({CONFIG: written}), pooling=strategy)


def dense(values: Mapping[str, Any], activation: str, tensors: weights.Tensors) -> Module:
    """A projection of tokens with these weights."""
    names = dict.fromkeys(("module_input_name", "module_output_name"), "token_embeddings")
    written = {**values, "bias": "linear.bias" in tensors, "activation_function": activation, **names}
    part = ModelPart({CONFIG: written}, {weights.NAME: tensors})
    return Module(DENSE, part, values["in_features"], values["out_features"])


def check_dimensions(modules: Sequence[Module], shown: str, findings: Findings) -> None:
    """Refuse a module that takes other dimensions than the one before it gives."""
    before = None
    for module in modules:
        if module.takes and before and module.takes != before:
            what = (
                f"{module.role} takes {module.takes:,} dimensions, and the module before it gives {before:,}"
            )
            findings.refuse("dimension_mismatch", shown, what)
        before = module.gives or before
