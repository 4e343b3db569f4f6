"""Modules of sentence-transformers, identified by class name and read into values and tensors.

The library checks the keys and tensors of a class when the model is checked. This module identifies a class by its
name alone, because its package differs between releases, and reads the input and output dimensions from the
configuration or the tensors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from evaluation.checkpoints import tokenizer, weights
from evaluation.checkpoints.configuration import ACTIVATIONS, refuse_activation
from evaluation.checkpoints.description import ModelPart
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import MAX_STATIC_ROWS, FileFindings, Refused, quoted
from evaluation.checkpoints.settings import WORDS
from evaluation.checkpoints.tokenizer import read_tokenizer
from evaluation.checkpoints.values import read_values, refuse_forbidden_keys, refuse_unknown, typed_values

MODULES, ROUTER_CONFIG = "modules.json", "router_config.json"
TRANSFORMER, POOLING, NORMALIZE, DENSE = "Transformer", "Pooling", "Normalize", "Dense"
STATIC, SPLADE, SPARSE_STATIC = "StaticEmbedding", "SpladePooling", "SparseStaticEmbedding"
MASK, ROUTER, LOGIT_SCORE, AUTO_ENCODER = "MultiVectorMask", "Router", "LogitScore", "SparseAutoEncoder"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class ModuleClass:
    """A class of modules.

    Attributes:
        package: Its package within sentence_transformers.
        config: Name of its configuration file.
        needs_config: Whether that file is required.
        has_weights: Whether it has a file of weights.
        input_width: Key of the input dimension.
        output_width: Key of the output dimension.
        old_width: Former key of the input width, which contains "word_".
    """

    package: str
    config: str = CONFIG
    needs_config: bool = False
    has_weights: bool = False
    input_width: str = ""
    output_width: str = ""
    old_width: str = ""


_OWN_PACKAGE = "sentence_transformer.modules"
_WORD_WIDTH = "word_embedding_dimension"
_CLASSES = {
    TRANSFORMER: ModuleClass("base.modules.transformer"),
    POOLING: ModuleClass(f"{_OWN_PACKAGE}.pooling", needs_config=True, input_width="embedding_dimension",
                         output_width="embedding_dimension", old_width=_WORD_WIDTH),
    NORMALIZE: ModuleClass("base.modules.normalize"),
    DENSE: ModuleClass("base.modules.dense", needs_config=True, has_weights=True, input_width="in_features",
                       output_width="out_features"),
    STATIC: ModuleClass(f"{_OWN_PACKAGE}.static_embedding", has_weights=True),
    SPLADE: ModuleClass("sparse_encoder.modules.splade_pooling", old_width=_WORD_WIDTH),
    SPARSE_STATIC: ModuleClass("sparse_encoder.modules.sparse_static_embedding", has_weights=True),
    AUTO_ENCODER: ModuleClass("sparse_encoder.modules.sparse_auto_encoder", needs_config=True, has_weights=True,
                              input_width="input_dim", output_width="hidden_dim"),
    MASK: ModuleClass("multi_vector_encoder.modules.multi_vector_mask"),
    ROUTER: ModuleClass("base.modules.router"),
    LOGIT_SCORE: ModuleClass("cross_encoder.modules.logit_score", needs_config=True),
    "HierarchicalTokenPooling": ModuleClass("multi_vector_encoder.modules.token_pooling"),
    "LayerNorm": ModuleClass(f"{_OWN_PACKAGE}.layer_norm", needs_config=True, has_weights=True, input_width="dimension",
                             output_width="dimension"),
    "Dropout": ModuleClass(f"{_OWN_PACKAGE}.dropout"),
    "WeightedLayerPooling": ModuleClass(f"{_OWN_PACKAGE}.weighted_layer_pooling", needs_config=True, has_weights=True,
                                        old_width=_WORD_WIDTH),
    "CNN": ModuleClass(f"{_OWN_PACKAGE}.cnn", "cnn_config.json", needs_config=True, has_weights=True,
                       input_width="in_embedding_dimension", old_width="in_word_embedding_dimension"),
}  # fmt: skip
#: Full name of each class, as written to files.
CLASSES = {role: f"sentence_transformers.{module_class.package}.{role}" for role, module_class in _CLASSES.items()}
#: Other names of the classes.
_ALIASES = {"Asym": ROUTER, "MLMTransformer": TRANSFORMER}
#: Classes of the library that are not supported, with the reason.
NOT_RUN = {
    **dict.fromkeys(("BoW", "WordEmbeddings", "WordWeights"), "it has its own tokenizer instead of tokenizer.json"),
    **dict.fromkeys(("CLIPModel", "CLIP"), "it encodes images, but documents are texts"),
    "LSTM": "it needs the lengths of texts, which the library's Transformer does not pass on",
    "LambdaTokenPooling": "it is a function, which no file can store",
}  # fmt: skip
#: Spellings of sentence-transformers, with or without the module's name, and of PyLate.
_TYPE = re.compile(r"(sentence_transformers|pylate)(\.[A-Za-z_]{1,40}){0,4}\.([A-Za-z]{1,40})", re.ASCII)
_POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_POOLING = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_MAX_MODULES = 12
_ROUTES = {"query", "document"}
_FOLDER = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """An entry of modules.json: a module's role, the spelling of its class, and its files."""

    role: str
    spelling: str
    source: ModelFiles


@dataclass(frozen=True, slots=True)
class Module:
    """A module with its files, input and output dimensions, and pooling."""

    role: str
    part: ModelPart
    input_width: int | None = None
    output_width: int | None = None
    pooling: str = ""

    def with_values(self, **values: object) -> Self:
        """Return the module with other values in its configuration."""
        json = {**self.part.json, CONFIG: {**self.part.json[CONFIG], **values}}
        return replace(self, part=ModelPart(json, self.part.weights))


def read_module_list(source: ModelFiles) -> list[ModuleEntry]:
    """Return the role and the files of each module in modules.json. Raises Refused if an entry is unusable."""
    entries = source.read_json(MODULES)
    findings = source.at(MODULES)
    if not isinstance(entries, list) or not 0 < len(entries) <= _MAX_MODULES:
        findings.stop("json_damaged", f"it is not a list of 1 to {_MAX_MODULES} modules")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            findings.stop("json_damaged", "a module is not an object { … }", f"[{number}]")
    refuse_forbidden_keys([{key: entry[key] for key in entry if key != "path"} for entry in entries], findings)
    for entry in entries:
        refuse_unknown(entry, ("idx", "name", "path", "type", "kwargs"), findings)
    references = [
        ((f"[{number}].path", entry.get("path", "")), (f"[{number}].type", entry.get("type")))
        for number, entry in enumerate(entries)
    ]
    return _list_modules(references, source, findings)


def _list_modules(
    references: Sequence[tuple[tuple[str, object], tuple[str, object]]],
    source: ModelFiles,
    findings: FileFindings,
) -> list[ModuleEntry]:
    """Return the modules for references of the form ((key, folder), (key, class)). Raises Refused if one is unusable.

    Messages name a value by its key. `findings` receives an error for each unusable folder or class.
    """
    modules: list[ModuleEntry] = []
    for (path_key, path), (type_key, name) in references:
        role, folder = get_role(name), path
        if isinstance(path, str):
            folder = "" if path == "." else path.removesuffix("/")
        if role in NOT_RUN:
            findings.refuse("module_not_run", f"{role} is not supported: {NOT_RUN[role]}", type_key)
        elif not role:
            findings.refuse("module_type", f"{quoted(name)} is not supported", type_key)
        if not isinstance(folder, str) or (folder and not _FOLDER.fullmatch(folder)):
            findings.refuse("value", f"{quoted(path)} is not a folder next to it", path_key)
        elif (module_files := source.subfolder(folder)) in [module.source for module in modules]:
            # Every copy would be read and written, however large.
            findings.refuse("value", f"{quoted(path)} occurs twice", path_key)
        elif role in CLASSES:
            modules.append(ModuleEntry(role, str(name), module_files))
    if len(modules) < len(references):
        raise Refused
    return modules


def get_role(name: object) -> str:
    """Return the role of a class by its full name in any spelling, or an empty string for an unknown class."""
    match = _TYPE.fullmatch(name) if isinstance(name, str) else None
    role = _ALIASES.get(match[3], match[3]) if match else ""
    return role if role in CLASSES or role in NOT_RUN else ""


def read_routes(source: ModelFiles) -> dict[str, list[ModuleEntry]]:
    """Return a Router's modules for queries and for documents. Raises Refused if its file or a module is unusable."""
    config = ROUTER_CONFIG if source.has(ROUTER_CONFIG) else CONFIG
    content = source.read_settings(config)
    if not content:
        source.at(ROUTER_CONFIG).stop("missing_config", "the Router's file is missing or damaged")
    findings = source.at(config)
    refuse_forbidden_keys(content, findings)
    refuse_unknown(content, ("types", "structure", "parameters"), findings)
    types, structure = content.get("types"), content.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict) or set(structure) != _ROUTES:
        findings.stop("value", "the routes must be exactly query and document", "structure")
    parameters = content.get("parameters") or {}
    if not isinstance(parameters, dict) or parameters.get("route_mappings"):
        findings.refuse("value", "only an empty object is accepted", "parameters.route_mappings")
    routes: dict[str, list[ModuleEntry]] = {}
    for route, names in structure.items():
        if not isinstance(names, list) or not 0 < len(names) <= _MAX_MODULES:
            findings.stop("value", "it is not a list of modules", f"structure.{route}")
        route_types = [types.get(name) if isinstance(name, str) else None for name in names]
        route_modules = [
            ((f"structure.{route}", name), (f"types.{name}", type_name))
            for name, type_name in zip(names, route_types, strict=True)
        ]
        routes[route] = _list_modules(route_modules, source, findings)
    return routes


def read_module(entry: ModuleEntry) -> Module:
    """Read a module's configuration and weights, and return it with its dimensions and its pooling.

    Raises Refused if a required file is missing, or its content is unusable. Transformer and Router have separate
    readers.
    """
    role, source = entry.role, entry.source
    kind, findings = _CLASSES[role], source.at(_CLASSES[role].config)
    if kind.needs_config and not source.has(kind.config):
        findings.stop("missing_config", "the file is missing, although the list of modules has its folder")
    values = _read_values(role, source) if role != STATIC and source.has(kind.config) else {}
    part = ModelPart({kind.config: values} if role != STATIC else {})
    if kind.has_weights:
        tensors = weights.read_weights(source, buffers=True)
        part |= ModelPart(weights={weights.NAME: tensors})
        if role in (STATIC, SPARSE_STATIC):
            findings = source.at(weights.NAME)
            table = next(
                (tensors[name] for name in ("embedding.weight", "embeddings", "weight") if name in tensors),
                None,
            )
            dimensions = 1 if role == SPARSE_STATIC else 2
            if table is None or len(table.shape) != dimensions or table.shape[0] > MAX_STATIC_ROWS:
                message = f"there is no table of at most {MAX_STATIC_ROWS:,} rows, one per token"
                findings.stop("missing_weights" if table is None else "weights_shape", message)
            rows = tensors.get("mapping", table).shape
            if not rows:
                findings.stop("weights_shape", "the tensor “mapping” has no dimension")
            words = read_tokenizer(source, rows[0], keep_truncation=role == STATIC)
            part |= ModelPart({tokenizer.NAME: words.content})
            if role == SPARSE_STATIC:
                settings = words.written_settings(words.maximum_length or 512, token_types=False)
                settings = {"tokenizer_class": tokenizer.GENERIC, **settings}
                part |= ModelPart({tokenizer.SETTINGS_NAME: settings})
            return Module(role, part, output_width=table.shape[-1], pooling="mean" if role == STATIC else "")
    module = Module(role, part, _parse_count(values.get(kind.input_width)), _parse_count(values.get(kind.output_width)))
    if role == POOLING:
        modes = values.get("pooling_mode")
        modes = modes if isinstance(modes, list) else [modes]
        if not modes or any(mode not in _POOLING_MODES for mode in modes):
            findings.stop("value", f"the pooling is not one of {', '.join(_POOLING_MODES)}")
        output_width = module.input_width and module.input_width * len(modes)
        return replace(module, output_width=output_width, pooling="+".join(modes))
    if role == "CNN":
        kernels = values.get("kernel_sizes")
        count = len(kernels) if isinstance(kernels, list) else 0
        return replace(module, output_width=(_parse_count(values.get("out_channels")) or 0) * count)
    if role == SPLADE:
        return replace(module, pooling=str(values.get("pooling_strategy", "max")))
    return module


def _parse_count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _read_values(role: str, source: ModelFiles) -> dict[str, Any]:
    """Return the checked configuration of a module, with former keys replaced by the library's current ones.

    Forbidden keys and unacceptable values are added to the findings.
    """
    kind = _CLASSES[role]
    findings = source.at(kind.config)
    content = source.read_settings(kind.config)
    content = {key: value for key, value in content.items() if value is not None}
    refuse_forbidden_keys(content, findings)
    words = read_values(content, {"skiplist_words": WORDS}, findings)
    if role == DENSE:
        activation = content.setdefault("activation_function", ACTIVATIONS[1])
        refuse_activation(activation, findings, "activation_function")
    if (width := content.pop(kind.old_width, None)) is not None:
        content.setdefault(kind.old_width.replace("word_", ""), width)
    if role == POOLING:
        old_modes = [mode for key, mode in _OLD_POOLING.items() if content.pop(key, None) is True]
        modes = content.setdefault("pooling_mode", old_modes)
        if isinstance(modes, list) and len(modes) == 1:
            content["pooling_mode"] = modes[0]
    return typed_values({key: content[key] for key in content if key not in words}, findings) | words


def pooling_by_name(mode: str, width: int) -> Module:
    """Return the module Pooling for a mode, such as `mean`, and token outputs with `width` dimensions."""
    config = {"pooling_mode": mode, "include_prompt": True}
    return pooling_with_width(Module(POOLING, ModelPart({CONFIG: config}), pooling=mode), width)


def pooling_with_width(module: Module, width: int) -> Module:
    """Return the pooling module for token outputs with `width` dimensions."""
    output_width = width * (module.pooling.count("+") + 1)
    return replace(module.with_values(embedding_dimension=width), input_width=width, output_width=output_width)


def splade_by_name(strategy: str) -> Module:
    """Return the module SpladePooling for the outputs of a masked language model; `strategy` is `max` or `sum`."""
    config = {"pooling_strategy": strategy, "activation_function": "relu"}
    return Module(SPLADE, ModelPart({CONFIG: config}), pooling=strategy)


def token_projection(tensors: weights.Tensors) -> Module:
    """Return the module Dense that projects tokens by `linear.weight` and, if it is present, `linear.bias`."""
    output_width, input_width = tensors["linear.weight"].shape
    names = dict.fromkeys(("module_input_name", "module_output_name"), "token_embeddings")
    widths = {"in_features": input_width, "out_features": output_width, "bias": "linear.bias" in tensors}
    config = {**widths, "activation_function": ACTIVATIONS[0], **names}
    return Module(DENSE, ModelPart({CONFIG: config}, {weights.NAME: tensors}), input_width, output_width)


def check_dimensions(modules: Sequence[Module], findings: FileFindings) -> None:
    """Refuse modules with an input dimension that differs from the output dimension of the previous module."""
    width = None
    for module in modules:
        if module.input_width and width and module.input_width != width:
            message = f"{module.role} expects {module.input_width:,} dimensions, but the module before has {width:,}"
            findings.refuse("dimension_mismatch", message)
        width = module.output_width or width
