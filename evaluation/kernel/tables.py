"""Hash tables of ids: open addressing, exact (equal hashes are verified by the bytes)."""

from __future__ import annotations

import numpy as np

from evaluation.kernel.compilation import compiled, helper
from evaluation.kernel.layout import QUERIES, QUERY_LENGTH, Ids, Integers, Numbers, Queries, Words
from evaluation.kernel.text import LONG_ID, Bytes, is_long, key_of, same_bytes


@helper
def in_ids(ids: Ids, text: Bytes, start: int, length: int, first: np.uint64, second: np.uint64, hashed: np.uint64) -> bool:
    """Whether an id, with its key and hash, is in the set."""
    mask = (len(ids.slots) >> 1) - 1
    slot = np.int64(hashed & np.uint64(mask))
    while ids.slots[2 * slot] != 0:
        if ids.slots[2 * slot] == first:
            other = ids.slots[2 * slot + 1]
            if other == second and not is_long(second):
                return True
            if is_long(second) and is_long(other):
                at = np.int64(other & ~LONG_ID)
                other_length = np.int64(ids.long_ids[at]) + (np.int64(ids.long_ids[at + 1]) << 8)
                if other_length == length and same_bytes(text, start, ids.long_ids, at + 2, length):
                    return True
        slot = (slot + 1) & mask
    return False


@compiled
def are_in_ids(ids: Ids, text: Bytes, offsets: Integers, seed: np.uint64, found: Bytes) -> None:
    """Set `found[i]` where the id `text[offsets[i]:offsets[i + 1]]` is in the set."""
    for number in range(len(found)):
        start, length = offsets[number], offsets[number + 1] - offsets[number]
        first, second, hashed = key_of(text, start, length, seed)
        found[number] = in_ids(ids, text, start, length, first, second, hashed)


@compiled
def keys_of(text: Bytes, offsets: Integers, seed: np.uint64, keys: Words) -> None:
    """Fill `keys` (ids × first word, second word, hash)."""
    for number in range(len(keys)):
        start = offsets[number]
        first, second, hashed = key_of(text, start, offsets[number + 1] - start, seed)
        keys[number, 0], keys[number, 1], keys[number, 2] = first, second, hashed


@compiled
def insert_ids(ids: Ids, keys: Words) -> int:
    """Put ids into the set; those longer than a key have their bytes in `long_ids` already, and the place in the
    second word. Returns how many were new."""
    mask = (len(ids.slots) >> 1) - 1
    new = 0
    for number in range(len(keys)):
        first, second = keys[number, 0], keys[number, 1]
        slot = np.int64(keys[number, 2] & np.uint64(mask))
        while ids.slots[2 * slot] != 0:
            if ids.slots[2 * slot] == first:
                other = ids.slots[2 * slot + 1]
                if other == second:
                    break
                if is_long(second) and is_long(other):
                    at, there = np.int64(second & ~LONG_ID), np.int64(other & ~LONG_ID)
                    length = np.int64(ids.long_ids[at]) + (np.int64(ids.long_ids[at + 1]) << 8)
                    # the two bytes of length in front are compared with the rest
                    if same_bytes(ids.long_ids, at, ids.long_ids, there, length + 2):
                        break
            slot = (slot + 1) & mask
        else:
            ids.slots[2 * slot], ids.slots[2 * slot + 1] = first, second
            new += 1
    return new


@helper
def number_of_query(queries: Queries, state: Integers, text: Bytes, start: int, length: int, seed: np.uint64) -> int:
    """The number of a query id, a new one if it was not seen before; -1 where there is no room for it."""
    first, second, hashed = key_of(text, start, length, seed)
    mask = len(queries.slots) - 1
    slot = np.int64(hashed & np.uint64(mask))
    while queries.slots[slot] != 0:
        number = np.int64(queries.slots[slot]) - 1
        if (
            queries.first[number] == first
            and queries.second[number] == second
            and (not is_long(second) or same_bytes(queries.text, queries.start[number], text, start, length))
        ):
            return number
        slot = (slot + 1) & mask
    number = state[QUERIES]
    if number == len(queries.first):
        return -1
    queries.slots[slot] = number + 1
    queries.first[number], queries.second[number] = first, second
    at = queries.start[number]
    for index in range(length):
        queries.text[at + index] = text[start + index]
    queries.start[number + 1] = at + length
    state[QUERIES] = number + 1
    return number


@compiled
def number_queries(queries: Queries, state: Integers, text: Bytes, offsets: Integers, seed: np.uint64) -> None:
    """Number the dataset's own queries, in their order."""
    state[QUERY_LENGTH] = 0
    for number in range(len(offsets) - 1):
        number_of_query(queries, state, text, offsets[number], offsets[number + 1] - offsets[number], seed)


@compiled
def insert_judgements(slots: Numbers, slot_offset: Integers, offsets: Integers, keys: Words) -> None:
    """Fill each query's own table (a power of two long) with judgement number + 1."""
    for row in range(len(offsets) - 1):
        mask = slot_offset[row + 1] - slot_offset[row] - 1
        for number in range(offsets[row], offsets[row + 1]):
            slot = np.int64(keys[number, 2] & np.uint64(mask))
            while slots[slot_offset[row] + slot] != 0:
                slot = (slot + 1) & mask
            slots[slot_offset[row] + slot] = number + 1
