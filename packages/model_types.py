"""Generator of evaluation/checkpoints/model_types.json: the text model types in transformers, by use.

Run `python -m packages.model_types` after a change of the version of transformers. A test fails if the file is out of
date. Pages read the file, because computing the list imports about a hundred modules of the library.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from dataclasses import fields
from functools import cache, reduce
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from evaluation.checkpoints.configuration import PATH, USES
from evaluation.engines.neural.checking import reads_texts

#: Patterns of code that reads keys not declared by the configuration.
_IN_CONFIGURATION = re.compile(r'kwargs\.(?:pop|get)\(\s*"(\w+)"|"(\w+)" in kwargs')
_IN_MODEL = re.compile(r'\bconfig\.([a-z]\w*)|getattr\(\s*(?:self\.)?config,\s*"(\w+)"')
_CAUSAL_MASK = re.compile(r"create_(sliding_window_|chunked_)?causal_mask")
#: Pattern of classes that check `is_decoder`, and ignore `is_causal`.
_READS_IS_DECODER = re.compile(r"config\.is_decoder(?! = )")
#: Types of AutoModelForCausalLM with bidirectional attention.
_BOTH_DIRECTIONS = frozenset({"cpmant", "xlnet"})
#: Declared keys without effect, because the mask is always causal.
_IGNORED_KEYS = {"gemma": {"use_bidirectional_attention"}, "gemma2": {"use_bidirectional_attention"}}


def list_model_types() -> dict[str, Any]:
    """Return the version of transformers, its text-only types by use, its causal types, and each type's keys."""
    auto_classes = {use: getattr(transformers, name) for use, name in USES.items()}
    types = {
        use: sorted(
            model_type
            for model_type in auto_class._model_mapping._model_mapping
            if model_type in CONFIG_MAPPING_NAMES and _has_text_model(auto_class, model_type)
        )
        for use, auto_class in auto_classes.items()
    }
    names = sorted(set().union(*types.values()))
    keys = {name: _find_keys(name) for name in names}
    common_keys = reduce(frozenset.intersection, keys.values())
    bidirectional = _BOTH_DIRECTIONS.union(types["masked"], types["writer"])
    models = {name: _get_sources(name)[1] for name in names if name not in bidirectional}
    # These types attend only to preceding tokens by default.
    causal = [
        name
        for name, model in models.items()
        if (name in types["causal"] or _CAUSAL_MASK.search(model)) and not _READS_IS_DECODER.search(model)
    ]
    return {
        "transformers": transformers.__version__,
        "types": types,
        "causal": causal,
        "keys": {
            "": " ".join(sorted(common_keys)),
            **{name: " ".join(sorted(type_keys - common_keys)) for name, type_keys in keys.items()},
        },
    }


def _find_keys(model_type: str) -> frozenset[str]:
    """Return the keys of config.json that the classes of a type declare or read.

    Functions that create masks read `is_causal`, except the one for chunks.
    """
    config_class = transformers.CONFIG_MAPPING[model_type]
    configuration, model = _get_sources(model_type)
    keys = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    keys |= _find_words(_IN_CONFIGURATION, configuration) | _find_words(_IN_MODEL, model)
    if "rope_parameters" in keys:
        keys |= {"rope_theta", "rope_scaling"}
    if '"partial_rotary_factor"' in configuration + model:
        keys.add("partial_rotary_factor")
    keys -= {"is_causal", *_IGNORED_KEYS.get(model_type, ())}
    follows = {match[1] for match in _CAUSAL_MASK.finditer(model)}
    if follows and "chunked_" not in follows and not _READS_IS_DECODER.search(model):
        keys.add("is_causal")
    return frozenset(keys)


@cache
def _get_sources(model_type: str) -> tuple[str, str]:
    """Return the source code of the modules of a type's configuration and of its model."""
    config_class = transformers.CONFIG_MAPPING[model_type]
    name = config_class.__module__
    configuration = importlib.import_module(name)
    try:
        model = importlib.import_module(name.replace(".configuration_", ".modeling_"))
    except ImportError:  # the type uses classes of another one
        kind = transformers.MODEL_MAPPING[config_class]
        model = importlib.import_module((kind[0] if isinstance(kind, tuple) else kind).__module__)
    return inspect.getsource(configuration), inspect.getsource(model)


def _find_words(pattern: re.Pattern[str], source: str) -> set[str]:
    return {word for match in pattern.finditer(source) for word in match.groups() if word}


def _has_text_model(auto_class: Any, model_type: str) -> bool:
    """Return whether the type's model reads only texts; False if its dependencies are not installed."""
    try:
        config_class = transformers.CONFIG_MAPPING[model_type]
        match = auto_class._model_mapping[config_class]
        kind = match[0] if isinstance(match, tuple) else match
        return reads_texts(kind) and not config_class.sub_configs
    except (ImportError, KeyError, ValueError, AttributeError):
        return False


if __name__ == "__main__":
    PATH.write_text(json.dumps(list_model_types(), indent=1) + "\n", encoding="utf-8")
