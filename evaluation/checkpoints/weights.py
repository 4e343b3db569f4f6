"""The weights of one folder, found in one file or in shards, under the names that they were published with."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evaluation.checkpoints.allowance import WeightsTooLarge
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.limits import MOST_SHARDS
from evaluation.checkpoints.safetensors import (
    NotSafetensors,
    Tensor,
    UnreadType,
    is_finite,
    is_shard_name,
    read_tensors,
)

NAME = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: What stands before the names of encoders that were a part of another model.
_PREFIXES = re.compile(r"^(question_encoder\.bert_model|ctx_encoder\.bert_model)\.")

Tensors = dict[str, Tensor]


def read_weights(
    source: ModelFiles, findings: Findings, name: str = NAME, buffers: bool = False
) -> Tensors | None:
    """The tensors of the folder by name, from `name` or the shards that the index lists; None where refused.

    Whole numbers are `buffers` that transformers makes itself, such as the numbers of positions, and left out.
    """
    if source.has(name):
        found = _read_file(source, name, findings)
    elif name == NAME and source.has(INDEX):
        found = _read_shards(source, findings)
    else:
        findings.refuse("missing_weights", source.shown(name), "the file is missing")
        return None
    if found is None:
        return None
    tensors: Tensors = {}
    for title, tensor in found.items():
        short = _PREFIXES.sub("", title)
        if tensor.is_buffer and not buffers:
            continue
        if short in tensors:
            findings.refuse("weights_header", source.shown(name), f"it has {quoted(short)} twice")
        if not tensor.usable and not tensor.is_buffer:
            findings.refuse("weights_type", source.shown(name), f"its type is {tensor.dtype}", title)
        tensors[short] = tensor
    _refuse_not_finite(tensors, source, findings)
    return tensors


def _read_file(source: ModelFiles, name: str, findings: Findings) -> Tensors | None:
    try:
        return read_tensors(source.path(name), source.allowance)
    except NotSafetensors as error:
        too_large = isinstance(error.__cause__, WeightsTooLarge)
        other = "weights_type" if isinstance(error, UnreadType) else "weights_header"
        findings.refuse("file_too_large" if too_large else other, source.shown(name), str(error))
        return None


def _read_shards(source: ModelFiles, findings: Findings) -> Tensors | None:
    index = read_object(source, INDEX, findings)
    if index is None:
        return None
    shown = source.shown(INDEX)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        findings.refuse("weights_index", shown, "it has no weight_map")
        return None
    bad = [file for file in places.values() if not is_shard_name(file)]
    if bad:
        findings.refuse("weights_index", shown, f"{quoted(bad[0])} is no file beside it", "weight_map")
        return None
    files = sorted(set(places.values()))
    if len(files) > MOST_SHARDS:
        what = f"it names {len(files):,} files; at most {MOST_SHARDS}"
        findings.refuse("weights_index", shown, what, "weight_map")
        return None
    tensors: Tensors = {}
    for file in files:
        if not source.has(file):
            findings.refuse("missing_weights", source.shown(file), "the index names it, and it is missing")
            return None
        found = _read_file(source, file, findings)
        if found is None:
            return None
        if wrong := sorted(found.keys() ^ {name for name, place in places.items() if place == file}):
            what = f"{listed(wrong)}: either the index says that it is here, or the file has it, and not both"
            findings.refuse("weights_index", source.shown(file), what)
            return None
        tensors |= found
    return tensors


def refuse_shape(name: str, tensor: Tensor, wanted: Iterable[int], file: str, findings: Findings) -> None:
    """Refuse a tensor of another shape than the wanted one."""
    if tensor.shape != tuple(wanted):
        what = f"its shape is {sizes(tensor.shape)}; wanted is {sizes(wanted)}"
        findings.refuse("weights_shape", file, what, name)


def sizes(shape: Iterable[int]) -> str:
    """A shape in words."""
    return " × ".join(f"{size:,}" for size in shape) or "a single value"


def _refuse_not_finite(tensors: Tensors, source: ModelFiles, findings: Findings) -> None:
    """Read all weights once, and refuse those that hold infinities or what is no number."""
    bad = []
    try:
        if not source.allowance.left_out:
            bad = [name for name, tensor in tensors.items() if tensor.usable and not is_finite(tensor)]
    except NotSafetensors as error:
        findings.refuse("weights_header", source.shown(NAME), str(error))
    if bad:
        findings.refuse(
            "nan_weights", source.shown(NAME), f"{listed(bad)}: not all values are finite numbers"
        )
