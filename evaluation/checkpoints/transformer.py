"""One model of transformers: the configuration, weights, and tokenizer of a folder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import configuration, settings, tokenizer, tokenizer_settings, weights
from evaluation.checkpoints.configuration import Configuration, read_configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Refused, attempt
from evaluation.checkpoints.limits import MOST_LABELS
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.settings import TASKS, Head, read_transformer_settings
from evaluation.checkpoints.tokenizer import Tokenizer, read_tokenizer

#: Tokens that a model without a limit of its own reads.
_RELATIVE_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model of transformers. `settings` are those of sentence_bert_config.json."""

    configuration: Configuration
    head: Head
    tensors: weights.Tensors
    tokenizer: Tokenizer
    settings: dict[str, Any]

    @property
    def hidden(self) -> int | None:
        """Dimensions of a token's output, if config.json has them."""
        return self.configuration.hidden

    @property
    def maximum_length(self) -> int:
        """Tokens that the model reads: as many as its settings allow, but no more than it has positions for."""
        own = self.settings.get("max_seq_length") or self.tokenizer.maximum_length
        positions = self.configuration.positions
        if positions is None:
            return own or _RELATIVE_LENGTH
        return max(1, min(own or positions, positions))

    @property
    def late_settings(self) -> dict[str, Any]:
        """Settings by which queries and documents are treated differently."""
        return {key: self.settings[key] for key in settings.LATE_LENGTHS if key in self.settings}

    def plain(self) -> ModelPart:
        """Return the files that transformers loads."""
        labels = self.configuration.labels if self.head in ("sequence", "token") else 0
        written = self.tokenizer.written_settings(self.maximum_length, self.configuration.token_types)
        json = {
            configuration.NAME: self.configuration.written(labels),
            tokenizer.NAME: self.tokenizer.content,
            tokenizer_settings.NAME: written,
        }
        return ModelPart(json, {weights.NAME: self.tensors})

    def module(self) -> ModelPart:
        """Return the files that sentence-transformers loads as its module Transformer."""
        own = {"transformer_task": TASKS[self.head][0], "max_seq_length": self.maximum_length}
        lower = {"do_lower_case": True} if self.settings.get("do_lower_case") else {}
        return self.plain() | ModelPart({settings.TRANSFORMER_NAME: {**own, **lower, **self.late_settings}})


def read_transformer(source: ModelFiles, head: Head, beside: Collection[str] = ()) -> Transformer:
    """Return the model of a folder with this head, without the tensors in `beside`. Raises Refused."""
    own = read_transformer_settings(source, head)
    tensors = attempt(lambda: weights.read_weights(source))
    config = attempt(lambda: read_configuration(source, tensors))
    if config is not None and head in ("sequence", "token"):
        most = MOST_LABELS if head == "sequence" else 1
        if not 1 <= config.labels <= most:
            message = f"the model has {config.labels} labels; at most {most}"
            source.at(configuration.NAME).refuse("labels", message, "id2label")
    words = read_tokenizer(source, config.vocabulary if config else None)
    if config is None or tensors is None:
        raise Refused
    if words.settings.get("pad_token") is None:
        message = "it names no pad_token, with which texts are made equally long"
        source.at(tokenizer_settings.NAME).refuse("tokenizer_value", message, "pad_token")
    used = {name: tensor for name, tensor in tensors.items() if name not in beside}
    return Transformer(config, head, used, words, own)
