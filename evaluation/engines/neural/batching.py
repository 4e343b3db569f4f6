"""Feeding a model in batches: every text tokenised once, the longest first, as many at a time as memory allows.

Texts of like length stand together, so that little is padded; since the longest come first, a batch that is too large
for the memory shows at once, and is halved. What comes out is independent of the order the texts came in only as far
as the arithmetic of a model is: the same texts, batch size and number of threads give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure

Output = TypeVar("Output")
Indices = NDArray[np.intp]

#: How many texts go through a model at once where nobody says.
CPU_BATCH = 32
CUDA_BATCH = 1024
#: Nothing behind so many characters of a text is read: 512 tokens are always within, and memory stays bounded.
MOST_CHARACTERS = 1_000_000
#: Tokenised at a time: what the tokenizer returns is a hundred times larger than the numbers that are kept.
_TEXTS_AT_ONCE = 1_000
_CHARACTERS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Texts, or pairs of texts, as token numbers.

    Text i has the tokens `ids[offsets[i]:offsets[i + 1]]`, special ones included. `types` tells the second text of a
    pair from the first; it is None where all are first texts.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    types: NDArray[np.int8] | None
    padding_id: int
    pads_left: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return np.diff(self.offsets)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: Indices, device: str = "cpu") -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask` (texts × longest of them, int64), and `token_type_ids` of pairs."""
        lengths = self.lengths[indices]
        width = max(int(lengths.max(initial=0)), 1)
        columns = np.arange(width)
        mask = columns >= width - lengths[:, None] if self.pads_left else columns < lengths[:, None]
        places = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices])
        ids = np.full(mask.shape, self.padding_id, np.int64)
        ids[mask] = self.ids[places]
        arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        if self.types is not None:
            arrays["token_type_ids"] = types = np.zeros(mask.shape, np.int64)
            types[mask] = self.types[places]
        return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def tokenise(
    tokenizer: Any,
    texts: Sequence[str],
    maximum_length: int | None,
    *,
    pairs: Sequence[str] | None = None,
    truncation: str = "longest_first",
) -> Tokenised:
    """Tokenise texts (or pairs of `texts[i]` and `pairs[i]`) with a tokenizer of transformers, cut to `maximum_length`.

    `truncation` is transformers' word for which text of a pair is cut. None as maximum leaves texts whole.
    """
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths = np.zeros(len(texts) + 1, np.int64)
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": pairs is not None}
    if maximum_length is not None:
        options |= {"truncation": truncation, "max_length": maximum_length}
    for start, end in _pieces(texts):
        some = [text[:MOST_CHARACTERS] for text in texts[start:end]]
        second = None if pairs is None else [text[:MOST_CHARACTERS] for text in pairs[start:end]]
        encoded = tokenizer(some, second, **options)
        for number, tokens in enumerate(encoded["input_ids"], start + 1):
            lengths[number] = len(tokens)
            ids.append(np.array(tokens, np.int32))
        types += [np.array(row, np.int8) for row in encoded.get("token_type_ids", ()) if pairs is not None]
    return Tokenised(
        np.concatenate([np.zeros(0, np.int32), *ids]),
        np.cumsum(lengths),
        np.concatenate(types) if types else None,
        tokenizer.pad_token_id or 0,
        tokenizer.padding_side == "left",
    )


def tokenise_plainly(tokenizer: Any, texts: Sequence[str], maximum_length: int | None) -> Tokenised:
    """Tokenise with a bare tokenizer of `tokenizers`, without special tokens: for static embeddings."""
    ids = [np.zeros(0, np.int32)]
    for start, end in _pieces(texts):
        some = [text[:MOST_CHARACTERS] for text in texts[start:end]]
        for encoding in tokenizer.encode_batch(some, add_special_tokens=False):
            ids.append(np.array(encoding.ids[:maximum_length], np.int32))
    return Tokenised(np.concatenate(ids), np.cumsum([len(tokens) for tokens in ids]), None, 0, False)


def _pieces(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of texts that are tokenised together."""
    start = characters = 0
    for number, text in enumerate(texts):
        if number > start and (number - start == _TEXTS_AT_ONCE or characters > _CHARACTERS_AT_ONCE):
            yield start, number
            start, characters = number, 0
        characters += len(text)
    if start < len(texts):
        yield start, len(texts)


def use_cores(threads: int) -> None:
    """Let tokenizers use as many threads as the model does; to be called before the first text is tokenised."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"


def in_batches(
    lengths: NDArray[np.int64],
    run: Callable[[Indices], Output],
    keep: Callable[[Indices, Output], None],
    *,
    batch_size: int = 0,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> None:
    """Call `run` with the indices of each batch, longest texts first, and `keep` with those indices and its result.

    `batch_size` 0 is CPU_BATCH or CUDA_BATCH. A batch that is too large for the memory is halved, and so are all after
    it. A result is kept while the device is at work on the next batch. `progress` is told the share of tokens done.
    Raises ModelFailure: "out_of_memory" where one text alone does not fit, "does_not_run" where the model fails.
    """
    order = np.argsort(-lengths, kind="stable")
    total, done = max(int(lengths.sum()), 1), 0
    size = batch_size or (CUDA_BATCH if device.startswith("cuda") else CPU_BATCH)
    waiting: tuple[Indices, Output] | None = None
    start = 0
    while start < len(order):
        batch = order[start : start + size]
        result = _try(run, batch)
        if waiting is not None:
            keep(*waiting)
            waiting = None
        if result is None:
            if len(batch) == 1:
                raise ModelFailure("out_of_memory", "the model needs more memory than there is, for one text")
            size = max(len(batch) // 2, 1)
            continue
        waiting = batch, result[0]
        start += len(batch)
        done += int(lengths[batch].sum())
        if progress is not None:
            progress(done / total)
    if waiting is not None:
        keep(*waiting)


def _try(run: Callable[[Indices], Output], batch: Indices) -> tuple[Output] | None:
    """What `run` gives for a batch, None where memory did not suffice; the memory is free again then."""
    try:
        with torch.inference_mode():
            return (run(batch),)
    except (MemoryError, RuntimeError, IndexError, ValueError, TypeError, KeyError) as error:
        if not _is_out_of_memory(error):
            raise ModelFailure(
                "does_not_run", f"the model failed on its input ({type(error).__name__})"
            ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch has no type of its own for that on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def first_distinct(texts: Tokenised, count: int) -> list[int]:
    """Indices of the first `count` texts whose tokens all differ, fewer where there are fewer."""
    distinct: dict[bytes, int] = {}
    for index in range(len(texts)):
        distinct.setdefault(texts[index].tobytes(), index)
        if len(distinct) == count:
            break
    return list(islice(distinct.values(), count))
