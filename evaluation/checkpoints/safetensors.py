"""Weights in safetensors: headers read and written here, bytes only copied.

The format: eight bytes with the header's length (little endian), the header as JSON, the tensors' bytes without gaps.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from evaluation.archives.compression import MIB
from evaluation.checkpoints.json_reading import NotJson, parse
from evaluation.checkpoints.limits import AllowanceSpent, CheckpointAllowance
from evaluation.core.files import open_regular

_MOST_DIMENSIONS = 8
_MOST_NAME = 256
_BLOCK = 8 * MIB
#: Bytes of a value.
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
#: The types of what models keep beside their weights: the numbers of positions, masks.
_BUFFERS = frozenset({"I64", "I32", "BOOL"})
#: The types that weights may have, and the bits that are all set in infinities and in what is no number.
_EXPONENTS = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_WEIGHT_TYPES = frozenset(_EXPONENTS)
#: Pattern for the names of other types, such as F8_E4M3.
_TYPE_NAME = re.compile(r"(F|BF|I|U|C)\d{1,3}(_[A-Z0-9]{1,12})?", re.ASCII)
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.safetensors", re.ASCII)


class NotSafetensors(ValueError):
    """What is wrong with a file of weights, in words."""


class UnreadType(NotSafetensors):
    """A tensor has a type that no engine reads, such as an 8-bit one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: bytes `start` to `end` of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def parameters(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return self.end - self.start

    @property
    def usable(self) -> bool:
        """Whether it is of a type that weights may have."""
        return self.dtype in _WEIGHT_TYPES

    @property
    def is_buffer(self) -> bool:
        """Whether it holds whole numbers or truths, which no weight is."""
        return self.dtype in _BUFFERS


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise NotSafetensors("it cannot be opened") from error


def read_tensors(path: Path, allowance: CheckpointAllowance) -> dict[str, Tensor]:
    """The tensors of a file by name, from its header alone, which counts against the allowance.

    Raises NotSafetensors, also where nothing of the allowance is left.
    """
    try:
        return _read_tensors(path, allowance)
    except AllowanceSpent as error:
        raise NotSafetensors(str(error)) from error


def _read_tensors(path: Path, allowance: CheckpointAllowance) -> dict[str, Tensor]:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        if len(first) < 8:
            raise NotSafetensors("it is too short for a header")
        (length,) = struct.unpack("<Q", first)
        if length > size - 8:
            raise NotSafetensors("its header is longer than the file")
        allowance.take_header(length)
        data = file.read(length)
    if not data.startswith(b"{"):
        raise NotSafetensors("its header is no JSON object")
    try:
        header = parse(data)
    except NotJson as error:
        raise NotSafetensors(f"its header is no JSON: {error}") from error
    header.pop("__metadata__", None)
    tensors = _tensors(header, path, 8 + length)
    allowance.take_tensors(path, len(tensors), sum(tensor.size for tensor in tensors.values()))
    end = max((tensor.end for tensor in tensors.values()), default=8 + length)
    if allowance.without_weights and size == 8 + length < end:
        allowance.left_out = True
    elif end != size:
        raise NotSafetensors(f"its tensors end at byte {end:,} of {size:,}")
    return tensors


def _tensors(header: dict[str, Any], path: Path, offset: int) -> dict[str, Tensor]:
    tensors = {name: _tensor(name, entry, path, offset) for name, entry in header.items()}
    end = offset
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise NotSafetensors(
                "its tensors overlap" if tensor.start < end else "it has gaps between tensors"
            )
        end = tensor.end
    return tensors


def _tensor(name: str, entry: object, path: Path, offset: int) -> Tensor:
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
    return Tensor(path, dtype, tuple(shape), offset + offsets[0], offset + offsets[1])


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def is_shard_name(name: object) -> bool:
    """Whether the name in an index is that of a safetensors file beside it, and of nothing elsewhere."""
    return isinstance(name, str) and _SHARD.fullmatch(name) is not None


def blocks(tensor: Tensor) -> Iterator[bytes]:
    """The tensor's bytes, a few MiB at a time. Raises NotSafetensors where the file has become shorter."""
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
    """Whether all of the tensor's values are finite numbers; it must be usable."""
    dtype, exponent = _EXPONENTS[tensor.dtype]
    return all(not _has_exponent(np.frombuffer(block, dtype=dtype), exponent) for block in blocks(tensor))


def _has_exponent(bits: np.ndarray[Any, np.dtype[Any]], exponent: int) -> bool:
    return bool(((bits & exponent) == exponent).any())


def header_of(tensors: Mapping[str, Tensor]) -> bytes:
    """The eight bytes and the header of a file that holds these tensors in this order, as the library pads it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        end = place + tensor.end - tensor.start
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
