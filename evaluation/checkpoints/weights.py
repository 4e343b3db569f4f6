"""Weights in safetensors: headers read and written here, bytes only copied; from one file or from shards.

The format: eight bytes with the header's length (little endian), the header as JSON, the tensors' bytes without gaps.
"""

import json
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from evaluation.archives.compression import MIB
from evaluation.checkpoints.files import ModelFiles, NotJson, parse
from evaluation.checkpoints.findings import (
    MOST_SHARDS,
    AllowanceSpent,
    CheckpointAllowance,
    FileFindings,
    WeightsTooLarge,
    listed,
    quoted,
)
from evaluation.core.files import open_regular

_MOST_DIMENSIONS = 8
_MOST_NAME = 256
_BLOCK = 8 * MIB
#: Bytes of a value.
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
#: Types of buffers beside the weights: numbers of positions, and masks.
_BUFFERS = frozenset({"I64", "I32", "BOOL"})
#: Types of weights, and the bits that are all set in infinities and NaN.
_EXPONENTS = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_WEIGHT_TYPES = frozenset(_EXPONENTS)
#: Pattern for the names of other types, such as F8_E4M3.
_TYPE_NAME = re.compile(r"(F|BF|I|U|C)\d{1,3}(_[A-Z0-9]{1,12})?", re.ASCII)
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors", re.ASCII)


class NotSafetensors(ValueError):
    """A file of weights is damaged or not acceptable, for the reason in the message."""


class UnreadType(NotSafetensors):
    """A tensor has a type that no engine reads, such as an 8-bit one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The place of a tensor: bytes `start` to `end` of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @classmethod
    def parse(cls, name: str, entry: object, path: Path, offset: int) -> Self:
        """Return the tensor of an entry of a header that ends at `offset`. Raises NotSafetensors."""
        if not name or len(name) > _MOST_NAME or not name.isprintable():
            raise NotSafetensors("a tensor's name is empty, too long, or not printable")
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise NotSafetensors(f"{name} needs dtype, shape and data_offsets, and nothing else")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _BYTES:
            if isinstance(dtype, str) and _TYPE_NAME.fullmatch(dtype):
                raise UnreadType(f"{name} is {dtype}")
            raise NotSafetensors(f"{name} has a type that safetensors does not have")
        if not _are_sizes(shape) or len(shape) > _MOST_DIMENSIONS:
            raise NotSafetensors(f"{name} has a shape that is no short list of sizes")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise NotSafetensors(f"{name} has data_offsets that are no two places")
        if 0 in shape:
            raise NotSafetensors(f"{name} has no values")
        if math.prod(shape) * _BYTES[dtype] != offsets[1] - offsets[0]:
            raise NotSafetensors(f"{name} has as many bytes as do not fit its shape")
        return cls(path, dtype, tuple(shape), offset + offsets[0], offset + offsets[1])

    @property
    def parameters(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return self.end - self.start

    @property
    def usable(self) -> bool:
        """Whether it has a type that weights may have."""
        return self.dtype in _WEIGHT_TYPES

    @property
    def is_buffer(self) -> bool:
        """Whether it has whole numbers or truths, unlike weights."""
        return self.dtype in _BUFFERS


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise NotSafetensors("it cannot be opened") from error


def read_tensors(path: Path, allowance: CheckpointAllowance) -> dict[str, Tensor]:
    """Return the tensors of a file by name, from its header alone, which counts against the allowance.

    Raises NotSafetensors, and AllowanceSpent.
    """
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        if len(first) < 8:
            raise NotSafetensors("it is too short for a header")
        (length,) = struct.unpack("<Q", first)
        if length > size - 8:
            raise NotSafetensors("its header is longer than the file")
        allowance.take(length, "headers of weights")
        data = file.read(length)
    if not data.startswith(b"{"):
        raise NotSafetensors("its header is no JSON object")
    try:
        header = parse(data)
    except NotJson as error:
        raise NotSafetensors(f"its header is no JSON: {error}") from error
    header.pop("__metadata__", None)
    tensors = {name: Tensor.parse(name, entry, path, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise NotSafetensors(
                "its tensors overlap" if tensor.start < end else "it has gaps between tensors"
            )
        end = tensor.end
    allowance.take_tensors(path, len(tensors), sum(tensor.size for tensor in tensors.values()))
    if allowance.without_weights and size == 8 + length < end:
        allowance.left_out = True
    elif end != size:
        raise NotSafetensors(f"its tensors end at byte {end:,} of {size:,}")
    return tensors


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def blocks(tensor: Tensor) -> Iterator[bytes]:
    """Yield the tensor's bytes, a few MiB at a time. Raises NotSafetensors if the file has become shorter."""
    with _open(tensor.path) as file:
        file.seek(tensor.start)
        left = tensor.end - tensor.start
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise NotSafetensors("it became shorter while it was read")
            left -= len(block)
            yield block


def is_finite(tensor: Tensor) -> bool:
    """Return whether all values of a usable tensor are finite numbers."""
    dtype, exponent = _EXPONENTS[tensor.dtype]
    parts = (np.frombuffer(block, dtype=dtype) for block in blocks(tensor))
    return not any(bool(((bits & exponent) == exponent).any()) for bits in parts)


def header_of(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the length and the header of a file with these tensors in this order, padded as by the library."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        end = place + tensor.end - tensor.start
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


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
        try:
            bad = [name for name, tensor in tensors.items() if tensor.usable and not is_finite(tensor)]
        except NotSafetensors as error:
            source.at(NAME).refuse("weights_header", str(error))
        else:
            if bad:
                source.at(NAME).refuse("nan_weights", f"{listed(bad)}: not all values are finite numbers")
    return tensors


def _read_file(source: ModelFiles, name: str) -> Tensors:
    try:
        return read_tensors(source.path(name), source.allowance)
    except (NotSafetensors, AllowanceSpent) as error:
        codes = {UnreadType: "weights_type", WeightsTooLarge: "file_too_large"}
        source.at(name).stop(codes.get(type(error), "weights_header"), str(error))


def _read_shards(source: ModelFiles) -> Tensors:
    places, index = source.read_object(INDEX).get("weight_map"), source.at(INDEX)
    if not isinstance(places, dict) or not places:
        index.stop("weights_index", "it has no weight_map")
    outside = [each for each in places.values() if not (isinstance(each, str) and _SHARD.fullmatch(each))]
    if outside:
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
