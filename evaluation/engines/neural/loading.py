"""Load the parts of a rebuilt checkpoint: no network, no code of strangers, no pickles, no made-up weights.

The switches below are passed from our side, because files inside a model folder can override what a library defaults
to. They are the second line: `evaluation.checkpoints` rebuilds the folder first, and a sandbox surrounds this process.

An encoder has two sides, a model for queries and one for documents, which are often the same. Below are also the
prompts of each side, and how much of a text a model can read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
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
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from torch.nn import Embedding, Module

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.core.errors import ModelFailure
from evaluation.engines.base import AUTO, OWN_LENGTH_LIMIT, Resources
from evaluation.engines.neural.batching import MOST_CHARACTERS, Indices
from evaluation.engines.prompts import prompt_of

Model = TypeVar("Model")
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


def load_sentence_encoder(folder: Path, device: str) -> SentenceTransformer:
    """A dense or static encoder. Raises ModelFailure."""
    return _load(lambda: SentenceTransformer(str(folder), **_options(folder, device)))


def load_sparse_encoder(folder: Path, device: str) -> SparseEncoder:
    """A learned sparse encoder. Raises ModelFailure."""
    return _load(lambda: SparseEncoder(str(folder), **_options(folder, device)))


def load_multi_vector_encoder(folder: Path, device: str) -> MultiVectorEncoder:
    """A late-interaction encoder. Raises ModelFailure."""
    return _load(lambda: MultiVectorEncoder(str(folder), **_options(folder, device)))


def load_cross_encoder(folder: Path, device: str) -> CrossEncoder:
    """A cross-encoder, whose scores are left as the model gives them. Raises ModelFailure."""
    return _load(
        lambda: CrossEncoder(str(folder), activation_fn=torch.nn.Identity(), **_options(folder, device))
    )


def load_transformer(folder: Path, auto_class: Any, device: str) -> tuple[Any, Any]:
    """(model, tokenizer) through a class of transformers, such as AutoModelForSeq2SeqLM. Raises ModelFailure."""

    def load() -> tuple[Any, Any]:
        model, found = auto_class.from_pretrained(
            folder, output_loading_info=True, **safe_model(folder), **_SAFE
        )
        if found["missing_keys"]:
            raise ModelFailure(
                "missing_weights", "the model lacks " + ", ".join(sorted(found["missing_keys"])[:5])
            )
        return model.to(device).eval(), transformers.AutoTokenizer.from_pretrained(folder, **_SAFE)

    return _load(load)


def safe_model(folder: Path) -> dict[str, Any]:
    """How the weights in a folder, and those below it, are read, with the attention that the model has."""
    types = {json.loads(path.read_text("utf-8")).get("model_type") for path in folder.rglob("config.json")}
    quick = all(map(_has_quick_attention, types & set(transformers.CONFIG_MAPPING)))
    return {**SAFE_MODEL, "attn_implementation": SAFE_MODEL["attn_implementation"] if quick else "eager"}


def _has_quick_attention(model_type: str) -> bool:
    """Whether transformers computes the attention of such models by torch's own function."""
    found = transformers.MODEL_MAPPING[transformers.CONFIG_MAPPING[model_type]]
    return all(model._supports_sdpa for model in (found if isinstance(found, tuple) else (found,)))


def library_options(folder: Path) -> dict[str, Any]:
    """How sentence-transformers' own Transformer reads a folder."""
    return {
        "model_kwargs": {**safe_model(folder), **_SAFE},
        "processor_kwargs": _SAFE,
        "config_kwargs": _SAFE,
    }


def _options(folder: Path, device: str) -> dict[str, Any]:
    return {**_SAFE, "device": device, "model_kwargs": safe_model(folder)}


def _load(load: Callable[[], Model]) -> Model:
    with model_failures():
        return load()


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
#: A token has about so many characters, or bytes of UTF-8 where a character is a word.
_BYTES_PER_TOKEN = 4
#: Where a prompt may stand in a checkpoint, by what it is for.
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


def load_roles(resources: Resources, load: Callable[[Path], Model]) -> dict[Role, Model]:
    """The model for queries and the one for documents, loaded once where they are the same, in a process set up."""
    prepare(resources.threads)
    folders: dict[Role, Path] = {role: part_folder(resources.model, role) for role in ROLES}
    loaded = {folder: load(folder) for folder in dict.fromkeys(folders.values())}
    return {role: loaded[folder] for role, folder in folders.items()}


def part_folder(checkpoint: Path, role: Role) -> Path:
    """The folder of the part that encodes queries, or documents."""
    parts = CheckpointDescription.read(checkpoint).parts
    return checkpoint / (role if role in parts else parts[0])


def prompts_of(models: Mapping[Role, Any], parameters: Mapping[str, Any]) -> dict[Role, str | None]:
    """What stands before each text: what the parameters say, or what the model itself has under a name."""
    prompts: dict[Role, str | None] = {}
    for role, model in models.items():
        own = (model.prompts[name] for name in _PROMPT_NAMES[role] if model.prompts.get(name))
        wanted = parameters[f"{role}_prompt"]
        prompts[role] = next(own, None) if wanted == AUTO else prompt_of(model.prompts, role, wanted)
    return prompts


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
    if name == AUTO:
        name = "bfloat16" if device.startswith("cuda") else "float32"
    dtype = getattr(torch, name)
    plans = (m._get_dtype_plan(dtype) for m in model.modules() if isinstance(m, transformers.PreTrainedModel))
    kept = {part for plan in plans for part in plan}
    for path, weight in model.named_parameters():
        if kept.isdisjoint(path.split(".")):
            weight.data = weight.data.to(dtype)


def features_of(
    model: Any, texts: Sequence[str], indices: Indices, role: Role, prompt: str | None, device: str
) -> dict[str, Any]:
    """Some of the texts as the library itself prepares them for the model, on its device."""
    some = [readable_part(texts[index], model.max_seq_length) for index in indices.tolist()]
    features = model.preprocess(some, prompt=prompt, task=role)
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in features.items()
    }


def readable_part(text: str, tokens: int | None) -> str:
    """The text, without what lies behind all that is read of it: a word is one token at least."""
    tokens = tokens or USUAL_LENGTH
    if len(text) <= 8 * tokens:  # not worth looking for a place to cut it
        return text
    words = _first_words(2 * tokens).match(text[:MOST_CHARACTERS])
    return words.group() if words else ""


@lru_cache
def _first_words(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*\S+){{0,{count}}}")


def estimated_tokens(texts: Sequence[str], most: int | None) -> NDArray[np.int64]:
    """About how many tokens of each text are read, special ones among them, for batches of texts of like length."""
    most = most or USUAL_LENGTH
    sizes = (len(text[: 8 * most].encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 2 for text in texts)
    return np.fromiter((min(size, most) for size in sizes), np.int64, len(texts))


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
