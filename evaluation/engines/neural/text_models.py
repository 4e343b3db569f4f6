"""Models of `model_terms`, which weight the words of a text, generate texts, or augment queries.

DeepCT weights words. Sequence-to-sequence models generate queries for documents, and expansions for queries. The
model of learned query augmentation is an encoder with W (vocabulary × dimension) and u (dimension).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

from evaluation.core.problems import ModelFailure
from evaluation.engines.base import Floats, Numbers, Progress, Resources, ignore
from evaluation.engines.index.word_pieces import group_by_size
from evaluation.engines.neural.loading import (
    MAX_CHARACTERS,
    Indices,
    OutputCheck,
    Tokenised,
    collect_batches,
    input_keys,
    load_transformer,
    maximum_length,
    model_failures,
    positions,
    tokenise,
)


class _TextModel:
    """A model of transformers and its tokenizer. Raises ModelFailure."""

    def __init__(self, auto_class: Any, parameters: Mapping[str, Any], resources: Resources) -> None:
        self._device = resources.device
        self._model, self._tokenizer = load_transformer(resources, auto_class, parameters["compute_dtype"])
        self._check = OutputCheck()


class TermWeigher(_TextModel):
    """A token classifier with one label. Raises ModelFailure if it cannot be loaded or has more labels."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(transformers.AutoModelForTokenClassification, parameters, resources)
        labels = self._model.config.num_labels
        if labels != 1:
            raise ModelFailure("not_loadable", f"the model returns {labels} values for a token instead of one weight")
        self.maximum_length = maximum_length(self._model, self._tokenizer, parameters["maximum_length"])

    def weigh(self, texts: Sequence[str], progress: Progress = ignore) -> list[dict[str, float]]:
        """Return the weights of the lower-case words of each text, up to the model's maximum length.

        A word has the weight of its first piece, and the maximum weight of its occurrences, as in DeepCT's code.
        Raises ModelFailure.
        """
        weights: list[dict[str, float]] = []
        for group in group_by_size([text[:MAX_CHARACTERS] for text in texts], str):
            weights += self._weigh(group)
            progress(len(weights) / len(texts))
        self._check.finish()
        return weights

    def _weigh(self, texts: list[str]) -> list[dict[str, float]]:
        """Return the result of `weigh` for a group of texts that are tokenized together."""
        with model_failures():
            encodings = self._tokenizer(
                texts,
                truncation=True,
                max_length=self.maximum_length,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
        tokens = Tokenised.from_rows(encodings["input_ids"], self._tokenizer.pad_token_id or 0)

        def run(indices: Indices) -> Iterator[dict[str, float]]:
            """Return the word weights of the texts with these indices."""
            features = tokens.padded(indices, self._device)
            mask = features["attention_mask"]
            weights: torch.Tensor = self._model(**features).logits[:, :, 0].float() * mask
            self._check.check_batch(input_keys(features), weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True))
            return (
                _word_weights(texts[index], encodings, index, row)
                for index, row in zip(indices.tolist(), weights.cpu().numpy(), strict=True)
            )

        return collect_batches(tokens.lengths, run, device=self._device)


def _word_weights(text: str, encodings: Any, index: int, weights: Floats) -> dict[str, float]:
    """Return the weights of a text's lower-case words, given the weights of its pieces.

    A word has the weight of its first piece, and the maximum weight of its occurrences.
    """
    spans: dict[int, list[int]] = {}  # first piece, start, and end of each word
    for piece, (word, (start, end)) in enumerate(
        zip(encodings.word_ids(index), encodings["offset_mapping"][index], strict=True)
    ):
        if word is not None:
            spans.setdefault(word, [piece, start, end])[2] = end
    word_weights: dict[str, float] = {}
    for piece, start, end in spans.values():
        name = text[start:end].strip().lower()
        word_weights[name] = max(float(weights[piece]), word_weights.get(name, -np.inf))
    return word_weights


#: Number of texts that are generated together. Each requires memory for the attention over its whole input.
CPU_ROWS, CUDA_ROWS = 40, 640
#: Output for a text.
TextOutput = TypeVar("TextOutput")
#: Attention mask of a batch, and its encoder states.
_Batch = tuple[torch.Tensor, torch.Tensor]


class TextWriter(_TextModel):
    """A sequence-to-sequence model. Raises ModelFailure if it cannot be loaded."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(transformers.AutoModelForSeq2SeqLM, parameters, resources)
        self._rows = CUDA_ROWS if self._device.startswith("cuda") else CPU_ROWS
        self._parameters, self._new_tokens = parameters, parameters["generated_tokens"]
        config = self._model.config
        start = config.decoder_start_token_id
        if start is None:
            raise ModelFailure("not_loadable", "config.json has no decoder_start_token_id")
        # The checkpoint's own settings are ignored, since they could change the output or make it endless.
        with model_failures():
            self._model.generation_config = transformers.GenerationConfig(
                decoder_start_token_id=start,
                bos_token_id=getattr(config, "bos_token_id", None),
                eos_token_id=config.eos_token_id,
                forced_eos_token_id=getattr(config, "forced_eos_token_id", None),
                pad_token_id=0 if config.pad_token_id is None else config.pad_token_id,
            )

    def sample(self, texts: Sequence[str], progress: Progress = ignore) -> list[list[str]]:
        """Return the generated texts for each text, with tokens sampled from the most likely ones by probability.

        Samples depend only on the seed and the text, not on other texts in the batch.
        """
        count, top_k = self._parameters["queries_per_document"], self._parameters["top_k"]
        shape = (count, self._new_tokens, top_k)

        def write(batch: _Batch, indices: Indices) -> list[list[str]]:
            """Return the sampled texts for each text of an encoded batch."""
            noise = np.stack([self._generate_noise(texts[index], shape) for index in indices])
            draws = torch.from_numpy(noise.reshape(-1, *shape[1:])).to(self._device)
            rows = torch.arange(len(indices), device=self._device).repeat_interleave(count)
            generated_texts: list[str] = []
            for start in range(0, len(rows), self._rows):
                selection = slice(start, start + self._rows)
                generated_texts += self._write(batch, rows[selection], _Sampler(draws[selection]))
            return [generated_texts[first : first + count] for first in range(0, len(generated_texts), count)]

        return self._process(texts, max(self._rows // count, 1), write, progress)

    def _generate_noise(self, text: str, shape: tuple[int, int, int]) -> Floats:
        """Return Gumbel noise (texts × steps × likeliest tokens) that is determined by the seed and the text."""
        seeded = f"{self._parameters['seed']}\n{text}".encode()
        digest = hashlib.blake2b(seeded, digest_size=16).digest()
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))
        return random.gumbel(size=shape).astype(np.float32)

    def expand(self, texts: Sequence[str]) -> list[str]:
        """Return the most likely output of the model for each text, by beam search, or greedily with one beam."""
        beams: int = self._parameters["beams"]

        def write(batch: _Batch, indices: Indices) -> list[str]:
            return self._write(batch, torch.arange(len(indices), device=self._device), _FiniteCheck(), beams)

        return self._process(texts, max(self._rows // beams, 1), write)

    def _process(
        self,
        texts: Sequence[str],
        batch_size: int,
        write: Callable[[_Batch, Indices], list[TextOutput]],
        progress: Progress = ignore,
    ) -> list[TextOutput]:
        """Encode the texts in batches, pass each batch to `write`, and return its outputs in the order of the texts."""
        with model_failures():
            tokens = tokenise(self._tokenizer, texts, positions(self._model, self._parameters["maximum_length"]))

        def run(indices: Indices) -> list[TextOutput]:
            """Encode the texts with these indices, check their mean states, and return the outputs of `write`."""
            features = tokens.padded(indices, self._device)
            memory = self._model.get_encoder()(**features).last_hidden_state
            mask = features["attention_mask"].unsqueeze(-1)
            means = (memory.float() * mask).sum(1) / mask.sum(1).clamp(min=1)
            self._check.check_batch(input_keys(features), means)
            return write((features["attention_mask"], memory), indices)

        outputs = collect_batches(tokens.lengths, run, most_texts=batch_size, device=self._device, progress=progress)
        self._check.finish()
        return outputs

    def _write(
        self, batch: _Batch, rows: torch.Tensor, processor: transformers.LogitsProcessor, beams: int = 1
    ) -> list[str]:
        """Return generated texts for the given rows of an encoded batch, which may be repeated."""
        mask, memory = batch
        output = self._model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=memory[rows]),
            attention_mask=mask[rows],
            max_new_tokens=self._new_tokens,
            num_beams=beams,
            do_sample=False,
            logits_processor=transformers.LogitsProcessorList([processor]),
        )
        decoded: list[str] = self._tokenizer.batch_decode(output, skip_special_tokens=True)
        return [" ".join(text.split()) for text in decoded]


class _FiniteCheck(transformers.LogitsProcessor):  # type: ignore[misc]
    """Logits processor that raises ModelFailure if the model returns undefined probabilities."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if bool(torch.isnan(scores).any()):
            raise ModelFailure("not_finite_output", "the model returns undefined probabilities")
        return scores


class _Sampler(_FiniteCheck):
    """Selects a token by the maximum of likely tokens' scores plus noise (rows × steps × k).

    With Gumbel noise, this samples by the tokens' probabilities (E. J. Gumbel, 1954).
    """

    def __init__(self, noise: torch.Tensor) -> None:
        self._noise = noise

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = super().__call__(input_ids, scores)
        step = input_ids.shape[1] - 1  # the decoder starts with one token
        noise = self._noise[:, step, : scores.shape[1]]
        likeliest = scores.float().topk(noise.shape[1], dim=1)
        choices = (likeliest.values + noise).argmax(dim=1, keepdim=True)
        selection = torch.full_like(scores, -torch.inf)
        return selection.scatter_(1, likeliest.indices.gather(1, choices), 0.0)


FILE_NAME = "augmentation.safetensors"


@dataclass(frozen=True, slots=True)
class QueryWeights:
    """Output of the model for a query.

    `added` contains the piece ids with a positive value in a(q), `values` their values, and `token_weights` w(q) for
    each token.
    """

    added: Numbers
    values: Floats
    token_weights: Floats


class AugmentationModel(_TextModel):
    """a(q) = ReLU(W · enc(q)[CLS]) and w(q)_i = ReLU(uᵀ enc(q)_i). Raises ModelFailure if it cannot be loaded.

    `projection` is W, with one row for each piece, and `weighting` is u.
    """

    def __init__(self, parameters: Mapping[str, Any], resources: Resources, pieces: int) -> None:
        super().__init__(transformers.AutoModel, parameters, resources)
        self.encoder = self._model
        self.maximum_length = maximum_length(self.encoder, self._tokenizer, parameters["maximum_length"])
        self.padding_id = self._tokenizer.pad_token_id or 0
        dimension = self.encoder.config.hidden_size
        with model_failures():
            tensors = safetensors.torch.load_file(resources.first_part / FILE_NAME, self._device)
        if missing_names := {"W", "u"} - set(tensors):
            raise ModelFailure("missing_weights", f"{FILE_NAME} lacks {' and '.join(sorted(missing_names))}")
        self.projection, self.weighting = tensors["W"].float(), tensors["u"].float().reshape(-1)
        rows, columns = self.projection.shape if self.projection.ndim == 2 else (0, 0)
        if rows < pieces or columns != dimension or len(self.weighting) != dimension:
            raise ModelFailure(
                "not_loadable",
                f"W is {'×'.join(map(str, self.projection.shape))} and u has {len(self.weighting)} values, "
                f"for {pieces} word pieces and vectors of {dimension}",
            )
        self.projection = self.projection[:pieces]  # further rows are padding

    def encode(self, inputs: Sequence[Sequence[int]]) -> list[QueryWeights]:
        """Return the weights of queries, given as token ids including special ones. Raises ModelFailure."""
        texts = Tokenised.from_rows(inputs, self.padding_id)
        lengths = texts.lengths

        def run(indices: Indices) -> Iterator[QueryWeights]:
            """Return the weights of the queries with these indices. Raises ModelFailure if a weight is not finite."""
            features = texts.padded(indices, self._device)
            vectors = self.encoder(**features).last_hidden_state.float()
            self._check.check_batch(input_keys(features), vectors[:, 0])
            augmentation = torch.relu(vectors[:, 0] @ self.projection.T).cpu().numpy()
            weights = torch.relu(vectors @ self.weighting).cpu().numpy()
            if not (np.isfinite(augmentation).all() and np.isfinite(weights).all()):
                raise ModelFailure("not_finite_output", "the model returns infinite or undefined weights")
            return (
                QueryWeights(np.flatnonzero(terms), terms[terms > 0], tokens[:length].copy())
                for terms, tokens, length in zip(augmentation, weights, lengths[indices], strict=True)
            )

        results = collect_batches(lengths, run, device=self._device)
        self._check.finish()
        return results
