"""Load the parts of a rebuilt checkpoint: no network, no code of strangers, no pickles, no made-up weights.

The switches below are passed from our side, because files inside a model folder can override what a library defaults
to. They are the second line: `evaluation.checkpoints` rebuilds the folder first, and a sandbox surrounds this process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder

from evaluation.core.errors import ModelFailure

Model = TypeVar("Model")
#: How weights are read, whatever the folder says.
SAFE_MODEL = {"use_safetensors": True, "weights_only": True, "attn_implementation": "sdpa"}
#: Model types for which transformers has no other attention than its plain one.
_PLAIN_ATTENTION = frozenset({"mpnet"})
_SAFE = {"trust_remote_code": False, "local_files_only": True}


def prepare(threads: int) -> None:
    """Set this process up: how many cores it uses, and the same arithmetic every time."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def load_sentence_encoder(
    folder: Path, device: str, truncate_dimension: int | None = None
) -> SentenceTransformer:
    """A dense or static encoder. Raises ModelFailure."""
    return _load(
        folder,
        lambda: SentenceTransformer(str(folder), truncate_dim=truncate_dimension, **_options(folder, device)),
    )


def load_sparse_encoder(folder: Path, device: str, most_terms: int | None = None) -> SparseEncoder:
    """A learned sparse encoder. Raises ModelFailure."""
    return _load(
        folder, lambda: SparseEncoder(str(folder), max_active_dims=most_terms, **_options(folder, device))
    )


def load_multi_vector_encoder(folder: Path, device: str) -> MultiVectorEncoder:
    """A late-interaction encoder. Raises ModelFailure."""
    return _load(folder, lambda: MultiVectorEncoder(str(folder), **_options(folder, device)))


def load_cross_encoder(folder: Path, device: str, maximum_length: int | None = None) -> CrossEncoder:
    """A cross-encoder, whose scores are left as the model gives them. Raises ModelFailure."""
    options = {**_options(folder, device), "max_length": maximum_length, "activation_fn": torch.nn.Identity()}
    model: CrossEncoder = _load(folder, lambda: CrossEncoder(str(folder), **options))
    return model


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

    return _load(folder, load)


def safe_model(folder: Path) -> dict[str, Any]:
    """How the weights in a folder, and those below it, are read, with the attention that the model has."""
    configurations = [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("config.json")]
    plain = any(each.get("model_type") in _PLAIN_ATTENTION for each in configurations)
    return {**SAFE_MODEL, "attn_implementation": "eager" if plain else SAFE_MODEL["attn_implementation"]}


def _options(folder: Path, device: str) -> dict[str, Any]:
    return {**_SAFE, "device": device, "model_kwargs": safe_model(folder)}


def _load(folder: Path, load: Callable[[], Model]) -> Model:
    with failing_clearly():
        return load()


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turn what a library raises over a model into ModelFailure, in words of ours: theirs can tell of the machine."""
    try:
        yield
    except (ModelFailure, MemoryError, torch.OutOfMemoryError):
        raise
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ModelFailure(
            "not_loadable", f"the model could not be loaded ({type(error).__name__})"
        ) from error
