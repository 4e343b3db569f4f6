"""The types of models of texts that transformers has, by what of them a kind of checkpoint needs.

`python -m evaluation.engines.neural.model_types` writes `evaluation/checkpoints/model_types.json`, which pages read:
making the list imports some hundred modules of the library, and a web process has none of it.
"""

from __future__ import annotations

import json
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from evaluation.checkpoints.library import PATH, USES


def list_model_types() -> dict[str, Any]:
    """The library's version, and for each of USES the types that have a class which reads texts alone."""
    return {
        "transformers": transformers.__version__,
        "types": {use: _types_of(getattr(transformers, name)) for use, name in USES.items()},
    }


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
