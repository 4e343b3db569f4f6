"""Settings files of sentence-transformers: prompts, similarity, truncation, lengths, and late interaction.

A chat template is a program, so the templates of models are never run. This module has the prompt templates of known
re-ranking language models, and recognizes a model's template by its phrases (`recognize_template`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from evaluation.checkpoints.configuration import SCORE_ACTIVATIONS, refuse_activation
from evaluation.checkpoints.description import SPARTA
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import MAX_DIMENSION, MAX_POSITIONS, MAX_VOCABULARY
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    constant,
    integer,
    object_with,
    read_values,
    refuse_forbidden_keys,
    refuse_unknown,
    remark_on_unknown,
    text,
    texts,
)


@dataclass(frozen=True, slots=True)
class Template:
    """Prompt of a re-ranking language model: `text`, which may be truncated, and `suffix`, which may not.

    They contain the placeholders {query}, {document}, {bos} for the token that begins a text, and {instruction} in the
    format of `instruction_format`; `instruction` is its default. The score is the logit of `positive` as the next
    token, minus that of `negative` if there is one. `source` is the URL of the model card or the authors' code.
    """

    source: str
    text: str
    suffix: str
    positive: str
    negative: str
    instruction: str = ""
    instruction_format: str = "{instruction}"

    def render(self, query: str, document: str, instruction: str = "", bos: str = "") -> str:
        """Return the text for a pair, without the suffix."""
        return self.text.format(query=query, document=document, instruction=self._introduce(instruction), bos=bos)

    def render_suffix(self, instruction: str = "") -> str:
        """Return the text that follows every pair."""
        return self.suffix.format(instruction=self._introduce(instruction))

    def _introduce(self, instruction: str) -> str:
        question = instruction or self.instruction
        return self.instruction_format.format(instruction=question) if question else ""

    def matches(self, program: str) -> bool:
        """Return whether a model's chat template contains all phrases of this prompt.

        Phrases are the default instruction and the lines, cut at placeholders.
        """
        text = program.replace("\\", "")
        phrases = [*re.split(r"\{\w+\}|\n", self.text + self.suffix), self.instruction]
        return all(phrase.strip() in text for phrase in phrases)


def recognize_template(program: str) -> str:
    """Return the name of the template with phrases that a chat template contains, or an empty string."""
    return next((name for name, template in TEMPLATES.items() if template.matches(program)), "")


#: Templates by name.
TEMPLATES: Mapping[str, Template] = {
    name: Template(**template)
    for name, template in json.loads(Path(__file__).with_name("reranker_templates.json").read_text("utf-8")).items()
}


NAME = "config_sentence_transformers.json"
TRANSFORMER_NAME = "sentence_bert_config.json"
#: Names of that file in all releases of sentence-transformers; the first existing one is read.
_TRANSFORMER_NAMES = (TRANSFORMER_NAME, *(
    f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
))  # fmt: skip
#: Head of the model: none, a masked language model, labels per text or token, a causal language model, or an
#: encoder and decoder that generate text.
Head = Literal["base", "masked", "sequence", "token", "causal", "writer"]
#: The library's task for each head of the module Transformer, and the output names of model and module.
TASKS: Mapping[Head, tuple[str, str, str]] = {
    "base": ("feature-extraction", "last_hidden_state", "token_embeddings"),
    "masked": ("fill-mask", "logits", "token_embeddings"),
    "sequence": ("sequence-classification", "logits", "scores"),
    "causal": ("text-generation", "logits", "causal_logits"),
}
_MAX_PROMPTS, _MAX_PROMPT = 32, 2000
#: Prompt names that `encode_query` and `encode_document` look up, in order.
_ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}
_LENGTH = integer(1, MAX_POSITIONS)
WORDS = texts(2000, 64)
_EXPANSION = object_with(
    {"strategy": choice("fixed", "min"), "attend": TRUTH, "length": integer(1, 512), "token": text(64)},
    "a known way to lengthen queries",
)
_PROMPTS = Rule(
    lambda value: (
        isinstance(value, dict)
        and len(value) <= _MAX_PROMPTS
        and all(prompt is None or text(_MAX_PROMPT).accepts(prompt) for prompt in value.values())
    ),
    f"an object of at most {_MAX_PROMPTS} prompts of at most {_MAX_PROMPT:,} characters",
)
#: Settings of late interaction in PyLate's models.
LATE_SETTINGS: Mapping[str, Rule] = {
    "query_prefix": text(64), "document_prefix": text(64), "query_length": _LENGTH, "document_length": _LENGTH,
    "attend_to_expansion_tokens": TRUTH, "do_query_expansion": TRUTH, "attend_to_mask_tokens": TRUTH,
    "query_expansion": _EXPANSION, "skiplist_words": WORDS,
}  # fmt: skip
#: Keys for choices that files of libraries cannot store, written by `pack` and by the rebuilding of checkpoints:
#: the pooling of a plain encoder, and the prompt template of a re-ranking language model.
POOLING, TEMPLATE = "runboard_pooling", "runboard_template"
#: Setting that truncates vectors by class: to leading dimensions, or to the terms with the largest weights.
CUTS = {"SentenceTransformer": "truncate_dim", "SparseEncoder": "max_active_dims"}
_RULES: Mapping[str, Rule] = {
    **LATE_SETTINGS,
    "truncate_dim": integer(1, MAX_DIMENSION),
    "max_active_dims": integer(1, MAX_VOCABULARY),
    # The library computes these layers in float32, regardless of the type of the rest of the model.
    "keep_in_fp32_modules": constant([]),
    "prompts": _PROMPTS,
    "default_prompt_name": text(64),
    "similarity_fn_name": choice("cosine", "dot", "maxsim", "MaxSim"),
    "model_type": choice("SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "ColBERT", "CrossEncoder"),
    POOLING: choice(SPARTA),
    TEMPLATE: choice(*TEMPLATES),
}
#: Settings of the module Transformer that treat queries and documents differently.
LATE_LENGTHS = {"query_length": _LENGTH, "document_length": _LENGTH, "query_expansion": _EXPANSION}
_TRANSFORMER_RULES = {"max_seq_length": _LENGTH, "do_lower_case": TRUTH, **LATE_LENGTHS}


@dataclass(frozen=True, slots=True)
class EncoderDefaults:
    """Settings of a checkpoint.

    `similarity` is "cosine", "dot", or empty; `prompts` has one for each side; `cuts` contains the file's settings of
    CUTS.
    """

    model_type: str = ""
    similarity: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    cuts: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, Any] = field(default_factory=dict)
    pooling: str = ""
    template: str = ""

    def to_json(self, model_type: str, **late: Any) -> dict[str, Any]:
        """Return config_sentence_transformers.json of a rebuilt model of this class, with the further settings `late`.

        The similarity and the truncation are included only for classes in CUTS, and the default prompt only for a
        cross-encoder, because engines apply the prompts of other models.
        """
        truncation_key, scores = CUTS.get(model_type, ""), model_type == "CrossEncoder"
        return {
            "model_type": model_type,
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt if scores and self.default_prompt else None,
            "similarity_fn_name": (self.similarity if truncation_key else "") or None,
            **({truncation_key: self.cuts[truncation_key]} if truncation_key in self.cuts else {}),
            **({TEMPLATE: self.template} if self.template else {}),
            **late,
        }


def read_settings(source: ModelFiles) -> EncoderDefaults:
    """Return the settings in a folder's config_sentence_transformers.json, or the library's defaults without this file.

    Forbidden keys and unacceptable values are added to the findings as errors, and unknown keys as a remark.
    """
    content, findings = source.read_settings(NAME), source.at(NAME)
    refuse_forbidden_keys({key: value for key, value in content.items() if key != "prompts"}, findings)
    refuse_activation(content.get("activation_fn"), findings, "activation_fn", SCORE_ACTIVATIONS)
    values = read_values(content, _RULES, findings)
    remark_on_unknown(content, {*_RULES, "__version__", "activation_fn"}, findings)
    similarity, default = values.get("similarity_fn_name", ""), values.get("default_prompt_name", "")
    stated_prompts: Mapping[str, Any] = values.get("prompts", {})
    # Each side has its own prompt, which may be empty, or else the default one.
    sides = {
        role: next(
            (stated_prompts[name] for name in names if stated_prompts.get(name) is not None),
            stated_prompts.get(default),
        )
        for role, names in _ROLES.items()
    }
    prompts = {name: prompt for name, prompt in {**stated_prompts, **sides}.items() if prompt}
    return EncoderDefaults(
        # Early PyLate had a single class and did not name it; its similarity identifies it.
        values.get("model_type", "ColBERT" if similarity.casefold() == "maxsim" else ""),
        similarity if similarity in ("cosine", "dot") else "",
        prompts,
        default if default in prompts else "",
        {key: values[key] for key in CUTS.values() if key in values},
        {key: values.get(key) for key in LATE_SETTINGS if key in content},  # null may differ from an absent key.
        values.get(POOLING, ""),
        values.get(TEMPLATE, ""),
    )


def read_transformer_settings(source: ModelFiles, head: Head) -> dict[str, Any]:
    """Return the accepted settings in a model's sentence_bert_config.json, empty without this file.

    Unknown keys, and values that do not suit a text model with this head, are added to the findings as errors.
    """
    name = next(filter(source.has, _TRANSFORMER_NAMES), TRANSFORMER_NAME)
    content, findings = source.read_settings(name), source.at(name)
    non_empty = {key: value for key, value in content.items() if value != {}}
    text_rules = _text_rules(head)
    refuse_forbidden_keys(non_empty, findings)
    # `unpad_inputs` concerns attention without padding, which is not used here.
    refuse_unknown(non_empty, {*_TRANSFORMER_RULES, *text_rules, "unpad_inputs"}, findings)
    read_values(non_empty, text_rules, findings)
    return read_values(content, _TRANSFORMER_RULES, findings)


def _text_rules(head: Head) -> dict[str, Rule]:
    """Return rules that accept only the standard values of a text model with this head.

    A causal language model may have messages, which its chat template builds from texts: if the template is known,
    `TEMPLATES` renders the same text.
    """
    if head not in TASKS:
        return {}
    task, output, name = TASKS[head]
    templates = head == "causal"

    def is_plain(value: Any) -> bool:
        text = value.get("text") if isinstance(value, dict) else None
        is_forward = isinstance(text, dict) and (text.get("method"), text.get("method_output_name"))
        return is_forward == ("forward", output) and (templates or "message" not in value)

    return {
        "transformer_task": constant(task),
        "module_output_name": constant(name),
        "modality_config": Rule(is_plain, f"texts alone, through forward and its {output}"),
        "processing_kwargs": Rule(
            lambda value: templates and isinstance(value, dict) and set(value) <= {"chat_template"},
            "an empty object",
        ),
    }
