"""Bytes in place: words of eight bytes, fields, equality, order, UTF-8, and the key and hash of an id.

Arrays of bytes must have 16 bytes of padding behind what is read: words are loaded whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from evaluation.kernel.compilation import helper

Bytes = NDArray[np.uint8]

#: Padding behind the bytes of any array read by words.
PADDING = 16

_WORD = ir.IntType(64)
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(8)] + [2**64 - 1], np.uint64)
_SPACES = np.uint64(0x2121212121212121)
_HIGH_BITS = np.uint64(0x8080808080808080)
# Multipliers whose bytes are not valid UTF-8, so that no id can equal one and cancel it.
_FIRST = np.uint64(0xA0761D6478BD642F)
_SECOND = np.uint64(0xE7037ED1A0B428DB)
_NEWLINE = 10

#: In the upper byte of a key's second word: the id is longer than 16 bytes. UTF-8 has no such byte.
LONG_ID = np.uint64(0xFF << 56)
_SHORT = 16


def _load_word(context: Any, array: Any, index: Any) -> Any:
    """The eight bytes at `array[index]`, little-endian, wherever they lie."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = target.make_array(signature.args[0])(target, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), _WORD.as_pointer())
        return builder.load(pointer, align=1, typ=_WORD)

    return types.uint64(array, types.intp), generate


def _fold(context: Any, first: Any, second: Any) -> Any:
    """The 128-bit product's halves, exclusive-or'd (the mixing step of wyhash)."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _WORD)
        return builder.xor(upper, builder.trunc(product, _WORD))

    return types.uint64(types.uint64, types.uint64), generate


def _trailing_zeros(context: Any, word: Any) -> Any:
    """How many low bits of a non-zero word are 0."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


if TYPE_CHECKING:

    def load_word(array: Bytes, index: int) -> np.uint64: ...
    def fold(first: np.uint64, second: np.uint64) -> np.uint64: ...
    def trailing_zeros(word: np.uint64) -> int: ...
else:
    load_word = intrinsic(_load_word)
    fold = intrinsic(_fold)
    trailing_zeros = intrinsic(_trailing_zeros)


@helper
def is_space(character: int) -> bool:
    """ASCII white space, as C's `isspace`."""
    return character == 32 or 9 <= character <= 13


@helper
def field_end(text: Bytes, position: int) -> int:
    """The first white space at or after `position`."""
    while True:
        word = load_word(text, position)
        low = (word - _SPACES) & ~word & _HIGH_BITS  # the lowest set bit marks the first byte below 0x21
        if low == 0:
            position += 8
            continue
        position += trailing_zeros(low) >> 3
        if is_space(text[position]):
            return position
        position += 1  # another control character


@helper
def field_start(text: Bytes, position: int) -> int:
    """The first byte at or after `position` that is no white space, or the line's end."""
    while text[position] != _NEWLINE and is_space(text[position]):
        position += 1
    return position


@helper
def same_bytes(first: Bytes, at: int, second: Bytes, other: int, length: int) -> bool:
    """Whether `length` bytes are equal."""
    done = 0
    while done + 8 <= length:
        if load_word(first, at + done) != load_word(second, other + done):
            return False
        done += 8
    difference = load_word(first, at + done) ^ load_word(second, other + done)
    return (difference & _LOW_BYTES[length - done]) == 0


@helper
def bytes_precede(text: Bytes, at: int, length: int, other: int, other_length: int) -> bool:
    """Whether the bytes at `at` sort before those at `other`, as strcmp has it."""
    for index in range(min(length, other_length)):
        if text[at + index] != text[other + index]:
            return text[at + index] < text[other + index]
    return length < other_length


@helper
def key_of(text: Bytes, start: int, length: int, seed: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """(first word, second word, hash) of an id.

    For at most 16 bytes the two words are the id itself, padded with zeros, and equal words are equal ids. For
    longer ones they are its hash and its length under LONG_ID: equal words are verified by the bytes.
    """
    if length <= 8:
        first, second = load_word(text, start) & _LOW_BYTES[length], np.uint64(0)
    elif length <= _SHORT:
        first = load_word(text, start)
        second = load_word(text, start + 8) & _LOW_BYTES[length - 8]
    else:
        mixed = seed
        done = 0
        while done + 8 < length:
            mixed = fold(mixed ^ load_word(text, start + done), _FIRST)
            done += 8
        first = fold(mixed ^ load_word(text, start + length - 8), _SECOND ^ np.uint64(length)) | np.uint64(1)
        second = LONG_ID | np.uint64(length)
    return first, second, fold(fold(first ^ seed, second ^ _FIRST) ^ seed, _SECOND)


@helper
def is_long(second: np.uint64) -> bool:
    """Whether a key's second word says that the id is longer than the key."""
    return second >= LONG_ID


@helper
def is_utf8(text: Bytes, start: int, end: int) -> bool:
    """Whether the bytes are UTF-8 (RFC 3629) without NUL."""
    position = start
    while position < end:
        lead = text[position]
        if lead == 0:
            return False
        if lead < 0x80:
            position += 1
            continue
        if 0xC2 <= lead <= 0xDF:
            following = 1
        elif 0xE0 <= lead <= 0xEF:
            following = 2
        elif 0xF0 <= lead <= 0xF4:
            following = 3
        else:
            return False
        if position + following >= end:
            return False
        second = text[position + 1]
        # overlong forms, surrogates and what is above U+10FFFF
        if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):
            return False
        if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
            return False
        for index in range(1, following + 1):
            if text[position + index] & 0xC0 != 0x80:
                return False
        position += following + 1
    return True
