"""The deep check of a rebuilt checkpoint: the library itself says which keys and tensors its classes have.

`evaluation.checkpoints` lets any architecture's configuration pass, as typed values within bounds. Here the class that
would be run is made on torch's meta device, where tensors have shapes and no bytes, and the headers of the weights are
loaded into it by the library's own loading: so names as they are published, prefixes of base models, tied weights and
merged experts are what they are for the library. Nothing is computed, and no weight is read.

It runs in the sandbox of a job before anything else, with a minute and 2 GiB.
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
from evaluation.engines.neural.model_types import reads_texts

_CONFIG, _TOKENIZER, _SETTINGS = "config.json", "tokenizer.json", "sentence_bert_config.json"
#: What transformers loads where there is no modules.json.
_PLAIN = {
    CheckpointKind.SEQ2SEQ: transformers.AutoModelForSeq2SeqLM,
    CheckpointKind.TERM_WEIGHTING: transformers.AutoModelForTokenClassification,
    CheckpointKind.QUERY_AUGMENTATION: transformers.AutoModel,
}
#: What configurations of every class still take from files before transformers 5, by a property that sets what is new.
_OLDER = frozenset({"rope_scaling"})
#: Weights that no engine uses: an encoder's pooler where tokens are pooled otherwise.
_POOLER = re.compile(r"(^|\.)pooler\.")
#: Names of weights in a model's layers, as opposed to its head.
_LAYER_WEIGHT = re.compile(r"(^|\.)(layers?|h|blocks?)\.\d+\.(.*\.)?(weight|bias)")
_AWKWARD = ("", "a", " \n\t" * 400, "ab" * 2000, "漢字かな " * 300, "\u0301" * 500, "9" * 2000, "!?" * 1000)


def check_checkpoint(folder: Path) -> Report:
    """Everything that keeps the library from loading the rebuilt checkpoint as it is, and remarks on what it ignores.

    Raises MemoryError; whoever calls it sees to the time.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    findings = Findings()
    described = CheckpointDescription.read(folder)
    for part in described.parts:
        prefix = f"{part}/" if len(described.parts) > 1 else ""
        _check_part(folder / part, described.kind, prefix, findings)
    return findings.report()


def _check_part(folder: Path, kind: CheckpointKind, prefix: str, findings: Findings) -> None:
    if kind in _PLAIN:
        _check_transformer(folder, _PLAIN[kind], prefix, findings)
        return
    for chain in _chains(folder):
        rows = None
        for role, place in chain:
            shown = prefix + (f"{place.relative_to(folder)}/" if place != folder else "")
            if role == m.TRANSFORMER:
                task = _json(place / _SETTINGS)["transformer_task"]
                rows = _check_transformer(place, TRANSFORMER_TASK_TO_AUTO_MODEL[task], shown, findings)
            else:
                _check_module(role, place, rows, shown, findings)


def _chains(folder: Path) -> Iterator[list[tuple[str, Path]]]:
    """Yield each chain of modules: what they are, and their folders."""
    if not (folder / m.MODULES).is_file():
        yield [(m.TRANSFORMER, folder)]
        return
    modules = [(m.get_role(entry["type"]), folder / entry["path"]) for entry in _json(folder / m.MODULES)]
    if modules[0][0] != m.ROUTER:
        yield modules
        return
    routes = _json(folder / m.ROUTER_CONFIG)
    for names in routes["structure"].values():
        yield [(m.get_role(routes["types"][name]), folder / name) for name in names]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _check_transformer(folder: Path, auto_class: Any, shown: str, findings: Findings) -> int | None:
    """Make the model on the meta device, load the headers of its weights into it, and read its tokenizer.

    Returns the number of its embeddings, None if that is not known.
    """
    config = _configuration(folder, findings.at(shown + _CONFIG))
    model = _model_on_meta(config, auto_class, findings.at(shown + _CONFIG)) if config is not None else None
    rows = None
    if model is not None:
        tensors = read_tensors(folder / WEIGHTS, CheckpointAllowance())
        _compare(model, tensors, findings.at(shown + WEIGHTS))
        embeddings = model.get_input_embeddings()
        rows = int(embeddings.weight.shape[0]) if hasattr(embeddings, "weight") else None
    _check_tokenizer(folder, rows, findings.at(shown + _TOKENIZER))
    return rows


def _configuration(folder: Path, file: FileFindings) -> Any:
    """Return the configuration as an object of its class, or None if the class does not accept it.

    Keys that the class does not declare may be older names of its own, and stay. One that is the name of a method or
    a property would replace it.
    """
    values = _json(folder / _CONFIG)
    model_type = values.get("model_type")
    if model_type not in CONFIG_MAPPING_NAMES:
        message = f"{quoted(model_type)} is no architecture of transformers {transformers.__version__}"
        file.refuse("model_type", message, "model_type")
        return None
    config_class = transformers.CONFIG_MAPPING[model_type]
    declared = {field.name for field in fields(config_class)} | config_class.attribute_map.keys() | _OLDER
    for key in values.keys() - declared - {"model_type"}:
        there = getattr(config_class, key, None)
        if there is not None and not isinstance(there, bool | int | float | str):
            file.refuse("configuration", "the class has something else of this name", key)
            return None
    try:
        return config_class.from_dict(values)
    except (StrictDataclassError, *_FAILURES) as error:
        file.refuse("configuration", _library_message(error))
        return None


_FAILURES = (ValueError, TypeError, KeyError, AttributeError, IndexError, ZeroDivisionError, RuntimeError,
    NotImplementedError, AssertionError, ImportError, OverflowError)  # fmt: skip


def _library_message(error: BaseException) -> str:
    """Return the message of a library about a value, without any path."""
    words = " ".join(str(error).split())
    return (
        quote(words, 200)
        if words and "/" not in words
        else f"the library refuses it ({type(error).__name__})"
    )


def _model_on_meta(config: Any, auto_class: Any, file: FileFindings) -> Any:
    """Return the model without any bytes, or None if the library has no such model of texts."""
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
        file.refuse("wrong_kind", f"the library has no {auto_class.__name__} of it", "model_type")
        return None
    if not reads_texts(kind) or config.sub_configs:
        file.refuse("model_type", f"{kind.__name__} is no model of texts alone", "model_type")
        return None
    config._attn_implementation = "eager"
    try:
        with ContextManagers(kind.get_init_context(torch.float32, False, False, False)):
            return kind(config)
    except _FAILURES as error:
        file.refuse("configuration", f"{kind.__name__}: {_library_message(error)}")
        return None


def _compare(model: Any, tensors: Mapping[str, Tensor], file: FileFindings) -> None:
    """Refuse weights that are missing or of another shape, as the library finds when it loads them."""
    state = {name: torch.empty(tensor.shape, device="meta") for name, tensor in tensors.items()}
    load = LoadStateDictConfig(
        ignore_mismatched_sizes=True,
        device_map={"": "meta"},
        dtype=torch.float32,
        weight_mapping=get_model_conversion_mapping(model),
    )
    buffers = {name for name, _ in model.named_buffers()}
    found, _ = convert_and_load_state_dict_in_model(model, state, load)
    model.tie_weights(missing_keys=found.missing_keys, recompute_mapping=False)
    model._adjust_missing_and_unexpected_keys(found)
    pooled = type(model).__name__.endswith("Classification")
    missing = [name for name in found.missing_keys - buffers if pooled or not _POOLER.search(name)]
    if missing:
        file.refuse("missing_weights", f"there is no {summarize_names(sorted(missing))}")
    for name, there, wanted in sorted(found.mismatched_keys):
        message = f"its shape is {sizes(there)}, and {type(model).__name__} has {sizes(wanted)}"
        file.refuse("weights_shape", message, name)
    for name in sorted(found.conversion_errors)[:5]:
        file.refuse("weights_shape", "it cannot be made of what is there", name)
    left = [name for name in found.unexpected_keys - buffers if not name.startswith("decoder.")]
    computed = sorted(name for name in left if _LAYER_WEIGHT.search(name))
    if computed:
        message = f"{type(model).__name__} has no {summarize_names(computed)} and would ignore these weights"
        file.refuse("weights_unknown", message)
    elif left:
        file.remark("weights_left_out", summarize_names(sorted(left)))


def _check_tokenizer(folder: Path, rows: int | None, file: FileFindings) -> int | None:
    """Return how many tokens tokenizer.json has, or None if the library does not read it or ids lack an embedding.

    The library's class may build another tokenizer from it, which must use no other ids either.
    """
    try:
        stored = Tokenizer.from_file(str(folder / _TOKENIZER))
        ids = stored.get_vocab(with_added_tokens=True).values()
        texts = [*_AWKWARD, *((text, text) for text in _AWKWARD)]
        encodings = [*stored.encode_batch(texts), *load_tokenizer(folder).encode_batch(texts)]
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the library's own language is no Exception
        file.refuse("tokenizer_value", _library_message(error))
        return None
    highest = max([*ids, *(max(encoding.ids, default=0) for encoding in encodings)], default=0)
    if rows is not None and highest >= rows:
        message = f"a token has the id {highest:,}, and the model has {rows:,} embeddings"
        file.refuse("tokenizer_vocabulary", message)
    return len(ids)


def _check_module(role: str, folder: Path, rows: int | None, shown: str, findings: Findings) -> None:
    """Make one of the library's modules on the meta device, and compare its tensors with the header of its file."""
    module_class = import_from_string(m.CLASSES[role])
    name = module_class.config_file_name
    values = _json(folder / name) if role != m.STATIC else {}
    file, weights_file = findings.at(shown + name), findings.at(shown + WEIGHTS)
    unknown = sorted(values.keys() - set(module_class.config_keys))
    if unknown:
        file.refuse("unknown_key", f"{role} has no {summarize_names(unknown)}")
        return
    tensors = read_tensors(folder / WEIGHTS, CheckpointAllowance()) if (folder / WEIGHTS).is_file() else {}
    if role in (m.STATIC, m.SPARSE_STATIC):
        count = _check_tokenizer(
            folder, None if role == m.SPARSE_STATIC else static_rows(tensors), findings.at(shown + _TOKENIZER)
        )
        if role == m.SPARSE_STATIC and count is not None:
            refuse_shape("weight", tensors["weight"], (count,), weights_file)
        return
    for key in ("true_token_id", "false_token_id"):
        value = values.get(key)
        if rows and isinstance(value, int) and not 0 <= value < rows:
            message = f"{value:,} is no token; the model has {rows:,} embeddings"
            file.refuse("tokenizer_vocabulary", message, key)
    values.pop("activation_function" if role == m.DENSE else "", None)
    try:
        with torch.device("meta"):
            module = module_class(**values)
    except _FAILURES as error:
        file.refuse("value", _library_message(error))
        return
    _compare_module(module, tensors, weights_file)


def static_rows(tensors: Mapping[str, Tensor]) -> int:
    """Return the number of tokens that a table of static embeddings has a vector for."""
    return min(
        tensor.shape[0] for name, tensor in tensors.items() if name != "embeddings" or len(tensors) == 1
    )


def _compare_module(module: Any, tensors: Mapping[str, Tensor], file: FileFindings) -> None:
    """Refuse a tensor too few, too many, or of another shape; one that has two names may be there under either."""
    there: dict[int, list[str]] = {}
    state = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    for name, value in state.items():
        there.setdefault(id(value), []).append(name)
    missing = [names[0] for names in there.values() if not tensors.keys() & set(names)]
    if missing:
        file.refuse("missing_weights", f"there is no {summarize_names(missing)}")
    unknown = sorted(tensors.keys() - state.keys())
    if unknown:
        file.refuse("weights_unknown", f"the module has no {summarize_names(unknown)}")
    for name in state.keys() & tensors.keys():
        refuse_shape(name, tensors[name], state[name].shape, file)
