"""Pickled weights turned into safetensors, and adapters into whole models, on the machine of whoever trusts them."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from evaluation.checkpoints.description import HEADS
from evaluation.core.problems import ModelFailure

_PICKLE, _INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_TARGET = "model.safetensors"
#: What a base model is loaded as, by the task of its adapter; an encoder for all others.
_TASKS = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}
#: A classifier that an adapter brings whole: as many rows as labels.
_HEAD = re.compile(r"\.(score|classifier|out_proj)(\.modules_to_save(\.default)?)?\.weight$")
_LOCAL = {"trust_remote_code": False, "local_files_only": True, "use_safetensors": True}


def convert_weights(source: Path, target: Path) -> bool:
    """Write `model.safetensors` into `target` from the pickles in `source`; whether there were any.

    Only tensors are unpickled (`weights_only`). Raises ModelFailure where a file holds anything else.
    """
    files = [source / _PICKLE]
    if not files[0].is_file():
        if not (source / _INDEX).is_file():
            return False
        places = json.loads((source / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = [source / name for name in sorted(set(places.values()))]
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= _read(file)
    save_file(tensors, target / _TARGET, metadata={"format": "pt"})
    return True


def convert_heads(source: Path, target: Path) -> list[str]:
    """Write the heads that lie pickled in `source` into `target`; return the files' names. Raises ModelFailure."""
    found = {name: (source / name).with_suffix(".pt") for name in HEADS.values()}
    written = [name for name, file in found.items() if file.is_file() and not (target / name).exists()]
    for name in written:
        save_file(_read(found[name]), target / name, metadata={"format": "pt"})
    return written


def convert_tokenizer(source: Path, target: Path) -> bool:
    """Write `tokenizer.json` into `target` from the tokenizer's older files in `source`; whether that was possible."""
    import transformers

    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            source, trust_remote_code=False, local_files_only=True
        )
        tokenizer.backend_tokenizer.save(str(target / "tokenizer.json"))
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError):
        return False
    return True


def merge_adapter(source: Path, base: Path, target: Path) -> None:
    """Write the model in the folder `base`, with the adapter in `source` merged into it, into `target`.

    Raises ModelFailure where peft is not installed, or the adapter does not belong to the model.
    """
    try:
        import peft
    except ImportError as error:
        raise ModelFailure(
            "peft_missing", "adapters are merged by peft, which is not installed: pip install peft"
        ) from error
    import transformers

    try:
        config = peft.PeftConfig.from_pretrained(str(source))
        weights = peft.load_peft_weights(str(source), device="cpu")
        labels = [len(value) for name, value in weights.items() if _HEAD.search(name)]
        model = getattr(transformers, _TASKS.get(config.task_type, "AutoModel")).from_pretrained(
            base, **({"num_labels": labels[-1]} if labels else {}), **_LOCAL
        )
        adapted = peft.get_peft_model(model, config)
        found = peft.set_peft_model_state_dict(adapted, weights)
        merged = adapted.merge_and_unload()
    except Exception as error:  # peft fails in as many ways as there are adapters
        raise ModelFailure("not_merged", f"peft does not merge the adapter: {error}") from error
    strange = [*found.unexpected_keys, *(name for name in found.missing_keys if "lora_" in name)]
    if strange:
        raise ModelFailure(
            "not_merged", f"the adapter is not one of this base model: {', '.join(strange[:5])}"
        )
    merged.save_pretrained(target)


def _read(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file, each with bytes of its own: safetensors has no views."""
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickles fail in as many ways as there are classes
        raise ModelFailure("not_loadable", f"{file.name} holds more than tensors, or is damaged") from error
    if not isinstance(found, dict):
        raise ModelFailure("not_loadable", f"{file.name} holds no weights by name")
    found = found.get("state_dict", found)
    return {
        str(name): tensor.detach().clone().contiguous()
        for name, tensor in found.items()
        if isinstance(tensor, torch.Tensor)
    }
