"""Weights in safetensors, in one file or in shards. Headers are parsed and rewritten, and bytes are copied.

A file contains the header's length in eight bytes (little endian), the header as JSON, and the tensors' bytes without
gaps.
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
from evaluation.checkpoints.files import ModelFiles, NotJson, parse_json
from evaluation.checkpoints.findings import (
    MAX_SHARDS,
    AllowanceSpent,
    CheckpointAllowance,
    FileFindings,
    WeightsTooLarge,
    quoted,
    summarize_names,
)
from evaluation.core.files import open_regular, read_exactly

_MAX_DIMENSIONS = 8
_MAX_NAME = 256
_BLOCK = 8 * MIB
#: Bytes per value of each type.
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
#: Types of buffers, which are not weights: position ids and masks.
_BUFFERS = frozenset({"I64", "I32", "BOOL"})
#: Types of weights, and the bits that are all set in infinities and NaN.
_EXPONENTS = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_WEIGHT_TYPES = frozenset(_EXPONENTS)
#: Pattern of the names of other types, such as F8_E4M3.
_TYPE_NAME = re.compile(r"(F|BF|I|U|C)\d{1,3}(_[A-Z0-9]{1,12})?", re.ASCII)
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors", re.ASCII)


class NotSafetensors(ValueError):
    """Error for a damaged or unacceptable file of weights, with the reason in the message."""


class UnreadType(NotSafetensors):
    """Error for a tensor of a type that no engine reads, such as an 8-bit type."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Location of a tensor: bytes `start` to `end` of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @classmethod
    def parse(cls, name: str, entry: object, path: Path, offset: int) -> Self:
        """Parse an entry of a header that ends at `offset`. Raises NotSafetensors."""
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise NotSafetensors("a tensor's name is empty, too long, or not printable")
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise NotSafetensors(f"{name} must have exactly dtype, shape, and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _BYTES:
            if isinstance(dtype, str) and _TYPE_NAME.fullmatch(dtype):
                raise UnreadType(f"{name} is {dtype}")
            raise NotSafetensors(f"{name} has a type that is not in safetensors")
        if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
            raise NotSafetensors(f"{name} has a shape that is not a short list of sizes")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise NotSafetensors(f"{name} has data_offsets that are not two ascending positions")
        if 0 in shape:
            raise NotSafetensors(f"{name} has no values")
        if math.prod(shape) * _BYTES[dtype] != offsets[1] - offsets[0]:
            raise NotSafetensors(f"{name} has a number of bytes that does not fit its shape")
        return cls(path, dtype, tuple(shape), offset + offsets[0], offset + offsets[1])

    @property
    def parameters(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def is_usable(self) -> bool:
        """Whether weights may have its type."""
        return self.dtype in _WEIGHT_TYPES

    @property
    def is_buffer(self) -> bool:
        """Whether it has integers or booleans, unlike weights."""
        return self.dtype in _BUFFERS


def _open_file(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise NotSafetensors("it cannot be opened") from error


def read_tensors(path: Path, allowance: CheckpointAllowance) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, from its header. Their values are not read.

    The header and the tensors count against the allowance. If it is `without_weights`, the file may end after its
    header. Raises NotSafetensors if the file is damaged, has gaps, or has an unsupported tensor, and AllowanceSpent.
    """
    with _open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length_bytes = file.read(8)
        if len(length_bytes) < 8:
            raise NotSafetensors("it is too short for a header")
        (length,) = struct.unpack("<Q", length_bytes)
        if length > size - 8:
            raise NotSafetensors("its header is longer than the file")
        allowance.take(length, "headers of weights")
        data = file.read(length)
    if not data.startswith(b"{"):
        raise NotSafetensors("its header is not a JSON object")
    try:
        header = parse_json(data)
    except NotJson as error:
        raise NotSafetensors(f"its header is not valid JSON: {error}") from error
    header.pop("__metadata__", None)
    tensors = {name: Tensor.parse(name, entry, path, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise NotSafetensors("its tensors overlap" if tensor.start < end else "it has gaps between tensors")
        end = tensor.end
    allowance.take_tensors(path, len(tensors), sum(tensor.size for tensor in tensors.values()))
    if allowance.without_weights and size == 8 + length < end:
        allowance.has_omitted_weights = True
    elif end != size:
        raise NotSafetensors(f"its tensors end at byte {end:,} of {size:,}")
    return tensors


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def read_blocks(tensor: Tensor) -> Iterator[bytes]:
    """Yield the tensor's bytes, a few MiB at a time. Raises NotSafetensors if the file has become shorter."""
    with _open_file(tensor.path) as file:
        file.seek(tensor.start)
        error = NotSafetensors("the file became shorter while it was read")
        yield from read_exactly(file.read, tensor.end - tensor.start, _BLOCK, error)


def is_finite(tensor: Tensor) -> bool:
    """Return whether all values of a usable tensor are finite."""
    dtype, exponent = _EXPONENTS[tensor.dtype]
    parts = (np.frombuffer(block, dtype=dtype) for block in read_blocks(tensor))
    return not any(bool(((bits & exponent) == exponent).any()) for bits in parts)


def build_header(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the length and the header of a file with these tensors in this order, padded as by the library."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.end - tensor.start
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


NAME = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: Prefixes in the tensor names of encoders that were part of another model.
_PREFIXES = re.compile(r"^(question_encoder\.bert_model|ctx_encoder\.bert_model)\.")

Tensors = dict[str, Tensor]


def read_weights(source: ModelFiles, name: str = NAME, buffers: bool = False) -> Tensors:
    """Return the tensors of the folder by name, from `name` or the shards in the index.

    `buffers` includes tensors of whole numbers, such as position ids, which transformers computes itself. By default,
    they are omitted. Repeated names, unsupported types, and values that are not finite are added to the findings.
    Raises Refused if a file is missing or damaged.
    """
    if source.has(name):
        stored_tensors = _read_file(source, name)
    elif name == NAME and source.has(INDEX):
        stored_tensors = _read_shards(source)
    else:
        source.at(name).stop("missing_weights", "the file is missing")
    findings = source.at(name)
    tensors: Tensors = {}
    for title, tensor in stored_tensors.items():
        short_name = _PREFIXES.sub("", title)
        if tensor.is_buffer and not buffers:
            continue
        if short_name in tensors:
            findings.refuse("weights_header", f"it repeats {quoted(short_name)}")
        if not tensor.is_usable and not tensor.is_buffer:
            findings.refuse("weights_type", f"its type is {tensor.dtype}", title)
        tensors[short_name] = tensor
    if not source.allowance.has_omitted_weights:
        try:
            non_finite_names = [name for name, tensor in tensors.items() if tensor.is_usable and not is_finite(tensor)]
        except NotSafetensors as error:
            source.at(NAME).refuse("weights_header", str(error))
        else:
            if non_finite_names:
                source.at(NAME).refuse(
                    "nan_weights", f"{summarize_names(non_finite_names)}: not all values are finite numbers"
                )
    return tensors


def _read_file(source: ModelFiles, name: str) -> Tensors:
    """Return the tensors of one file by name. Raises Refused, after adding an error, if it is damaged or too large."""
    try:
        return read_tensors(source.path(name), source.allowance)
    except (NotSafetensors, AllowanceSpent) as error:
        codes = {UnreadType: "weights_type", WeightsTooLarge: "file_too_large"}
        source.at(name).stop(codes.get(type(error), "weights_header"), str(error))


def _read_shards(source: ModelFiles) -> Tensors:
    """Return the tensors of all files in the index by name.

    Raises Refused if the index is unusable, a file is missing or damaged, or a file and the index disagree on its
    tensors.
    """
    shard_by_tensor, index = source.read_object(INDEX).get("weight_map"), source.at(INDEX)
    if not isinstance(shard_by_tensor, dict) or not shard_by_tensor:
        index.stop("weights_index", "it has no weight_map")
    invalid_names = [
        shard for shard in shard_by_tensor.values() if not (isinstance(shard, str) and _SHARD.fullmatch(shard))
    ]
    if invalid_names:
        index.stop("weights_index", f"{quoted(invalid_names[0])} is not a file next to it", "weight_map")
    names = sorted(set(shard_by_tensor.values()))
    if len(names) > MAX_SHARDS:
        index.stop("weights_index", f"it has {len(names):,} files; at most {MAX_SHARDS} are possible", "weight_map")
    tensors: Tensors = {}
    for name in names:
        if not source.has(name):
            source.at(name).stop("missing_weights", "the file is missing, although it is in the index")
        shard = _read_file(source, name)
        if mismatched_names := sorted(
            shard.keys() ^ {title for title, file_name in shard_by_tensor.items() if file_name == name}
        ):
            message = f"{summarize_names(mismatched_names)}: the index and the file disagree on whether it is here"
            source.at(name).stop("weights_index", message)
        tensors |= shard
    return tensors


def refuse_shape(name: str, tensor: Tensor, expected_shape: Iterable[int], findings: FileFindings) -> None:
    """Refuse a tensor with a shape other than the expected one."""
    if tensor.shape != tuple(expected_shape):
        findings.refuse("weights_shape", f"its shape is {sizes(tensor.shape)} instead of {sizes(expected_shape)}", name)


def sizes(shape: Iterable[int]) -> str:
    """Return a shape for messages."""
    return " × ".join(f"{size:,}" for size in shape) or "a single value"
