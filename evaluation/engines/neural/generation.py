"""Sequence-to-sequence models at work: queries sampled for documents, and expansions written for queries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.modeling_outputs import BaseModelOutput

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import Progress, ignore
from evaluation.engines.neural.batching import Indices, OutputCheck, input_keys, run_in_batches, tokenise
from evaluation.engines.neural.loading import load_transformer, model_failures, positions, use_dtype

#: Texts that are written at the same time. Each holds the attention over its whole input in memory.
CPU_ROWS, CUDA_ROWS = 40, 640


class TextWriter:
    """A sequence-to-sequence model, loaded. Raises ModelFailure where it cannot be."""

    def __init__(self, part: Path, device: str, dtype: str) -> None:
        self._device = device
        self._rows = CUDA_ROWS if device.startswith("cuda") else CPU_ROWS
        self._model, self._tokenizer = load_transformer(part, transformers.AutoModelForSeq2SeqLM, device)
        use_dtype(self._model, dtype, device)
        config = self._model.config
        start = config.decoder_start_token_id
        if start is None:
            raise ModelFailure("not_loadable", "config.json does not say decoder_start_token_id")
        # ours alone: a checkpoint's own settings could make it write something else, or without an end
        with model_failures():
            self._model.generation_config = transformers.GenerationConfig(
                decoder_start_token_id=start,
                bos_token_id=getattr(config, "bos_token_id", None),
                eos_token_id=config.eos_token_id,
                forced_eos_token_id=getattr(config, "forced_eos_token_id", None),
                pad_token_id=0 if config.pad_token_id is None else config.pad_token_id,
            )
        self._check = OutputCheck()

    def sample(
        self,
        texts: Sequence[str],
        count: int,
        *,
        top_k: int,
        maximum_length: int,
        new_tokens: int,
        seed: int,
        progress: Progress = ignore,
    ) -> list[list[str]]:
        """`count` texts written for each text, every token drawn from the `top_k` likeliest by their probabilities.

        The draws of a text follow from `seed` and the text itself, so that it does not matter which others it is
        written beside. At most `maximum_length` tokens of a text are read.
        """

        def write(
            features: dict[str, torch.Tensor], memory: torch.Tensor, indices: Indices
        ) -> list[list[str]]:
            noise = np.stack([_noise(texts[index], seed, count, new_tokens, top_k) for index in indices])
            draws = torch.from_numpy(noise.reshape(-1, new_tokens, top_k)).to(self._device)
            rows = torch.arange(len(indices), device=self._device).repeat_interleave(count)
            written: list[str] = []
            for start in range(0, len(rows), self._rows):
                some = rows[start : start + self._rows]
                drawing = _Drawing(draws[start : start + self._rows])
                written += self._write(features, memory, some, new_tokens, 1, [drawing])
            return [written[first : first + count] for first in range(0, len(written), count)]

        texts_at_once = max(self._rows // count, 1)
        return self._each(texts, maximum_length, texts_at_once, write, progress)

    def expand(self, texts: Sequence[str], *, beams: int, maximum_length: int, new_tokens: int) -> list[str]:
        """What the model finds likeliest to follow each text: by beam search, greedily with one beam."""

        def write(
            features: dict[str, torch.Tensor], memory: torch.Tensor, indices: Indices
        ) -> list[list[str]]:
            rows = torch.arange(len(indices), device=self._device)
            return [[text] for text in self._write(features, memory, rows, new_tokens, beams, [_Finite()])]

        written = self._each(texts, maximum_length, max(self._rows // beams, 1), write)
        return [text for (text,) in written]

    def _each(
        self,
        texts: Sequence[str],
        maximum_length: int,
        texts_at_once: int,
        write: Callable[[dict[str, torch.Tensor], torch.Tensor, Indices], list[list[str]]],
        progress: Progress = ignore,
    ) -> list[list[str]]:
        """What `write` gives for each text, called with encoded batches."""
        with model_failures():
            tokens = tokenise(self._tokenizer, texts, positions(self._model, maximum_length))
        found: dict[int, list[str]] = {}

        def run(indices: Indices) -> list[list[str]]:
            features = tokens.padded(indices, self._device)
            memory = self._model.get_encoder()(**features).last_hidden_state
            mask = features["attention_mask"].unsqueeze(-1)
            means = (memory.float() * mask).sum(1) / mask.sum(1).clamp(min=1)
            self._check.see(input_keys(features), means)
            return write(features, memory, indices)

        def keep(indices: Indices, written: list[list[str]]) -> None:
            found.update(zip(indices.tolist(), written, strict=True))

        run_in_batches(
            tokens.lengths, run, keep, most_texts=texts_at_once, device=self._device, progress=progress
        )
        self._check.finish()
        return [found[index] for index in range(len(texts))]

    def _write(
        self,
        features: dict[str, torch.Tensor],
        memory: torch.Tensor,
        rows: torch.Tensor,
        new_tokens: int,
        beams: int,
        processors: list[transformers.LogitsProcessor],
    ) -> list[str]:
        """Texts for these rows of the encoded batch; a row may be there several times."""
        output = self._model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=memory[rows]),
            attention_mask=features["attention_mask"][rows],
            max_new_tokens=new_tokens,
            num_beams=beams,
            do_sample=False,
            logits_processor=transformers.LogitsProcessorList(processors),
        )
        decoded: list[str] = self._tokenizer.batch_decode(output, skip_special_tokens=True)
        return [" ".join(text.split()) for text in decoded]


class _Finite(transformers.LogitsProcessor):  # type: ignore[misc]
    """Stops where a model gives no numbers."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if bool(torch.isnan(scores).any()):
            raise ModelFailure("not_finite_output", "the model gives probabilities that are no numbers")
        return scores


class _Drawing(_Finite):
    """Leaves the one token that is drawn: the greatest of the likeliest, each moved by its noise (rows × steps × k).

    With noise of Gumbel's distribution this draws by the tokens' probabilities (E. J. Gumbel, 1954).
    """

    def __init__(self, noise: torch.Tensor) -> None:
        self._noise = noise

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = super().__call__(input_ids, scores)
        step = input_ids.shape[1] - 1  # the decoder starts with one token
        noise = self._noise[:, step, : scores.shape[1]]
        likeliest = scores.float().topk(noise.shape[1], dim=1)
        drawn = (likeliest.values + noise).argmax(dim=1, keepdim=True)
        alone = torch.full_like(scores, -torch.inf)
        return alone.scatter_(1, likeliest.indices.gather(1, drawn), 0.0)


def _noise(text: str, seed: int, count: int, steps: int, top_k: int) -> NDArray[np.float32]:
    """Gumbel noise (count × steps × top_k) that follows from the seed and the text."""
    digest = hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=16).digest()
    random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))
    return random.gumbel(size=(count, steps, top_k)).astype(np.float32)
