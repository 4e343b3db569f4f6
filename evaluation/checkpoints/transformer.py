"""One model of transformers: configuration, weights and tokenizer of a folder, taken together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evaluation.checkpoints import configuration, tokenizer, tokenizer_settings, weights
from evaluation.checkpoints.configuration import Configuration, read_configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.limits import MOST_LABELS, MOST_POSITIONS
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.tokenizer import Tokenizer, read_tokenizer
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    exactly,
    read_values,
    refuse_forbidden_keys,
    refuse_unknown,
    text,
    whole,
)

SETTINGS = "sentence_bert_config.json"
#: Names of the file, also in earlier releases of sentence-transformers; the first one that exists is read.
_SETTINGS_NAMES = (SETTINGS, *(
    f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
))  # fmt: skip
#: What stands on top of the model: nothing, a masked language model, labels per text or token, a causal language
#: model, an encoder and decoder that write.
Head = Literal["base", "masked", "sequence", "token", "causal", "writer"]
#: What sentence-transformers calls the heads that its module Transformer may have.
TASKS: dict[Head, str] = {
    "base": "feature-extraction",
    "masked": "fill-mask",
    "sequence": "sequence-classification",
    "causal": "text-generation",
}
#: Output names of these heads, of the model and of its Transformer module.
_OUTPUTS: dict[Head, tuple[str, str]] = {
    "base": ("last_hidden_state", "token_embeddings"),
    "masked": ("logits", "token_embeddings"),
    "sequence": ("logits", "scores"),
    "causal": ("logits", "causal_logits"),
}
#: Up to how many tokens a model without an end of its own reads.
_RELATIVE_LENGTH = 512
_EXPANSION_KEYS = {
    "strategy": choice("fixed", "min"), "attend": TRUTH, "length": whole(1, 512), "token": text(64)
}  # fmt: skip
#: How a late-interaction model lengthens queries.
EXPANSION = Rule(
    lambda value: (
        isinstance(value, dict)
        and set(value) <= set(_EXPANSION_KEYS)
        and all(inner is None or _EXPANSION_KEYS[key].accepts(inner) for key, inner in value.items())
    ),
    "a known way to lengthen queries",
)
_LENGTH = whole(1, MOST_POSITIONS)
_RULES = {
    "max_seq_length": _LENGTH,
    "do_lower_case": TRUTH,
    "query_length": _LENGTH,
    "document_length": _LENGTH,
    "query_expansion": EXPANSION,
}
#: Settings of attention without padding, which is not used here.
_UNREMARKED = ("unpad_inputs",)
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
    def hidden(self) -> int | None:
        """Dimensions of a token's output, where config.json says."""
        return self.configuration.hidden

    def refuse_late_settings(self, source: ModelFiles, findings: Findings) -> None:
        """Refuse settings of sentence_bert_config.json that treat queries and documents differently."""
        for key in self.settings:
            message = "models of this kind treat queries and documents alike here"
            findings.refuse("value", source.shown(SETTINGS), message, key)

    def plain(self) -> ModelPart:
        """The files that transformers loads."""
        labels = self.configuration.labels if self.head in ("sequence", "token") else 0
        json = {
            configuration.NAME: self.configuration.written(labels),
            tokenizer.NAME: self.tokenizer.content,
            tokenizer_settings.NAME: self.tokenizer.written_settings(
                self.maximum_length, self.configuration.token_types
            ),
        }
        return ModelPart(json, {weights.NAME: self.tensors})

    def module(self) -> ModelPart:
        """The files that sentence-transformers loads as its module Transformer."""
        own = {"transformer_task": TASKS[self.head], "max_seq_length": self.maximum_length}
        lower = {"do_lower_case": True} if self.lower_case else {}
        return self.plain() | ModelPart({SETTINGS: {**own, **lower, **self.settings}})


def read_transformer(
    source: ModelFiles, head: Head, findings: Findings, beside: tuple[str, ...] = ()
) -> Transformer | None:
    """The model in a folder with this head, or None where it is refused; `beside` are tensors of somebody else's."""
    settings = read_settings(source, head, findings)
    tensors = weights.read_weights(source, findings)
    found = read_configuration(source, tensors, findings)
    if found is not None and head in ("sequence", "token"):
        most = MOST_LABELS if head == "sequence" else 1
        if not 1 <= found.labels <= most:
            what = f"the model has {found.labels} labels; at most {most}"
            findings.refuse("labels", source.shown(configuration.NAME), what, "id2label")
    words = read_tokenizer(source, found.vocabulary if found else None, findings)
    if found is None or tensors is None or words is None:
        return None
    if words.settings.get("pad_token") is None:
        what = "it names no pad_token, with which texts are made equally long"
        findings.refuse("tokenizer_value", source.shown(tokenizer_settings.NAME), what, "pad_token")
    return Transformer(
        found,
        head,
        {name: tensor for name, tensor in tensors.items() if name not in beside},
        words,
        _maximum_length(found, words, settings),
        bool(settings.get("do_lower_case")),
        {key: settings[key] for key in _KEPT if key in settings},
    )


def read_settings(source: ModelFiles, head: Head, findings: Findings) -> dict[str, Any]:
    """Return the settings in sentence_bert_config.json of a model with this head, empty without such a file."""
    name = next(filter(source.has, _SETTINGS_NAMES), "")
    if not name:
        return {}
    found = read_object(source, name, findings) or {}
    told = {key: value for key, value in found.items() if value != {}}
    shown = source.shown(name)
    refuse_forbidden_keys(told, findings, shown)
    text_alone = _text_rules(head)
    refuse_unknown(told, {*_RULES, *text_alone, *_UNREMARKED}, findings, shown)
    read_values(told, text_alone, findings, shown)
    return read_values(found, _RULES, findings, shown)


def _text_rules(head: Head) -> dict[str, Rule]:
    """Return rules for settings that allow only the standard values of a text model with this head.

    A causal language model may have messages, which its chat template makes from texts: if the template is known,
    `checkpoints.templates` writes the same.
    """
    if head not in _OUTPUTS:
        return {}
    (output, name), templates = _OUTPUTS[head], head == "causal"

    def is_plain(value: Any) -> bool:
        text = value.get("text") if isinstance(value, dict) else None
        forward = isinstance(text, dict) and (text.get("method"), text.get("method_output_name"))
        return forward == ("forward", output) and (templates or "message" not in value)

    return {
        "transformer_task": exactly(TASKS[head]),
        "module_output_name": exactly(name),
        "modality_config": Rule(is_plain, f"texts alone, through forward and its {output}"),
        "processing_kwargs": Rule(
            lambda value: templates and isinstance(value, dict) and set(value) <= {"chat_template"},
            "an empty object",
        ),
    }


def _maximum_length(found: Configuration, words: Tokenizer, settings: dict[str, Any]) -> int:
    """How many tokens the model reads: what it was told, but never more than it has positions for."""
    own = settings.get("max_seq_length") or words.maximum_length
    positions = found.positions
    if positions is None:
        return own or _RELATIVE_LENGTH
    return max(1, min(own or positions, positions))
