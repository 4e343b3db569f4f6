"""Scoring of pairs of query and document, by a classifier or by the next token of a language model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import LogitScore

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.settings import TEMPLATES, Template
from evaluation.core.problems import ModelFailure
from evaluation.engines.base import AUTO, Floats, InvalidParameter, Resources
from evaluation.engines.neural.loading import (
    USUAL_LENGTH,
    Indices,
    OutputCheck,
    Tokenised,
    input_keys,
    load_encoder,
    load_transformer,
    model_failures,
    positions,
    prepare,
    readable_part,
    resolve_maximum_length,
    run_in_batches,
    tokenise,
    use_dtype,
)
from evaluation.engines.prompts import SIDES, select_prompt


class PairScorer:
    """A model that scores pairs by its logits. Raises ModelFailure and InvalidParameter.

    The score of a classifier with two labels is the difference between the second logit and the first.
    """

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        self._device, self._batch_tokens = resources.device, parameters["batch_tokens"]
        description = CheckpointDescription.read(resources.model)
        writes = self._writes = description.kind == CheckpointKind.SEQ2SEQ
        if writes:
            self._model, self._tokenizer = load_transformer(
                resources, transformers.AutoModelForSeq2SeqLM, parameters["compute_dtype"]
            )
            self.maximum_length = positions(self._model, parameters["maximum_length"] or USUAL_LENGTH)
        else:
            prepare(resources.threads)
            identity = torch.nn.Identity()  # scores are raw logits
            self._model = load_encoder(CrossEncoder, resources.first_part, self._device, activation_fn=identity)
            use_dtype(self._model, parameters["compute_dtype"], self._device)
            if self._model.num_labels > 2:
                message = f"the model returns {self._model.num_labels} values for a pair instead of one or two"
                raise ModelFailure("not_loadable", message)
            self._tokenizer, own_length = self._model.tokenizer, self._model.max_seq_length
            self.maximum_length = resolve_maximum_length(self._model, own_length, parameters["maximum_length"])
        template = parameters["template"]
        name = (description.template or "monot5" * writes) if template == AUTO else template
        self._template = TEMPLATES[name] if name else None
        self._continues = not writes and isinstance(self._model[-1], LogitScore)
        if self._continues and self._template is None:
            raise InvalidParameter(
                "The model is a language model with an unknown chat template. Set template to the one of its training: "
                f"{', '.join(TEMPLATES)}."
            )
        self._answers = self._find_answers(self._template) if self._template and (writes or template != AUTO) else []
        if self._continues and self._answers:  # the requested template overrides the files
            self._model[-1].true_token_id, self._model[-1].false_token_id = (*self._answers, None)[:2]
        default_prompt = "" if writes else self._model.prompts.get(self._model.default_prompt_name or "", "")
        prompts = {**description.prompts, "query": default_prompt, "document": ""}  # as in the library
        self._prompts = {side: select_prompt(prompts, side, parameters[f"{side}_prompt"]) for side in SIDES}
        self._set_padding()
        self._check = OutputCheck()

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> Floats:
        """Return the score of each pair of queries[i] and documents[i]. Raises ModelFailure."""
        tokens = self._tokenise(
            *([readable_part(text, self.maximum_length) for text in texts] for texts in (queries, documents))
        )

        def run(indices: Indices) -> torch.Tensor:
            """Return the scores of the pairs with these indices, after checking that they are finite."""
            features: dict[str, Any] = tokens.padded(indices, self._device)
            keys = input_keys(features)
            outputs = self._score_next_token(features) if self._writes else self._classify(features)
            self._check.check_batch(keys, outputs)
            return outputs

        scores = np.empty(len(queries), np.float32)

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            scores[indices] = batch.cpu().numpy()

        run_in_batches(tokens.lengths, run, keep, tokens=self._batch_tokens, device=self._device)
        self._check.finish()
        return scores

    def _tokenise(self, queries: list[str], documents: list[str]) -> Tokenised:
        """Return the tokens of each pair, as two texts for a classifier, or as one text in the model's template."""
        instruction, document_prompt = self._prompts["query"], self._prompts["document"]
        template, words, length = self._template, self._tokenizer, self.maximum_length
        with model_failures():
            if template is None:
                pairs = [document_prompt + text for text in documents]
                return tokenise(words, [instruction + text for text in queries], length, pairs=pairs)
            suffix = template.render_suffix(instruction)
            texts = [
                template.render(query, document_prompt + document, instruction, words.bos_token or "") + suffix
                for query, document in zip(queries, documents, strict=True)
            ]
            # Chat templates contain all special tokens.
            suffix_ids = words(suffix, add_special_tokens=self._writes)["input_ids"]
            return tokenise(words, texts, length, add_special_tokens=self._writes, suffix=suffix_ids)

    def _classify(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the scores of a classifier or of LogitScore for a batch."""
        if self._continues:
            features["logits_to_keep"] = 1
        scores: torch.Tensor = self._model(features)["scores"].float().reshape(len(features["input_ids"]), -1)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores[:, 0]

    def _score_next_token(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the logit of the positive answer as first generated token, minus that of the negative one, if any."""
        start = self._model.config.decoder_start_token_id
        decoder_ids = torch.full((len(features["input_ids"]), 1), start, device=self._device)
        logits = self._model(**features, decoder_input_ids=decoder_ids).logits[:, 0].float()
        positive, *negative = (logits[:, answer] for answer in self._answers)
        return positive - sum(negative)

    def _find_answers(self, template: Template) -> list[int]:
        """Return the token ids of the template's answers. Raises ModelFailure if the tokenizer lacks one."""
        answers = [answer for answer in (template.positive, template.negative) if answer]
        numbers: list[int] = self._tokenizer.convert_tokens_to_ids(answers)
        if missing_answers := [
            a for a, number in zip(answers, numbers, strict=True) if number in (None, self._tokenizer.unk_token_id)
        ]:
            tokens = " and ".join(missing_answers)
            raise ModelFailure("not_loadable", f"the model's tokenizer lacks {tokens}")
        return numbers

    def _set_padding(self) -> None:
        """Set the same padding token for model and tokenizer, choosing one if the tokenizer has none.

        Classifiers on decoders read the last token before padding.
        """
        words, config = self._tokenizer, (self._model if self._writes else self._model[0].model).config
        if words.pad_token_id is None:
            number = getattr(config, "pad_token_id", None)
            tokens = (words.unk_token, words.bos_token, words.eos_token)
            words.pad_token = words.convert_ids_to_tokens(number) if number is not None else next(filter(None, tokens))
        config.pad_token_id = words.pad_token_id
