"""Settings in config_sentence_transformers.json: prompts, similarity, truncation, and late interaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.checkpoints.configuration import SCORE_ACTIVATIONS, refuse_activation
from evaluation.checkpoints.description import SPARTA
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.limits import MOST_DIMENSION, MOST_POSITIONS, MOST_VOCABULARY
from evaluation.checkpoints.modules import WORDS
from evaluation.checkpoints.templates import TEMPLATES
from evaluation.checkpoints.transformer import EXPANSION
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    exactly,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    text,
    whole,
)

NAME = "config_sentence_transformers.json"
_MOST_PROMPTS, _MOST_PROMPT = 32, 2000
#: What `encode_query` and `encode_document` look for, in their order.
_ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}
_PROMPTS = Rule(
    lambda value: (
        isinstance(value, dict)
        and len(value) <= _MOST_PROMPTS
        and all(
            prompt is None or (isinstance(prompt, str) and len(prompt) <= _MOST_PROMPT)
            for prompt in value.values()
        )
    ),
    f"an object of at most {_MOST_PROMPTS} prompts of at most {_MOST_PROMPT:,} characters",
)
#: What PyLate keeps beside them.
LATE: Mapping[str, Rule] = {
    "query_prefix": text(64), "document_prefix": text(64), "query_length": whole(1, MOST_POSITIONS),
    "document_length": whole(1, MOST_POSITIONS), "attend_to_expansion_tokens": TRUTH, "do_query_expansion": TRUTH,
    "attend_to_mask_tokens": TRUTH, "query_expansion": EXPANSION, "skiplist_words": WORDS,
}  # fmt: skip
#: Keys of choices that no library's file can store, which `pack` and the rebuilding of checkpoints write: the pooling
#: of a plain encoder, and the prompt template of a re-ranking language model.
POOLING, TEMPLATE = "runboard_pooling", "runboard_template"
#: The setting that truncates vectors, to leading dimensions or to the terms of greatest weight, by the class.
CUTS = {"SentenceTransformer": "truncate_dim", "SparseEncoder": "max_active_dims"}
_RULES: Mapping[str, Rule] = {
    **LATE,
    "truncate_dim": whole(1, MOST_DIMENSION),
    "max_active_dims": whole(1, MOST_VOCABULARY),
    # The library computes these layers in float32, whatever the type of the rest of the model.
    "keep_in_fp32_modules": exactly([]),
    "prompts": _PROMPTS,
    "default_prompt_name": text(64),
    "similarity_fn_name": choice("cosine", "dot", "maxsim", "MaxSim"),
    "model_type": choice(
        "SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "ColBERT", "CrossEncoder"
    ),
    POOLING: choice(SPARTA),
    TEMPLATE: choice(*TEMPLATES),
}


@dataclass(frozen=True, slots=True)
class EncoderDefaults:
    """Settings of a checkpoint. `similarity` is "cosine", "dot" or empty; `prompts` has one for each side.

    `cuts` has the settings of CUTS that are in the file.
    """

    model_type: str = ""
    similarity: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    cuts: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, Any] = field(default_factory=dict)
    pooling: str = ""
    template: str = ""

    def written(self, model_type: str, **late: Any) -> dict[str, Any]:
        """Return the content of the rebuilt file. Only a cross-encoder adds its default prompt itself."""
        cut, scores = CUTS.get(model_type, ""), model_type == "CrossEncoder"
        return {
            "model_type": model_type,
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt if scores and self.default_prompt else None,
            "similarity_fn_name": (self.similarity if cut else "") or None,
            **({cut: self.cuts[cut]} if cut in self.cuts else {}),
            **({TEMPLATE: self.template} if self.template else {}),
            **late,
        }


def read_settings(source: ModelFiles, findings: Findings) -> EncoderDefaults:
    """The settings of a folder; the library's own where there are none."""
    if not source.has(NAME):
        return EncoderDefaults()
    found = read_object(source, NAME, findings) or {}
    shown = source.shown(NAME)
    refuse_forbidden_keys({key: value for key, value in found.items() if key != "prompts"}, findings, shown)
    refuse_activation(found.get("activation_fn"), findings, shown, "activation_fn", SCORE_ACTIVATIONS)
    values = read_values(found, _RULES, findings, shown)
    remark_on_unknown(found, {*_RULES, "__version__", "activation_fn"}, findings, shown)
    stated = values.get("similarity_fn_name", "")
    similarity = stated if stated in ("cosine", "dot") else ""
    late = {key: values.get(key) for key in LATE if key in found}  # null can be other than absent
    # PyLate did not say what its models are before they could be several; their similarity alone does.
    model_type = values.get("model_type", "ColBERT" if stated.casefold() == "maxsim" else "")
    prompts, default = _prompts(values), values.get("default_prompt_name", "")
    cuts = {key: values[key] for key in CUTS.values() if key in values}
    choices = (values.get(key, "") for key in (POOLING, TEMPLATE))
    default = default if default in prompts else ""
    return EncoderDefaults(model_type, similarity, prompts, default, cuts, late, *choices)


def _prompts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompts by name, with one for each side: its own, which may be empty, or else the default prompt."""
    given: Mapping[str, Any] = values.get("prompts", {})
    default = given.get(values.get("default_prompt_name", ""))
    prompts = {
        role: next((given[name] for name in names if given.get(name) is not None), default)
        for role, names in _ROLES.items()
    }
    return {name: prompt for name, prompt in {**given, **prompts}.items() if prompt}
