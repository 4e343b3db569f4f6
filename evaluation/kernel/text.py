"""Text in memory: where a field ends, whether bytes are equal, and the key and hash of an id."""

from __future__ import annotations

from evaluation.kernel.compilation import helper
from evaluation.kernel.layout import LONG_ID, LONG_MARK, SHORT_BYTES
from evaluation.kernel.memory import byte, fold, load, trailing_zeros

_SPACES = 0x2121212121212121
_HIGH_BITS = 0x8080808080808080 - (1 << 64)
# Multipliers whose bytes are not valid UTF-8, so that no id can equal one and cancel it.
_FIRST = 0xA0761D6478BD642F - (1 << 64)
_SECOND = 0xE7037ED1A0B428DB - (1 << 64)


@helper
def field_end(position: int) -> int:
    """The first ASCII white space (C's `isspace`) at or after an address."""
    while True:
        word = load(position)
        low = (word - _SPACES) & ~word & _HIGH_BITS  # the lowest set bit marks the first byte below 0x21
        if low == 0:
            position += 8
            continue
        position += trailing_zeros(low) >> 3
        character = byte(position)
        if character == 32 or 9 <= character <= 13:
            return position
        position += 1  # another control character


@helper
def low_bytes(word: int, count: int) -> int:
    """The first `count` bytes of a word, the others 0."""
    return word if count >= 8 else word & ~(-1 << 8 * count)


@helper
def same_bytes(first: int, second: int, length: int) -> bool:
    """Whether `length` bytes at two addresses are equal."""
    while length > 8:
        if load(first) != load(second):
            return False
        first += 8
        second += 8
        length -= 8
    return low_bytes(load(first) ^ load(second), length) == 0


@helper
def key_of(start: int, length: int, seed: int) -> tuple[int, int, int]:
    """(first word, second word, hash) of an id.

    For at most 16 bytes the two words are the id itself, padded with zeros, and equal words are equal ids. For
    longer ones they are its hash and its length under LONG_ID: equal words are to be verified by the bytes.
    """
    if length <= SHORT_BYTES:
        first = low_bytes(load(start), length)
        second = low_bytes(load(start + 8), length - 8) if length > 8 else 0
    else:
        first, done = seed, 0
        while done + 8 < length:
            first = fold(first ^ load(start + done), _FIRST)
            done += 8
        first = fold(first ^ load(start + length - 8), _SECOND ^ length) | 1
        second = LONG_ID | length
    return first, second, fold(fold(first ^ seed, second ^ _FIRST) ^ seed, _SECOND)


@helper
def is_long(second: int) -> bool:
    """Whether a key's second word says that the id is longer than the key."""
    return second >> 56 == LONG_MARK
