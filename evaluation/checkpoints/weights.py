"""The weights of one folder, from one file or from shards, under the names that they were published with."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import FileFindings, listed, quoted
from evaluation.checkpoints.limits import MOST_SHARDS, WeightsTooLarge
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
#: Prefixes in the names of encoders that were a part of another model.
_PREFIXES = re.compile(r"^(question_encoder\.bert_model|ctx_encoder\.bert_model)\.")

Tensors = dict[str, Tensor]


def read_weights(source: ModelFiles, name: str = NAME, buffers: bool = False) -> Tensors:
    """Return the tensors of the folder by name, from `name` or the shards in the index. Raises Refused.

    Whole numbers are `buffers` that transformers computes itself, such as the numbers of positions, and left out.
    """
    if source.has(name):
        published = _read_file(source, name)
    elif name == NAME and source.has(INDEX):
        published = _read_shards(source)
    else:
        source.at(name).stop("missing_weights", "the file is missing")
    file = source.at(name)
    tensors: Tensors = {}
    for title, tensor in published.items():
        short = _PREFIXES.sub("", title)
        if tensor.is_buffer and not buffers:
            continue
        if short in tensors:
            file.refuse("weights_header", f"it has {quoted(short)} twice")
        if not tensor.usable and not tensor.is_buffer:
            file.refuse("weights_type", f"its type is {tensor.dtype}", title)
        tensors[short] = tensor
    if not source.allowance.left_out:
        _refuse_not_finite(tensors, source.at(NAME))
    return tensors


def _read_file(source: ModelFiles, name: str) -> Tensors:
    try:
        return read_tensors(source.path(name), source.allowance)
    except NotSafetensors as error:
        code = "weights_type" if isinstance(error, UnreadType) else "weights_header"
        code = "file_too_large" if isinstance(error.__cause__, WeightsTooLarge) else code
        source.at(name).stop(code, str(error))


def _read_shards(source: ModelFiles) -> Tensors:
    places, index = source.read_object(INDEX).get("weight_map"), source.at(INDEX)
    if not isinstance(places, dict) or not places:
        index.stop("weights_index", "it has no weight_map")
    if outside := [name for name in places.values() if not is_shard_name(name)]:
        index.stop("weights_index", f"{quoted(outside[0])} is no file beside it", "weight_map")
    names = sorted(set(places.values()))
    if len(names) > MOST_SHARDS:
        index.stop("weights_index", f"it names {len(names):,} files; at most {MOST_SHARDS}", "weight_map")
    tensors: Tensors = {}
    for name in names:
        if not source.has(name):
            source.at(name).stop("missing_weights", "the index names it, and it is missing")
        shard = _read_file(source, name)
        if wrong := sorted(shard.keys() ^ {title for title, place in places.items() if place == name}):
            message = (
                f"{listed(wrong)}: either the index says that it is here, or the file has it, and not both"
            )
            source.at(name).stop("weights_index", message)
        tensors |= shard
    return tensors


def refuse_shape(name: str, tensor: Tensor, wanted: Iterable[int], file: FileFindings) -> None:
    """Refuse a tensor of another shape than the wanted one."""
    if tensor.shape != tuple(wanted):
        message = f"its shape is {sizes(tensor.shape)}; wanted is {sizes(wanted)}"
        file.refuse("weights_shape", message, name)


def sizes(shape: Iterable[int]) -> str:
    """Return a shape in words."""
    return " × ".join(f"{size:,}" for size in shape) or "a single value"


def _refuse_not_finite(tensors: Tensors, file: FileFindings) -> None:
    """Read all weights once, and refuse infinities and values that are not numbers."""
    try:
        bad = [name for name, tensor in tensors.items() if tensor.usable and not is_finite(tensor)]
    except NotSafetensors as error:
        file.refuse("weights_header", str(error))
        return
    if bad:
        file.refuse("nan_weights", f"{listed(bad)}: not all values are finite numbers")
