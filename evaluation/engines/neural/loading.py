"""Batched inference, and loading of checkpoints without network, remote code, pickles, or random weights.

Safety options are passed explicitly, because files in a model's folder can override defaults of the libraries. They are
the second line of defense, after `evaluation.checkpoints`, which rebuilds the folder, and before the sandbox of this
process.

Encoders have one model for queries and one for documents, which are often the same.

Texts are processed in batches with a maximum number of tokens, sorted by descending length to reduce padding. Batches
depend only on the texts and that number: if memory is insufficient, only the affected batch is divided into halves. The
same texts, batch size, and number of threads produce identical bytes. `OutputCheck` rejects models with outputs that
are not finite, or that are the same for all texts.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch.nn import Embedding, Module

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.core.problems import ModelFailure, is_out_of_memory
from evaluation.engines.base import OWN_LENGTH_LIMIT, Numbers, Progress, Resources, ignore
from evaluation.engines.index.word_pieces import group_by_size
from evaluation.engines.precision import get_compute_dtype

Model = TypeVar("Model", bound=Module)
Loaded = TypeVar("Loaded")
Output = TypeVar("Output")
Item = TypeVar("Item")
Indices = NDArray[np.intp]

#: Default number of tokens per batch, including padding. On a CPU, 4,096 tokens were not faster for MiniLM and required
#: 230 MiB more.
CPU_TOKENS = 2_048
CUDA_TOKENS = 262_144
#: Number of batches after which freed memory is returned to the system, which takes about 10 ms. Batches of various
#: shapes fragment the heap: with MiniLM by 400 MiB over 11,000 documents.
_BATCHES_BETWEEN_TRIMS = 4
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
#: Maximum number of characters read from a text, which bounds memory and suffices for 32,768 tokens.
MAX_CHARACTERS = 1_000_000
#: Options for reading weights, which the folder cannot override.
SAFE_MODEL = {"use_safetensors": True, "weights_only": True, "attn_implementation": "sdpa"}
_SAFE = {"trust_remote_code": False, "local_files_only": True}


def prepare(threads: int) -> None:
    """Configure threads, logging, and reproducible arithmetic of this process, before any text is tokenized."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def load_encoder(encoder_class: type[Model], folder: Path, device: str, **options: Any) -> Model:
    """Return a model of a sentence-transformers class in evaluation mode. Raises ModelFailure."""
    with model_failures():
        settings = {**_SAFE, "model_kwargs": safe_model_options(folder), **options}
        model: Model = encoder_class(str(folder), device=device, **settings).eval()
        return model


def load_transformer(resources: Resources, auto_class: Any, dtype: str) -> tuple[Any, Any]:
    """Prepare the process, and return the checkpoint's model and tokenizer. Raises ModelFailure.

    Args:
        resources: Resources with the checkpoint.
        auto_class: Class of transformers, such as AutoModel.
        dtype: Value of the parameter `compute_dtype`.
    """
    prepare(resources.threads)
    folder = resources.first_part
    with model_failures():
        model, loading_info = auto_class.from_pretrained(
            folder, output_loading_info=True, **safe_model_options(folder), **_SAFE
        )
        missing_keys = sorted(loading_info["missing_keys"])
        if auto_class is transformers.AutoModel:  # It adds a pooler, which is not used.
            missing_keys = [name for name in missing_keys if not name.startswith("pooler.")]
        if missing_keys:
            raise ModelFailure("missing_weights", f"weights of the model are missing: {', '.join(missing_keys[:5])}")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_SAFE)
    model = model.to(resources.device).eval()
    use_dtype(model, dtype, resources.device)
    return model, tokenizer


def safe_model_options(folder: Path) -> dict[str, Any]:
    """Return the options for reading the weights below a folder.

    They include an attention implementation that the model supports.
    """
    types = {json.loads(path.read_text("utf-8")).get("model_type") for path in folder.rglob("config.json")}
    configs = (transformers.CONFIG_MAPPING[name] for name in types & set(transformers.CONFIG_MAPPING))
    matches = (transformers.MODEL_MAPPING[config] for config in configs)
    models = (model for match in matches for model in (match if isinstance(match, tuple) else (match,)))
    has_sdpa = all(model._supports_sdpa for model in models)  # supports torch's scaled_dot_product_attention
    return {**SAFE_MODEL, "attn_implementation": SAFE_MODEL["attn_implementation"] if has_sdpa else "eager"}


def library_options(folder: Path) -> dict[str, Any]:
    """Return the options of sentence-transformers' Transformer module for a folder."""
    return {
        "model_kwargs": {**safe_model_options(folder), **_SAFE},
        "processor_kwargs": _SAFE,
        "config_kwargs": _SAFE,
    }


@contextmanager
def model_failures() -> Iterator[None]:
    """Convert exceptions of libraries to ModelFailure.

    Their messages are dropped, because they may reveal details of the machine.
    """
    try:
        yield
    except (ModelFailure, MemoryError, torch.OutOfMemoryError):
        raise
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ModelFailure("not_loadable", f"the model could not be loaded ({type(error).__name__})") from error


Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
#: Default maximum number of tokens per text, as in the BEIR paper (§4).
USUAL_LENGTH = 512


def load_roles(resources: Resources, load: Callable[[Path], Loaded]) -> dict[Role, Loaded]:
    """Prepare the process and load the models for queries and documents, once if they are the same."""
    prepare(resources.threads)
    parts = CheckpointDescription.read(resources.model).parts
    folders: dict[Role, Path] = {role: resources.model / (role if role in parts else parts[0]) for role in ROLES}
    models = {folder: load(folder) for folder in dict.fromkeys(folders.values())}
    return {role: models[folder] for role, folder in folders.items()}


def resolve_maximum_length(model: Any, checkpoint_length: int | None, requested_tokens: int) -> int:
    """Return the maximum number of tokens per text: `requested_tokens`, or the checkpoint's own length if that is 0.

    The checkpoint's own length is at most OWN_LENGTH_LIMIT, and by default USUAL_LENGTH. The result does not exceed
    the number of positions of the model.
    """
    length = requested_tokens or min(checkpoint_length or USUAL_LENGTH, OWN_LENGTH_LIMIT)
    transformer = model.transformers_model
    return length if transformer is None else positions(transformer, length)


def use_dtype(model: Module, name: str, device: str) -> None:
    """Convert a model's weights in place to the data type of the parameter `compute_dtype`, like transformers.

    Some weights remain float32, such as the weights of T5 that need its range. Buffers remain float32 too: in
    bfloat16, the angles of rotary positions are wrong by radians after some thousand tokens.
    """
    dtype = getattr(torch, get_compute_dtype({"compute_dtype": name}, device))
    plans = (m._get_dtype_plan(dtype) for m in model.modules() if isinstance(m, transformers.PreTrainedModel))
    float32_parts = {part for plan in plans for part in plan}
    for path, weight in model.named_parameters():
        if float32_parts.isdisjoint(path.split(".")):
            weight.data = weight.data.to(dtype)


def readable_part(text: str, tokens: int | None) -> str:
    """Return the beginning of a text that contains its first `tokens` tokens, so that less text is tokenized.

    Long texts are cut after twice as many words, and short ones are returned whole. None stands for USUAL_LENGTH.
    """
    tokens = tokens or USUAL_LENGTH
    if len(text) <= 8 * tokens:  # too short to be worth truncating
        return text
    words = re.match(rf"(?:\s*\S+){{0,{2 * tokens}}}", text[:MAX_CHARACTERS])
    return words.group() if words else ""


def positions(model: Any, requested_tokens: int) -> int:
    """Return `requested_tokens` tokens, or the number of positions of a transformers model if that is smaller.

    Tables with a row for padding, as in RoBERTa, start after that row.
    """
    limit = getattr(model.config, "max_position_embeddings", None) or requested_tokens
    tables = (getattr(module, "position_embeddings", None) for module in model.modules())
    padding_rows = (table.padding_idx for table in tables if isinstance(table, Embedding))
    return int(min(requested_tokens, limit - next((index + 1 for index in padding_rows if index is not None), 0)))


def maximum_length(model: Any, tokenizer: Any, requested_tokens: int) -> int:
    """Return `requested_tokens`, reduced to the limits of the model and its tokenizer."""
    return int(min(positions(model, requested_tokens), tokenizer.model_max_length or requested_tokens))


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Token ids of texts or of pairs of texts.

    Text i has the tokens `ids[offsets[i]:offsets[i + 1]]`, including special tokens. `types` distinguishes the texts
    of a pair and is None without pairs.
    """

    ids: NDArray[np.int32]
    offsets: Numbers
    types: NDArray[np.int8] | None
    padding_id: int
    pads_left: bool

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]], padding_id: int = 0) -> Tokenised:
        ids = [np.zeros(0, np.int32), *(np.array(row, np.int32) for row in rows)]
        return cls(np.concatenate(ids), np.cumsum([len(row) for row in ids]), None, padding_id, False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.offsets)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: Indices, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Return the model inputs of some texts, padded to the longest one.

        These are `input_ids` and `attention_mask` (texts × length, int64), and `token_type_ids` for pairs.
        """
        lengths = self.lengths[indices]
        width = max(int(lengths.max(initial=0)), 1)
        columns = np.arange(width)
        mask = columns >= width - lengths[:, None] if self.pads_left else columns < lengths[:, None]
        token_positions = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices])
        ids = np.full(mask.shape, self.padding_id, np.int64)
        ids[mask] = self.ids[token_positions]
        arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        if self.types is not None:
            arrays["token_type_ids"] = types = np.zeros(mask.shape, np.int64)
            types[mask] = self.types[token_positions]
        return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def tokenise(
    tokenizer: Any,
    texts: Sequence[str],
    maximum_length: int | None,
    *,
    pairs: Sequence[str] | None = None,
    add_special_tokens: bool = True,
    suffix: Sequence[int] = (),
) -> Tokenised:
    """Tokenize texts, or pairs of `texts[i]` and `pairs[i]`, with a tokenizer of transformers.

    Args:
        tokenizer: Tokenizer of transformers.
        texts: Texts, or first texts of pairs.
        maximum_length: Length to which texts, or the longer texts of pairs, are truncated; None for no limit.
        pairs: Second texts.
        add_special_tokens: Whether to add special tokens.
        suffix: Token ids at the end of truncated texts.
    """
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths = np.zeros(len(texts) + 1, np.int64)
    has_types = pairs is not None and "token_type_ids" in tokenizer.model_input_names
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": has_types}
    options["add_special_tokens"] = add_special_tokens
    if maximum_length is not None:
        options |= {"truncation": "longest_first", "max_length": maximum_length}
    for group in group_by_size(range(len(texts)), texts.__getitem__):
        first_texts = [texts[index][:MAX_CHARACTERS] for index in group]
        second_texts = None if pairs is None else [pairs[index][:MAX_CHARACTERS] for index in group]
        encodings = tokenizer(first_texts, second_texts, **options)
        for index, tokens in zip(group, encodings["input_ids"], strict=True):
            if suffix and len(tokens) == maximum_length:
                tokens[-len(suffix) :] = suffix[-len(tokens) :]
            lengths[index + 1] = len(tokens)
            ids.append(np.array(tokens, np.int32))
        types += [np.array(row, np.int8) for row in encodings.get("token_type_ids", ()) if has_types]
    return Tokenised(
        np.concatenate([np.zeros(0, np.int32), *ids]),
        np.cumsum(lengths),
        np.concatenate(types) if types else None,
        tokenizer.pad_token_id or 0,
        tokenizer.padding_side == "left",
    )


def tokenise_plainly(tokenizer: Any, texts: Sequence[str], maximum_length: int | None) -> Tokenised:
    """Tokenize texts for static embeddings, with a tokenizer of `tokenizers` and without special tokens."""
    return Tokenised.from_rows(
        encoding.ids[:maximum_length]
        for group in group_by_size([text[:MAX_CHARACTERS] for text in texts], str)
        for encoding in tokenizer.encode_batch(group, add_special_tokens=False)
    )


def run_in_batches(
    lengths: Numbers,
    run: Callable[[Indices], Output],
    keep: Callable[[Indices, Output], None],
    *,
    tokens: int = 0,
    most_texts: int = 0,
    device: str = "cpu",
    progress: Progress = ignore,
) -> None:
    """Run a function on batches of texts, longest first, and pass its results to another one.

    Args:
        lengths: Number of tokens of each text.
        run: Function that processes the texts with the given indices.
        keep: Function that receives indices and results. The device computes the next batch at the same time.
        tokens: Maximum number of tokens per batch, including padding; 0 for CPU_TOKENS or CUDA_TOKENS. A batch has at
            least one text.
        most_texts: Maximum number of texts per batch; 0 for no limit.
        device: Device of the model.
        progress: Callback for the fraction of tokens done.

    Raises:
        ModelFailure: A single text does not fit into memory ("out_of_memory"), or the model fails ("does_not_run").
    """
    total, tokens_done = max(int(lengths.sum()), 1), 0
    budget = tokens or (CUDA_TOKENS if device.startswith("cuda") else CPU_TOKENS)
    pending_output: tuple[Indices, Output] | None = None
    for number, batch in enumerate(split_into_batches(lengths, budget, most_texts), 1):
        for part, result in _run_in_halves(run, batch):
            if pending_output is not None:
                keep(*pending_output)
            pending_output = part, result
        tokens_done += int(lengths[batch].sum())
        progress(tokens_done / total)
        if _TRIM is not None and number % _BATCHES_BETWEEN_TRIMS == 0:
            _TRIM(0)
    if pending_output is not None:
        keep(*pending_output)


def collect_batches(lengths: Numbers, run: Callable[[Indices], Iterable[Item]], **options: Any) -> list[Item]:
    """Return the results of `run` for each text, in the order of the texts; see `run_in_batches`."""
    results: dict[int, Item] = {}

    def keep(indices: Indices, items: Iterable[Item]) -> None:
        results.update(zip(indices.tolist(), items, strict=True))

    run_in_batches(lengths, run, keep, **options)
    return [results[index] for index in range(len(lengths))]


def split_into_batches(lengths: Numbers, tokens: int, most_texts: int = 0) -> Iterator[Indices]:
    """Yield the indices of each batch's texts, longest first, with at most `tokens` tokens including padding.

    A batch has at least one text, and at most `most_texts` if that is not 0.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(tokens // max(int(lengths[order[start]]), 1), 1)
        batch = order[start : start + min(size, most_texts or size)]
        yield batch
        start += len(batch)


def _run_in_halves(run: Callable[[Indices], Output], batch: Indices) -> Iterator[tuple[Indices, Output]]:
    """Yield a batch and its result, or its halves and their results if memory is insufficient.

    Raises ModelFailure if memory is insufficient for a single text, or the model fails.
    """
    try:
        with torch.inference_mode():
            result = run(batch)
    except (MemoryError, RuntimeError, IndexError, ValueError, TypeError, KeyError) as error:
        if not is_out_of_memory(error):
            raise ModelFailure("does_not_run", f"the model failed on its input ({type(error).__name__})") from error
    else:
        yield batch, result
        return
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(batch) == 1:
        raise ModelFailure("out_of_memory", "the model needs more memory than available for a single text")
    for half in np.array_split(batch, 2):
        yield from _run_in_halves(run, half)


def index_distinct(texts: Tokenised, count: int) -> list[int]:
    """Return the indices of the first `count` texts with distinct tokens, or fewer if there are not enough."""
    index_by_tokens: dict[bytes, int] = {}
    for index in range(len(texts)):
        index_by_tokens.setdefault(texts[index].tobytes(), index)
        if len(index_by_tokens) == count:
            break
    return list(islice(index_by_tokens.values(), count))


#: Number of distinct inputs with the same output after which a model is considered constant.
_MIN_INPUTS = 8
#: Relative tolerance for equal outputs, since padding alone causes such differences.
_TOLERANCE = 1e-6


class OutputCheck:
    """Checks the outputs of a model for values that are not finite, and for equal outputs for all inputs."""

    def __init__(self) -> None:
        self._outputs: dict[bytes, NDArray[np.float64]] = {}

    def check_batch(self, inputs: list[bytes], outputs: torch.Tensor) -> None:
        """Check that the outputs (inputs × any) of a batch are finite, and store some of them for `finish`.

        Raises ModelFailure "not_finite_output".
        """
        if not bool(torch.isfinite(outputs).all()):
            raise ModelFailure("not_finite_output", "the model returns infinite or undefined values")
        for index, key in enumerate(inputs):
            if len(self._outputs) == _MIN_INPUTS:
                return
            if key not in self._outputs:
                self._outputs[key] = outputs[index].double().cpu().numpy().reshape(-1)

    def finish(self) -> None:
        """Raise ModelFailure "constant_output" if the first eight different inputs had the same output."""
        if len(self._outputs) < _MIN_INPUTS:
            return
        outputs = np.stack(list(self._outputs.values()))
        if np.ptp(outputs, axis=0).max(initial=0.0) <= _TOLERANCE * np.abs(outputs).max(initial=0.0):
            raise ModelFailure("constant_output", "the model returns the same output for every text")


def input_keys(features: Mapping[str, torch.Tensor]) -> list[bytes]:
    """Return a key for each text of a batch, consisting of its token ids without padding."""
    ids, mask = features["input_ids"].cpu().numpy(), features["attention_mask"].cpu().numpy().astype(bool)
    return [row[is_token].tobytes() for row, is_token in zip(ids, mask, strict=True)]
