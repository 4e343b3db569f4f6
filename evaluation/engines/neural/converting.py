"""Conversion of pickled weights to safetensors, and of adapters to whole models, for users who trust the files."""

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
#: Classes of base models by task of the adapter. Other tasks use an encoder.
_TASKS = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}
#: Names of complete classifiers in adapters. Their rows are labels.
_HEAD = re.compile(r"\.(score|classifier|out_proj)(\.modules_to_save(\.default)?)?\.weight$")
_LOAD_OPTIONS = {"trust_remote_code": False, "local_files_only": True, "use_safetensors": True}


def convert_weights(source: Path, target: Path) -> bool:
    """Convert the pickled weights in `source` to `model.safetensors` in `target`. Returns whether there were any.

    Only tensors are unpickled (`weights_only`). Raises ModelFailure for files with other content.
    """
    files = [source / _PICKLE]
    if not files[0].is_file():
        if not (source / _INDEX).is_file():
            return False
        weight_map = json.loads((source / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = [source / name for name in sorted(set(weight_map.values()))]
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= _read_tensors(file)
    save_file(tensors, target / _TARGET, metadata={"format": "pt"})
    return True


def convert_heads(source: Path, target: Path) -> list[str]:
    """Convert the pickled heads in `source` to safetensors in `target` and return their names. Raises ModelFailure."""
    pickles = {name: (source / name).with_suffix(".pt") for name in HEADS.values()}
    names = [name for name, file in pickles.items() if file.is_file() and not (target / name).exists()]
    for name in names:
        save_file(_read_tensors(pickles[name]), target / name, metadata={"format": "pt"})
    return names


def convert_tokenizer(source: Path, target: Path) -> bool:
    """Convert the older tokenizer files in `source` to `tokenizer.json` in `target`. Returns whether that succeeded."""
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
    """Merge the adapter in `source` into the model in `base`, and save the result in `target`.

    Raises ModelFailure if peft is not installed or the adapter does not fit the model.
    """
    try:
        import peft
    except ImportError as error:
        raise ModelFailure(
            "peft_missing", "merging adapters requires peft, which is not installed: pip install peft"
        ) from error
    import transformers

    try:
        config = peft.PeftConfig.from_pretrained(str(source))
        weights = peft.load_peft_weights(str(source), device="cpu")
        labels = [len(value) for name, value in weights.items() if _HEAD.search(name)]
        model = getattr(transformers, _TASKS.get(config.task_type, "AutoModel")).from_pretrained(
            base, **({"num_labels": labels[-1]} if labels else {}), **_LOAD_OPTIONS
        )
        adapted_model = peft.get_peft_model(model, config)
        loading_info = peft.set_peft_model_state_dict(adapted_model, weights)
        merged_model = adapted_model.merge_and_unload()
    except Exception as error:  # peft raises many kinds of exceptions
        raise ModelFailure("not_merged", f"peft cannot merge the adapter: {error}") from error
    foreign_keys = [
        *loading_info.unexpected_keys,
        *(name for name in loading_info.missing_keys if "lora_" in name),
    ]
    if foreign_keys:
        raise ModelFailure("not_merged", f"the adapter does not fit this base model: {', '.join(foreign_keys[:5])}")
    merged_model.save_pretrained(target)


def _read_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file, each with its own storage, because safetensors does not support views."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling raises many kinds of exceptions
        raise ModelFailure("not_loadable", f"{file.name} is damaged or contains more than tensors") from error
    if not isinstance(content, dict):
        raise ModelFailure("not_loadable", f"{file.name} contains no named weights")
    content = content.get("state_dict", content)
    return {
        str(name): tensor.detach().clone().contiguous()
        for name, tensor in content.items()
        if isinstance(tensor, torch.Tensor)
    }
