"""Load the parts of a rebuilt checkpoint: no network, no code of strangers, no pickles, no made-up weights.

The switches below are passed from our side, because files inside a model folder can override what a library defaults
to. They are the second line: `evaluation.checkpoints` rebuilds the folder first, and a sandbox surrounds this process.

An encoder has two sides, a model for queries and one for documents, which are often the same. Below are also the
prompts of each side, and how much of a text a model can read.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers
from torch.nn import Embedding, Module

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.core.problems import ModelFailure
from evaluation.engines.base import OWN_LENGTH_LIMIT, Resources
from evaluation.engines.neural.batching import MOST_CHARACTERS
from evaluation.engines.precision import computed_in

Model = TypeVar("Model", bound=Module)
Loaded = TypeVar("Loaded")
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
    quick = all(map(_has_quick_attention, types & set(transformers.CONFIG_MAPPING)))
    return {**SAFE_MODEL, "attn_implementation": SAFE_MODEL["attn_implementation"] if quick else "eager"}


def _has_quick_attention(model_type: str) -> bool:
    """Return whether transformers computes the attention of such models by torch's own function."""
    found = transformers.MODEL_MAPPING[transformers.CONFIG_MAPPING[model_type]]
    return all(model._supports_sdpa for model in (found if isinstance(found, tuple) else (found,)))


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
    words = _first_words(2 * tokens).match(text[:MOST_CHARACTERS])
    return words.group() if words else ""


@lru_cache
def _first_words(count: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*\S+){{0,{count}}}")


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
