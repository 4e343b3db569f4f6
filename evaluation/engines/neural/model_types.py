"""The types of models of texts that transformers has, by what of them a kind of checkpoint needs.

`python -m evaluation.engines.neural.model_types` writes `evaluation/checkpoints/model_types.json`, which pages read:
making the list imports some hundred modules of the library, and a web process has none of it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from dataclasses import fields
from functools import reduce
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from evaluation.checkpoints.library import PATH, USES

#: How classes read keys that their configuration does not declare.
_IN_CONFIGURATION = re.compile(r'kwargs\.(?:pop|get)\(\s*"(\w+)"|"(\w+)" in kwargs')
_IN_MODEL = re.compile(r'\bconfig\.([a-z]\w*)|getattr\(\s*(?:self\.)?config,\s*"(\w+)"')
#: Keys that are declared and have no effect: the mask is causal whatever they say.
_IGNORED = {"gemma": {"use_bidirectional_attention"}, "gemma2": {"use_bidirectional_attention"}}


def list_model_types() -> dict[str, Any]:
    """Return the library's version, the types with a class that reads texts alone by USES, and the keys of each."""
    types = {use: _types_of(getattr(transformers, name)) for use, name in USES.items()}
    keys = {name: _keys_read(name) for name in sorted(set().union(*types.values()))}
    common = reduce(frozenset.intersection, keys.values())
    return {
        "transformers": transformers.__version__,
        "types": types,
        "keys": {
            "": " ".join(sorted(common)),
            **{name: " ".join(sorted(own - common)) for name, own in keys.items()},
        },
    }


def _keys_read(model_type: str) -> frozenset[str]:
    """Return the keys of config.json that the classes of a type declare or read.

    `is_causal` is read by the functions that make masks of decoders, but not by all of them. Classes that are told by
    `is_decoder` what they are do not mind it.
    """
    config_class = transformers.CONFIG_MAPPING[model_type]
    keys = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    module = inspect.getmodule(config_class)
    keys |= _words(_IN_CONFIGURATION, module)
    if "rope_parameters" in keys:
        keys |= {"rope_theta", "rope_scaling"}
    try:
        model = importlib.import_module(module.__name__.replace(".configuration_", ".modeling_"))
    except ImportError:  # a type that another type's classes run
        model = inspect.getmodule(_model_class(config_class))
    keys |= _words(_IN_MODEL, model)
    source = inspect.getsource(model)
    if '"partial_rotary_factor"' in source + inspect.getsource(module):
        keys.add("partial_rotary_factor")
    switches = "create_causal_mask" in source and "create_chunked_causal_mask" not in source
    keys -= {"is_causal", *_IGNORED.get(model_type, ())}
    return frozenset(keys | ({"is_causal"} if switches and "is_decoder" not in keys else set()))


def _words(pattern: re.Pattern[str], module: Any) -> set[str]:
    return {word for match in pattern.finditer(inspect.getsource(module)) for word in match.groups() if word}


def _model_class(config_class: Any) -> Any:
    kind = transformers.MODEL_MAPPING[config_class]
    return kind[0] if isinstance(kind, tuple) else kind


def _types_of(auto_class: Any) -> list[str]:
    return sorted(
        model_type
        for model_type in auto_class._model_mapping._model_mapping
        if model_type in CONFIG_MAPPING_NAMES and _has_reader(auto_class, model_type)
    )


def _has_reader(auto_class: Any, model_type: str) -> bool:
    """Whether its model reads texts alone; False where that needs what is not installed here."""
    try:
        config_class = transformers.CONFIG_MAPPING[model_type]
        found = auto_class._model_mapping[config_class]
        kind = found[0] if isinstance(found, tuple) else found
        return reads_texts(kind) and not config_class.sub_configs
    except (ImportError, KeyError, ValueError, AttributeError):
        return False


def reads_texts(kind: Any) -> bool:
    """Whether texts are all that a class of models reads."""
    return kind.main_input_name == "input_ids" and kind.input_modalities in ("text", ["text"], ("text",))


if __name__ == "__main__":
    PATH.write_text(json.dumps(list_model_types(), indent=1) + "\n", encoding="utf-8")
