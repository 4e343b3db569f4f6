"""Check of a rebuilt checkpoint against the classes of transformers and sentence-transformers.

`evaluation.checkpoints` accepts the configuration of any architecture, as typed values within bounds. This check
creates the model on torch's meta device, where tensors have shapes but no data, and loads the headers of the weights
with the library's own function. It therefore handles published names, prefixes of base models, tied weights, and merged
experts like the library. No weights are read, and nothing is computed.

The check is the first step in the sandbox of a job, limited to a minute and 2 GiB.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from sentence_transformers.base.modules.transformer import (
    _ENCODER_ONLY_MODELS,
    TRANSFORMER_TASK_TO_AUTO_MODEL,
)
from sentence_transformers.util import import_from_string
from tokenizers import Tokenizer
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.models.auto.auto_factory import _get_model_class
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.utils.generic import ContextManagers

from evaluation.checkpoints import modules as m
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.findings import (
    CheckpointAllowance,
    FileFindings,
    Findings,
    quote,
    quoted,
    summarize_names,
)
from evaluation.checkpoints.weights import NAME as WEIGHTS
from evaluation.checkpoints.weights import Tensor, read_tensors, refuse_shape, sizes
from evaluation.core.problems import Report
from evaluation.engines.index.word_pieces import load_tokenizer

_CONFIG, _TOKENIZER, _SETTINGS = "config.json", "tokenizer.json", "sentence_bert_config.json"
#: Classes of transformers for kinds of checkpoints without a modules.json.
_AUTO_CLASSES = {
    CheckpointKind.SEQ2SEQ: transformers.AutoModelForSeq2SeqLM,
    CheckpointKind.TERM_WEIGHTING: transformers.AutoModelForTokenClassification,
    CheckpointKind.QUERY_AUGMENTATION: transformers.AutoModel,
}
#: Keys from before transformers 5 that all configurations still accept through properties.
_LEGACY_KEYS = frozenset({"rope_scaling"})
#: Weights of an encoder's pooler, which engines do not use.
_POOLER = re.compile(r"(^|\.)pooler\.")
#: Names of weights in a model's layers, as opposed to its head.
_LAYER_WEIGHT = re.compile(r"(^|\.)(layers?|h|blocks?)\.\d+\.(.*\.)?(weight|bias)")
_AWKWARD = ("", "a", " \n\t" * 400, "ab" * 2000, "漢字かな " * 300, "\u0301" * 500, "9" * 2000, "!?" * 1000)


def check_checkpoint(folder: Path) -> Report:
    """Report everything that prevents the library from loading the rebuilt checkpoint, and weights that it ignores.

    Raises MemoryError. Callers must limit the time.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    findings = Findings()
    description = CheckpointDescription.read(folder)
    for part in description.parts:
        _check_part(folder / part, description.kind, f"{part}/" if len(description.parts) > 1 else "", findings)
    return findings.report()


def _check_part(folder: Path, kind: CheckpointKind, prefix: str, findings: Findings) -> None:
    """Check a transformer of transformers, or all modules of a model of sentence-transformers.

    Problems are added to `findings`, under the names of files after `prefix`.
    """
    if kind in _AUTO_CLASSES:
        _check_transformer(folder, _AUTO_CLASSES[kind], prefix, findings)
        return
    for chain in _iterate_chains(folder):
        rows = None
        for role, module_folder in chain:
            path_prefix = prefix + (f"{module_folder.relative_to(folder)}/" if module_folder != folder else "")
            if role == m.TRANSFORMER:
                task = _read_json(module_folder / _SETTINGS)["transformer_task"]
                rows = _check_transformer(module_folder, TRANSFORMER_TASK_TO_AUTO_MODEL[task], path_prefix, findings)
            else:
                _check_module(role, module_folder, rows, path_prefix, findings)


def _iterate_chains(folder: Path) -> Iterator[list[tuple[str, Path]]]:
    """Yield each chain of modules as pairs of role and folder: one for each route of a router, otherwise one."""
    if not (folder / m.MODULES).is_file():
        yield [(m.TRANSFORMER, folder)]
        return
    modules = [(m.get_role(entry["type"]), folder / entry["path"]) for entry in _read_json(folder / m.MODULES)]
    if modules[0][0] != m.ROUTER:
        yield modules
        return
    routes = _read_json(folder / m.ROUTER_CONFIG)
    for names in routes["structure"].values():
        yield [(m.get_role(routes["types"][name]), folder / name) for name in names]


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _check_transformer(folder: Path, auto_class: Any, path_prefix: str, findings: Findings) -> int | None:
    """Create the model on the meta device, load the headers of its weights, and read its tokenizer.

    Returns the number of embeddings, or None if it is unknown.
    """
    config = _load_configuration(folder, findings.at(path_prefix + _CONFIG))
    model = _create_meta_model(config, auto_class, findings.at(path_prefix + _CONFIG)) if config is not None else None
    rows = None
    if model is not None:
        tensors = read_tensors(folder / WEIGHTS, CheckpointAllowance())
        _compare_weights(model, tensors, findings.at(path_prefix + WEIGHTS))
        embeddings = model.get_input_embeddings()
        rows = int(embeddings.weight.shape[0]) if hasattr(embeddings, "weight") else None
    _check_tokenizer(folder, rows, findings.at(path_prefix + _TOKENIZER))
    return rows


def _load_configuration(folder: Path, findings: FileFindings) -> Any:
    """Return the configuration object, or None after refusing its type or values.

    Undeclared keys may be older names that the class handles. They are allowed unless they would overwrite a method
    or property.
    """
    values = _read_json(folder / _CONFIG)
    model_type = values.get("model_type")
    if model_type not in CONFIG_MAPPING_NAMES:
        message = f"{quoted(model_type)} is not an architecture of transformers {transformers.__version__}"
        findings.refuse("model_type", message, "model_type")
        return None
    config_class = transformers.CONFIG_MAPPING[model_type]
    declared_keys = {field.name for field in fields(config_class)} | config_class.attribute_map.keys() | _LEGACY_KEYS
    for key in values.keys() - declared_keys - {"model_type"}:
        attribute = getattr(config_class, key, None)
        if attribute is not None and not isinstance(attribute, bool | int | float | str):
            findings.refuse("configuration", "this key would overwrite an attribute of the configuration class", key)
            return None
    try:
        return config_class.from_dict(values)
    except (StrictDataclassError, *_FAILURES) as error:
        findings.refuse("configuration", _library_message(error))
        return None


_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _library_message(error: BaseException) -> str:
    """Return a library's error message, or only the type of the error if the message may contain a path."""
    words = " ".join(str(error).split())
    return quote(words, 200) if words and "/" not in words else f"the library rejects it ({type(error).__name__})"


def _create_meta_model(config: Any, auto_class: Any, findings: FileFindings) -> Any:
    """Return the model on the meta device, or None after refusing its type or configuration."""
    kind = next(
        (
            getattr(__import__(module, fromlist=[name]), name)
            for config_class, module, name in _ENCODER_ONLY_MODELS
            if auto_class is transformers.AutoModel and isinstance(config, config_class)
        ),
        None,
    )
    try:
        kind = kind or _get_model_class(config, auto_class._model_mapping)
    except (KeyError, ValueError):
        findings.refuse("wrong_kind", f"the library has no {auto_class.__name__} for this type", "model_type")
        return None
    if not reads_texts(kind) or config.sub_configs:
        findings.refuse("model_type", f"{kind.__name__} is not a text-only model", "model_type")
        return None
    config._attn_implementation = "eager"
    try:
        with ContextManagers(kind.get_init_context(torch.float32, False, False, False)):
            return kind(config)
    except _FAILURES as error:
        findings.refuse("configuration", f"{kind.__name__}: {_library_message(error)}")
        return None


def reads_texts(kind: Any) -> bool:
    """Return whether a class of models reads only texts."""
    return kind.main_input_name == "input_ids" and kind.input_modalities in ("text", ["text"], ("text",))


def _compare_weights(model: Any, tensors: Mapping[str, Tensor], findings: FileFindings) -> None:
    """Refuse weights that are missing, misshapen, or unknown according to the library's loading function.

    Unknown weights outside of the model's layers only cause a warning.
    """
    state = {name: torch.empty(tensor.shape, device="meta") for name, tensor in tensors.items()}
    load = LoadStateDictConfig(
        ignore_mismatched_sizes=True,
        device_map={"": "meta"},
        dtype=torch.float32,
        weight_mapping=get_model_conversion_mapping(model),
    )
    buffers = {name for name, _ in model.named_buffers()}
    loading_info, _ = convert_and_load_state_dict_in_model(model, state, load)
    model.tie_weights(missing_keys=loading_info.missing_keys, recompute_mapping=False)
    model._adjust_missing_and_unexpected_keys(loading_info)
    pooled = type(model).__name__.endswith("Classification")
    if missing_names := [name for name in loading_info.missing_keys - buffers if pooled or not _POOLER.search(name)]:
        findings.refuse("missing_weights", f"{summarize_names(sorted(missing_names))} are missing")
    for name, stored_shape, expected_shape in sorted(loading_info.mismatched_keys):
        message = f"its shape is {sizes(stored_shape)}, but {type(model).__name__} requires {sizes(expected_shape)}"
        findings.refuse("weights_shape", message, name)
    for name in sorted(loading_info.conversion_errors)[:5]:
        findings.refuse("weights_shape", "it cannot be converted from the stored weights", name)
    unexpected = [name for name in loading_info.unexpected_keys - buffers if not name.startswith("decoder.")]
    if computed := sorted(name for name in unexpected if _LAYER_WEIGHT.search(name)):
        message = f"{type(model).__name__} has no {summarize_names(computed)} and would ignore these weights"
        findings.refuse("weights_unknown", message)
    elif unexpected:
        findings.remark("weights_left_out", summarize_names(sorted(unexpected)))


def _check_tokenizer(folder: Path, rows: int | None, findings: FileFindings) -> int | None:
    """Refuse a tokenizer that is unreadable or has ids without an embedding, and return its number of tokens.

    Returns None for an unreadable file. The library's class may derive a different tokenizer from tokenizer.json,
    which must not use other ids either. `rows` is the number of embeddings, or None if it does not matter.
    """
    try:
        stored_tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        ids = stored_tokenizer.get_vocab(with_added_tokens=True).values()
        texts = [*_AWKWARD, *((text, text) for text in _AWKWARD)]
        encodings = [*stored_tokenizer.encode_batch(texts), *load_tokenizer(folder).encode_batch(texts)]
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        findings.refuse("tokenizer_value", _library_message(error))
        return None
    highest_id = max([*ids, *(max(encoding.ids, default=0) for encoding in encodings)], default=0)
    if rows is not None and highest_id >= rows:
        message = f"a token has the id {highest_id:,}, but the model has only {rows:,} embeddings"
        findings.refuse("tokenizer_vocabulary", message)
    return len(ids)


def _check_module(role: str, folder: Path, rows: int | None, path_prefix: str, findings: Findings) -> None:
    """Check the settings, tokenizer, and tensors of a module of sentence-transformers other than the transformer.

    The module is created on the meta device, unless it consists of static embeddings. `rows` is the number of
    embeddings of the transformer before the module, or None.
    """
    module_class = import_from_string(m.CLASSES[role])
    name = module_class.config_file_name
    values = _read_json(folder / name) if role != m.STATIC else {}
    config_findings, weights_findings = findings.at(path_prefix + name), findings.at(path_prefix + WEIGHTS)
    if unknown_keys := sorted(values.keys() - set(module_class.config_keys)):
        config_findings.refuse("unknown_key", f"{role} has no {summarize_names(unknown_keys)}")
        return
    tensors = read_tensors(folder / WEIGHTS, CheckpointAllowance()) if (folder / WEIGHTS).is_file() else {}
    if role in (m.STATIC, m.SPARSE_STATIC):
        count = _check_tokenizer(
            folder,
            None if role == m.SPARSE_STATIC else static_rows(tensors),
            findings.at(path_prefix + _TOKENIZER),
        )
        if role == m.SPARSE_STATIC and count is not None:
            refuse_shape("weight", tensors["weight"], (count,), weights_findings)
        return
    for key in ("true_token_id", "false_token_id"):
        value = values.get(key)
        if rows and isinstance(value, int) and not 0 <= value < rows:
            message = f"{value:,} is not a token; the model has {rows:,} embeddings"
            config_findings.refuse("tokenizer_vocabulary", message, key)
    values.pop("activation_function" if role == m.DENSE else "", None)
    try:
        with torch.device("meta"):
            module = module_class(**values)
    except _FAILURES as error:
        config_findings.refuse("value", _library_message(error))
        return
    _compare_module(module, tensors, weights_findings)


def static_rows(tensors: Mapping[str, Tensor]) -> int:
    """Return the number of tokens in a table of static embeddings."""
    return min(tensor.shape[0] for name, tensor in tensors.items() if name != "embeddings" or len(tensors) == 1)


def _compare_module(module: Any, tensors: Mapping[str, Tensor], findings: FileFindings) -> None:
    """Refuse missing, unknown, and misshapen tensors. A tensor with two names may be stored under either."""
    names_by_tensor: dict[int, list[str]] = {}
    state = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    for name, value in state.items():
        names_by_tensor.setdefault(id(value), []).append(name)
    if missing_names := [names[0] for names in names_by_tensor.values() if not tensors.keys() & set(names)]:
        findings.refuse("missing_weights", f"{summarize_names(missing_names)} are missing")
    if unknown_names := sorted(tensors.keys() - state.keys()):
        findings.refuse("weights_unknown", f"the module has no {summarize_names(unknown_names)}")
    for name in state.keys() & tensors.keys():
        refuse_shape(name, tensors[name], state[name].shape, findings)
