"""One model of transformers: configuration, weights and tokenizer of a folder, taken together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import configuration, tokenizer, weights
from evaluation.checkpoints.architectures import Head
from evaluation.checkpoints.configuration import Configuration, read_configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.tokenizer import Tokenizer, read_tokenizer
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    read_values,
    refuse_forbidden_keys,
    refuse_unknown,
    text,
    whole,
)

SETTINGS = "sentence_bert_config.json"
#: Up to how many tokens a model without an end of its own reads.
_RELATIVE_LENGTH = 512
_TASKS: dict[Head, str] = {
    "base": "feature-extraction",
    "masked": "fill-mask",
    "sequence": "sequence-classification",
}
_OUTPUTS = ("last_hidden_state", "logits")
_MODALITIES = [{"text": {"method": "forward", "method_output_name": output}} for output in _OUTPUTS]
_EXPANSION = {
    "strategy": choice("fixed", "min"), "attend": TRUTH, "length": whole(1, 512), "token": text(64)
}  # fmt: skip
_RULES = {
    "max_seq_length": whole(1, 32_768),
    "do_lower_case": TRUTH,
    "transformer_task": choice(*_TASKS.values()),
    "module_output_name": choice("token_embeddings", "scores"),
    "modality_config": Rule(lambda value: value in _MODALITIES, "what the library writes for texts alone"),
    "unpad_inputs": TRUTH,
    "processing_kwargs": Rule(lambda value: value == {}, "empty"),
    "query_length": whole(1, 32_768),
    "document_length": whole(1, 32_768),
    "query_expansion": Rule(lambda value: is_expansion(value), "a known way to lengthen queries"),
}
_KEPT = ("query_length", "document_length", "query_expansion")


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model as it was understood. `settings` holds what late interaction adds."""

    configuration: Configuration
    head: Head
    tensors: weights.Tensors
    tokenizer: Tokenizer
    maximum_length: int
    lower_case: bool
    settings: dict[str, Any]

    @property
    def hidden(self) -> int:
        """Dimensions of a token's output."""
        return self.configuration.hidden

    def plain(self) -> ModelPart:
        """The files that transformers loads."""
        settings = self.tokenizer.settings(self.maximum_length, self.configuration.architecture.token_types)
        json = {
            configuration.NAME: self.configuration.written(self.head),
            tokenizer.NAME: self.tokenizer.content,
            tokenizer.SETTINGS: settings,
        }
        return ModelPart(json, {weights.NAME: self.tensors})

    def module(self, **settings: Any) -> ModelPart:
        """The files that sentence-transformers loads as its module Transformer."""
        own = {"transformer_task": _TASKS[self.head], "max_seq_length": self.maximum_length}
        lower = {"do_lower_case": True} if self.lower_case else {}
        return self.plain() | ModelPart({SETTINGS: {**own, **lower, **self.settings, **settings}})


def is_expansion(value: object) -> bool:
    """Whether this is how a late-interaction model lengthens queries."""
    return (
        isinstance(value, dict)
        and set(value) <= set(_EXPANSION)
        and all(inner is None or _EXPANSION[key].accepts(inner) for key, inner in value.items())
    )


def read_transformer(source: ModelFiles, head: Head, findings: Findings) -> Transformer | None:
    """The model in a folder with this head, or None where it is refused."""
    found = read_configuration(source, findings)
    settings = read_settings(source, findings)
    tensors = weights.read_weights(source, findings)
    if found is None:
        return None
    if head not in found.architecture.heads:
        what = f"a {found.model_type} model is not used for {_TASKS.get(head, head)} here"
        findings.refuse("wrong_kind", source.shown(configuration.NAME), what, "model_type")
        return None
    if head in ("sequence", "token") and found.labels != 1:
        findings.refuse(
            "labels", source.shown(configuration.NAME), f"the model has {found.labels} labels", "id2label"
        )
    rows = found.sizes["vocab_size"]
    words = read_tokenizer(source, rows, findings)
    if tensors is None:
        return None
    taken = weights.match(tensors, found, head, source, findings)
    weights.refuse_not_finite(taken, source, findings)
    if words is None:
        return None
    if "pad" not in {role.removesuffix("_token") for role in words.special}:
        what = "it names no pad_token, with which texts are made equally long"
        findings.refuse("tokenizer_value", source.shown(tokenizer.SETTINGS), what, "pad_token")
    kept = {key: settings[key] for key in _KEPT if key in settings}
    return Transformer(
        found,
        head,
        taken,
        words,
        _maximum_length(found, words, settings),
        bool(settings.get("do_lower_case")),
        kept,
    )


def read_settings(source: ModelFiles, findings: Findings) -> dict[str, Any]:
    """What sentence_bert_config.json says; empty where there is none."""
    if not source.has(SETTINGS):
        return {}
    found = read_object(source, SETTINGS, findings) or {}
    refuse_forbidden_keys(found, findings, source.shown(SETTINGS))
    refuse_unknown(found, _RULES, findings, source.shown(SETTINGS))
    return read_values(found, _RULES, findings, source.shown(SETTINGS))


def _maximum_length(found: Configuration, words: Tokenizer, settings: dict[str, Any]) -> int:
    """How many tokens the model reads: what it was told, but never more than it has positions for."""
    own = settings.get("max_seq_length") or words.maximum_length
    positions = found.positions
    if positions is None:
        return own or _RELATIVE_LENGTH
    return max(1, min(own or positions, positions))
