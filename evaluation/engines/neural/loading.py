"""Load the parts of a rebuilt checkpoint: no network, no code of strangers, no pickles, no made-up weights.

The switches below are passed from our side, because files inside a model folder can override what a library defaults
to. They are the second line: `evaluation.checkpoints` rebuilds the folder first, and a sandbox surrounds this process.

An encoder has two sides, a model for queries and one for documents, which are often the same. Below are also the
prompts of each side, and how much of a text a model can read.

Models are fed in batches of so many tokens, the longest texts first. Texts of like length are together, so that little
is padded. What is in a batch depends on the texts and the number of tokens alone: where memory does not suffice, that
one batch is computed in halves, and the next one is whole again. The same texts, tokens and number of threads give the
same bytes. `OutputCheck` refuses a model whose outputs are not numbers, or are the same for every text.
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
from evaluation.engines.index.word_pieces import grouped
from evaluation.engines.precision import computed_in

Model = TypeVar("Model", bound=Module)
Loaded = TypeVar("Loaded")
Output = TypeVar("Output")
Item = TypeVar("Item")
Indices = NDArray[np.intp]

#: How many tokens go through a model at once, padding included, where nobody says. On a processor 4,096 took MiniLM
#: as long, and 230 MiB more.
CPU_TOKENS = 2_048
CUDA_TOKENS = 262_144
#: Batches after which memory that was freed goes back to the system. Batches of many shapes leave holes in the heap
#: that no later one fits into: with MiniLM, 400 MiB over 11,000 documents. It takes about 10 ms.
_BATCHES_BETWEEN_TRIMS = 4
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
#: Nothing behind so many characters of a text is read: 32,768 tokens are within, and memory stays bounded.
MOST_CHARACTERS = 1_000_000
#: How weights are read, whatever the folder says.
SAFE_MODEL = {"use_safetensors": True, "weights_only": True, "attn_implementation": "sdpa"}
_SAFE = {"trust_remote_code": False, "local_files_only": True}


def prepare(threads: int) -> None:
    """Set this process up before the first text is tokenised: how many cores it uses, the same arithmetic each time."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def load_encoder(encoder_class: type[Model], folder: Path, device: str, **options: Any) -> Model:
    """Return a model of a class of sentence-transformers, ready to be run. Raises ModelFailure."""
    with model_failures():
        settings = {**_SAFE, "model_kwargs": safe_model(folder), **options}
        model: Model = encoder_class(str(folder), device=device, **settings).eval()
        return model


def load_transformer(resources: Resources, auto_class: Any, dtype: str) -> tuple[Any, Any]:
    """Return the checkpoint's model, through a class of transformers, and its tokenizer, in a process set up.

    The model computes in what the parameter `compute_dtype` names. Raises ModelFailure.
    """
    prepare(resources.threads)
    folder = resources.first_part
    with model_failures():
        model, found = auto_class.from_pretrained(
            folder, output_loading_info=True, **safe_model(folder), **_SAFE
        )
        if found["missing_keys"]:
            missing = ", ".join(sorted(found["missing_keys"])[:5])
            raise ModelFailure("missing_weights", f"the model lacks {missing}")
        model, tokenizer = (
            model.to(resources.device).eval(),
            transformers.AutoTokenizer.from_pretrained(folder, **_SAFE),
        )
    use_dtype(model, dtype, resources.device)
    return model, tokenizer


def safe_model(folder: Path) -> dict[str, Any]:
    """Return how the weights in a folder, and those below it, are read, with the attention that the model has."""
    types = {json.loads(path.read_text("utf-8")).get("model_type") for path in folder.rglob("config.json")}
    known = (transformers.CONFIG_MAPPING[name] for name in types & set(transformers.CONFIG_MAPPING))
    found = (transformers.MODEL_MAPPING[config] for config in known)
    models = (model for each in found for model in (each if isinstance(each, tuple) else (each,)))
    quick = all(model._supports_sdpa for model in models)  # attention by torch's own function
    return {**SAFE_MODEL, "attn_implementation": SAFE_MODEL["attn_implementation"] if quick else "eager"}


def library_options(folder: Path) -> dict[str, Any]:
    """Return how sentence-transformers' own Transformer reads a folder."""
    return {
        "model_kwargs": {**safe_model(folder), **_SAFE},
        "processor_kwargs": _SAFE,
        "config_kwargs": _SAFE,
    }


@contextmanager
def model_failures() -> Iterator[None]:
    """Turn what a library raises over a model into ModelFailure, in words of ours: theirs can tell of the machine."""
    try:
        yield
    except (ModelFailure, MemoryError, torch.OutOfMemoryError):
        raise
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ModelFailure(
            "not_loadable", f"the model could not be loaded ({type(error).__name__})"
        ) from error


Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
#: Tokens of a text that are read where neither a checkpoint nor a submission says, as in the BEIR paper (§4).
USUAL_LENGTH = 512


def load_roles(resources: Resources, load: Callable[[Path], Loaded]) -> dict[Role, Loaded]:
    """The model for queries and the one for documents, loaded once where they are the same, in a process set up."""
    prepare(resources.threads)
    folders: dict[Role, Path] = {role: part_folder(resources.model, role) for role in ROLES}
    loaded = {folder: load(folder) for folder in dict.fromkeys(folders.values())}
    return {role: loaded[folder] for role, folder in folders.items()}


def part_folder(checkpoint: Path, role: Role) -> Path:
    """Return the folder of the part that encodes queries, or documents."""
    parts = CheckpointDescription.read(checkpoint).parts
    return checkpoint / (role if role in parts else parts[0])


def longest_text(model: Any, own: int | None, wanted: int) -> int:
    """Tokens of a text that are read: `wanted`, 0 for the checkpoint's own, as far as the model has positions."""
    asked = wanted or min(own or USUAL_LENGTH, OWN_LENGTH_LIMIT)
    transformer = model.transformers_model
    return asked if transformer is None else positions(transformer, asked)


def use_dtype(model: Module, name: str, device: str) -> None:
    """Have a model compute in what the parameter `compute_dtype` names.

    As when transformers loads it so: some weights stay float32, such as those of T5 that need the range. So do buffers:
    the angles of rotary positions, in eight bits, are wrong by radians some thousand tokens on.
    """
    dtype = getattr(torch, computed_in({"compute_dtype": name}, device))
    plans = (m._get_dtype_plan(dtype) for m in model.modules() if isinstance(m, transformers.PreTrainedModel))
    kept = {part for plan in plans for part in plan}
    for path, weight in model.named_parameters():
        if kept.isdisjoint(path.split(".")):
            weight.data = weight.data.to(dtype)


def readable_part(text: str, tokens: int | None) -> str:
    """Return the text, without what lies behind all that is read of it: a word is one token at least."""
    tokens = tokens or USUAL_LENGTH
    if len(text) <= 8 * tokens:  # not worth looking for a place to cut it
        return text
    words = re.match(rf"(?:\s*\S+){{0,{2 * tokens}}}", text[:MOST_CHARACTERS])
    return words.group() if words else ""


def positions(model: Any, wanted: int) -> int:
    """`wanted` tokens, or as many as a model of transformers has positions for, if fewer.

    A table of positions with a row for padding, as RoBERTa's, begins behind that row.
    """
    found = getattr(model.config, "max_position_embeddings", None) or wanted
    tables = (getattr(module, "position_embeddings", None) for module in model.modules())
    behind = (each.padding_idx for each in tables if isinstance(each, Embedding))
    return int(min(wanted, found - next((index + 1 for index in behind if index is not None), 0)))


def maximum_length(model: Any, tokenizer: Any, wanted: int) -> int:
    """`wanted` tokens, or as many as the model has positions for and its tokenizer was made for, if fewer."""
    return int(min(positions(model, wanted), tokenizer.model_max_length or wanted))


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Texts, or pairs of texts, as token numbers.

    Text i has the tokens `ids[offsets[i]:offsets[i + 1]]`, special ones included. `types` tells the second text of a
    pair from the first; it is None where all are first texts.
    """

    ids: NDArray[np.int32]
    offsets: Numbers
    types: NDArray[np.int8] | None
    padding_id: int
    pads_left: bool

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], padding_id: int = 0) -> Tokenised:
        """Return texts given as lists of token numbers."""
        ids = [np.zeros(0, np.int32), *(np.array(row, np.int32) for row in rows)]
        return cls(np.concatenate(ids), np.cumsum([len(row) for row in ids]), None, padding_id, False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Numbers:
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
    add_special_tokens: bool = True,
    kept: Sequence[int] = (),
) -> Tokenised:
    """Tokenise texts (or pairs of `texts[i]` and `pairs[i]`) with a tokenizer of transformers, cut to `maximum_length`.

    Of a pair the longer text is cut. None as maximum leaves texts whole. The tokens `kept` end a text that was cut too.
    """
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths = np.zeros(len(texts) + 1, np.int64)
    typed = pairs is not None and "token_type_ids" in tokenizer.model_input_names
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": typed}
    options["add_special_tokens"] = add_special_tokens
    if maximum_length is not None:
        options |= {"truncation": "longest_first", "max_length": maximum_length}
    for places in grouped(range(len(texts)), texts.__getitem__):
        some = [texts[place][:MOST_CHARACTERS] for place in places]
        second = None if pairs is None else [pairs[place][:MOST_CHARACTERS] for place in places]
        encoded = tokenizer(some, second, **options)
        for place, tokens in zip(places, encoded["input_ids"], strict=True):
            if kept and len(tokens) == maximum_length:
                tokens[-len(kept) :] = kept[-len(tokens) :]
            lengths[place + 1] = len(tokens)
            ids.append(np.array(tokens, np.int32))
        types += [np.array(row, np.int8) for row in encoded.get("token_type_ids", ()) if typed]
    return Tokenised(
        np.concatenate([np.zeros(0, np.int32), *ids]),
        np.cumsum(lengths),
        np.concatenate(types) if types else None,
        tokenizer.pad_token_id or 0,
        tokenizer.padding_side == "left",
    )


def tokenise_plainly(tokenizer: Any, texts: Sequence[str], maximum_length: int | None) -> Tokenised:
    """Tokenise with a bare tokenizer of `tokenizers`, without special tokens: for static embeddings."""
    return Tokenised.of(
        encoding.ids[:maximum_length]
        for some in grouped([text[:MOST_CHARACTERS] for text in texts], str)
        for encoding in tokenizer.encode_batch(some, add_special_tokens=False)
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
    """Call `run` with the indices of each batch, longest texts first, and `keep` with those indices and its result.

    A batch has at most so many `tokens`, padding included (0: CPU_TOKENS or CUDA_TOKENS), but at least one text, and
    at most `most_texts`, where that is not 0. A result is kept while the device is at work on the next batch.
    `progress` is told the share of tokens done. Raises ModelFailure: "out_of_memory" where one text alone does not fit,
    "does_not_run" where the model fails.
    """
    total, done = max(int(lengths.sum()), 1), 0
    budget = tokens or (CUDA_TOKENS if device.startswith("cuda") else CPU_TOKENS)
    waiting: tuple[Indices, Output] | None = None
    for number, batch in enumerate(batches_of(lengths, budget, most_texts), 1):
        for part, result in _run_in_halves(run, batch):
            if waiting is not None:
                keep(*waiting)
            waiting = part, result
        done += int(lengths[batch].sum())
        progress(done / total)
        if _TRIM is not None and number % _BATCHES_BETWEEN_TRIMS == 0:
            _TRIM(0)
    if waiting is not None:
        keep(*waiting)


def collect_batches(lengths: Numbers, run: Callable[[Indices], Iterable[Item]], **options: Any) -> list[Item]:
    """Return what `run` gives for each text, in the order of the texts; see `run_in_batches`."""
    found: dict[int, Item] = {}

    def keep(indices: Indices, items: Iterable[Item]) -> None:
        found.update(zip(indices.tolist(), items, strict=True))

    run_in_batches(lengths, run, keep, **options)
    return [found[index] for index in range(len(lengths))]


def batches_of(lengths: Numbers, tokens: int, most_texts: int = 0) -> Iterator[Indices]:
    """Indices of the texts of each batch, longest first; of as many texts as fit when all are padded to the longest."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(tokens // max(int(lengths[order[start]]), 1), 1)
        batch = order[start : start + min(size, most_texts or size)]
        yield batch
        start += len(batch)


def _run_in_halves(run: Callable[[Indices], Output], batch: Indices) -> Iterator[tuple[Indices, Output]]:
    """Yield the batch and what `run` gives for it; where memory does not suffice, the same of its halves."""
    result = _try(run, batch)
    if result is not None:
        yield batch, result[0]
    elif len(batch) == 1:
        raise ModelFailure("out_of_memory", "the model needs more memory than there is, for one text")
    else:
        for half in np.array_split(batch, 2):
            yield from _run_in_halves(run, half)


def _try(run: Callable[[Indices], Output], batch: Indices) -> tuple[Output] | None:
    """Return what `run` gives for a batch, None where memory did not suffice; the memory is free again then."""
    try:
        with torch.inference_mode():
            return (run(batch),)
    except (MemoryError, RuntimeError, IndexError, ValueError, TypeError, KeyError) as error:
        if not is_out_of_memory(error):
            raise ModelFailure(
                "does_not_run", f"the model failed on its input ({type(error).__name__})"
            ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def index_distinct(texts: Tokenised, count: int) -> list[int]:
    """Return indices of the first `count` texts whose tokens all differ, fewer where there are fewer."""
    distinct: dict[bytes, int] = {}
    for index in range(len(texts)):
        distinct.setdefault(texts[index].tobytes(), index)
        if len(distinct) == count:
            break
    return list(islice(distinct.values(), count))


#: A model that gives the same for so many inputs, no two of them alike to it, does so for all.
_ENOUGH = 8
#: Outputs that differ by less than this share of their size are the same: padding alone makes such differences.
_SAME = 1e-6


class OutputCheck:
    """Watches the batches of a model: raises at once where an output is no number, and knows when all are the same."""

    def __init__(self) -> None:
        self._seen: dict[bytes, NDArray[np.float64]] = {}

    def see(self, inputs: list[bytes], outputs: torch.Tensor) -> None:
        """Look at the outputs (inputs × anything) of a batch. Raises ModelFailure "not_finite_output"."""
        if not bool(torch.isfinite(outputs).all()):
            raise ModelFailure("not_finite_output", "the model gives values that are no finite numbers")
        for place, key in enumerate(inputs):
            if len(self._seen) == _ENOUGH:
                return
            if key not in self._seen:
                self._seen[key] = outputs[place].double().cpu().numpy().reshape(-1)

    def finish(self) -> None:
        """Raise ModelFailure "constant_output" if at least eight different inputs gave the same output."""
        if len(self._seen) < _ENOUGH:
            return
        outputs = np.stack(list(self._seen.values()))
        if np.ptp(outputs, axis=0).max(initial=0.0) <= _SAME * np.abs(outputs).max(initial=0.0):
            raise ModelFailure("constant_output", "the model gives the same output whatever the text")


def input_keys(features: Mapping[str, torch.Tensor]) -> list[bytes]:
    """Return what tells the texts of a batch apart for the model: their token numbers, without padding."""
    ids, mask = features["input_ids"].cpu().numpy(), features["attention_mask"].cpu().numpy().astype(bool)
    return [row[kept].tobytes() for row, kept in zip(ids, mask, strict=True)]
