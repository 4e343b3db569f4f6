"""Scores of queries and documents read together: by a classifier, or by the next token of a language model."""

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
    longest_text,
    model_failures,
    positions,
    prepare,
    readable_part,
    run_in_batches,
    tokenise,
    use_dtype,
)
from evaluation.engines.prompts import SIDES, prompt_of


class PairScorer:
    """A model that scores pairs, loaded; scores are its logits. Raises ModelFailure and InvalidParameter.

    Of a classifier with two labels the score is the second's logit less the first's.
    """

    def __init__(self, resources: Resources, parameters: Mapping[str, Any]) -> None:
        self._device, self._batch_tokens = resources.device, parameters["batch_tokens"]
        described = CheckpointDescription.read(resources.model)
        writes = self._writes = described.kind == CheckpointKind.SEQ2SEQ
        if writes:
            self._model, self._tokenizer = load_transformer(
                resources, transformers.AutoModelForSeq2SeqLM, parameters["compute_dtype"]
            )
            self.maximum_length = positions(self._model, parameters["maximum_length"] or USUAL_LENGTH)
        else:
            prepare(resources.threads)
            identity = torch.nn.Identity()  # scores are left as the model gives them
            self._model = load_encoder(
                CrossEncoder, resources.first_part, self._device, activation_fn=identity
            )
            use_dtype(self._model, parameters["compute_dtype"], self._device)
            if self._model.num_labels > 2:
                what = f"the model gives {self._model.num_labels} values for a pair, and not one score or two"
                raise ModelFailure("not_loadable", what)
            self._tokenizer, own = self._model.tokenizer, self._model.max_seq_length
            self.maximum_length = longest_text(self._model, own, parameters["maximum_length"])
        asked = parameters["template"]
        name = (described.template or "monot5" * writes) if asked == AUTO else asked
        self._template = TEMPLATES[name] if name else None
        self._continues = not writes and isinstance(self._model[-1], LogitScore)
        if self._continues and self._template is None:
            raise InvalidParameter(
                "The model is a language model, and its chat template is none of those known here; say which of them "
                f"it was trained with: template = {', '.join(TEMPLATES)}."
            )
        self._answers = (
            self._find_answers(self._template) if self._template and (writes or asked != AUTO) else []
        )
        if self._continues and self._answers:  # what was asked for counts, and not what its files say
            self._model[-1].true_token_id, self._model[-1].false_token_id = (*self._answers, None)[:2]
        own = "" if writes else self._model.prompts.get(self._model.default_prompt_name or "", "")
        prompts = {**described.prompts, "query": own, "document": ""}  # as the library puts them
        self._prompts = {side: prompt_of(prompts, side, parameters[f"{side}_prompt"]) for side in SIDES}
        self._set_padding()
        self._check = OutputCheck()

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> Floats:
        """Return the score of each pair of queries[i] and documents[i]. Raises ModelFailure."""
        tokens = self._tokenise(
            *([readable_part(text, self.maximum_length) for text in texts] for texts in (queries, documents))
        )

        def run(indices: Indices) -> torch.Tensor:
            features: dict[str, Any] = tokens.padded(indices, self._device)
            keys = input_keys(features)
            outputs = self._next_token(features) if self._writes else self._outputs(features)
            self._check.see(keys, outputs)
            return outputs

        scores = np.empty(len(queries), np.float32)

        def keep(indices: Indices, batch: torch.Tensor) -> None:
            scores[indices] = batch.cpu().numpy()

        run_in_batches(tokens.lengths, run, keep, tokens=self._batch_tokens, device=self._device)
        self._check.finish()
        return scores

    def _tokenise(self, queries: list[str], documents: list[str]) -> Tokenised:
        instruction, before = self._prompts["query"], self._prompts["document"]
        template, words, length = self._template, self._tokenizer, self.maximum_length
        with model_failures():
            if template is None:
                asked, read = [instruction + text for text in queries], [before + text for text in documents]
                return tokenise(words, asked, length, pairs=read)
            suffix = template.render_suffix(instruction)
            texts = [
                template.render(query, before + document, instruction, words.bos_token or "") + suffix
                for query, document in zip(queries, documents, strict=True)
            ]
            kept = words(suffix, add_special_tokens=self._writes)[
                "input_ids"
            ]  # as a chat template is: all is in it
            return tokenise(words, texts, length, add_special_tokens=self._writes, kept=kept)

    def _outputs(self, features: dict[str, Any]) -> torch.Tensor:
        """Return what a classifier or LogitScore says of a batch."""
        if self._continues:
            features["logits_to_keep"] = 1
        scores: torch.Tensor = self._model(features)["scores"].float().reshape(len(features["input_ids"]), -1)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores[:, 0]

    def _next_token(self, features: dict[str, Any]) -> torch.Tensor:
        """Return what a model with a decoder would write first: the logit of one answer, less that of the other."""
        start = self._model.config.decoder_start_token_id
        begun = torch.full((len(features["input_ids"]), 1), start, device=self._device)
        logits = self._model(**features, decoder_input_ids=begun).logits[:, 0].float()
        positive, *negative = (logits[:, answer] for answer in self._answers)
        return positive - sum(negative)

    def _find_answers(self, template: Template) -> list[int]:
        """Return the numbers of the template's answers."""
        answers = [answer for answer in (template.positive, template.negative) if answer]
        numbers: list[int] = self._tokenizer.convert_tokens_to_ids(answers)
        if missing := [
            a for a, n in zip(answers, numbers, strict=True) if n in (None, self._tokenizer.unk_token_id)
        ]:
            raise ModelFailure("not_loadable", f"the model's tokenizer has no {' and no '.join(missing)}")
        return numbers

    def _set_padding(self) -> None:
        """Give model and tokenizer one padding token: a classifier on a decoder reads the last token before it."""
        words, config = self._tokenizer, (self._model if self._writes else self._model[0].model).config
        if words.pad_token_id is None:
            number = getattr(config, "pad_token_id", None)
            known = (words.unk_token, words.bos_token, words.eos_token)
            words.pad_token = (
                words.convert_ids_to_tokens(number) if number is not None else next(filter(None, known))
            )
        config.pad_token_id = words.pad_token_id
