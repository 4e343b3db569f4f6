"""Hash tables of ids: open addressing, exact (equal hashes are verified by the bytes).

A set of ids is a table of slots of two words, empty where the first is 0. An id of at most 16 bytes is its slot. Of a
longer one the first word is the hash, the second (under LONG_ID) the place of its bytes among the long ids, where two
bytes of length precede them.
"""

from __future__ import annotations

from evaluation.kernel import layout as at
from evaluation.kernel.compilation import compiled, helper
from evaluation.kernel.memory import byte, load, store, word
from evaluation.kernel.text import is_long, key_of, same_bytes

#: More rows of one score than this are put in order by Python.
_FEW = 32


@compiled
def keys_of(text: int, offsets: int, count: int, seed: int, keys: int) -> None:
    """Fill `keys` (first word, second word, hash) for the ids `text[offsets[i]:offsets[i + 1]]`."""
    for number in range(count):
        start = word(offsets, number)
        first, second, hashed = key_of(text + start, word(offsets, number + 1) - start, seed)
        store(keys, 3 * number, first)
        store(keys, 3 * number + 1, second)
        store(keys, 3 * number + 2, hashed)


@compiled
def insert_ids(keys: int, count: int, slots: int, mask: int, long_ids: int) -> int:
    """Put ids, given as `keys_of` does, into a set; how many were new.

    The bytes of long ids are among `long_ids` already, and their second words say where.
    """
    new = 0
    for number in range(count):
        first, second = word(keys, 3 * number), word(keys, 3 * number + 1)
        slot = word(keys, 3 * number + 2) & mask
        same = False
        while word(slots, 2 * slot) != 0 and not same:
            other = word(slots, 2 * slot + 1)
            same = word(slots, 2 * slot) == first and other == second
            if word(slots, 2 * slot) == first and is_long(second) and is_long(other):
                mine, theirs = long_ids + (second ^ at.LONG_ID), long_ids + (other ^ at.LONG_ID)
                # the two bytes of length are compared with the rest
                same = same_bytes(mine, theirs, (load(mine) & 0xFFFF) + 2)
            slot = (slot + 1) & mask
        if not same:
            store(slots, 2 * slot, first)
            store(slots, 2 * slot + 1, second)
            new += 1
    return new


@compiled
def look_up_ids(rows: int, count: int, slots: int, mask: int, long_ids: int) -> int:
    """Set each row's FLAG to whether its document is in a set of ids; how many are not."""
    missing = 0
    for index in range(count):
        row = rows + index * at.ROW_BYTES
        first, second = word(row, at.FIRST), word(row, at.SECOND)
        slot = word(row, at.HASH) & mask
        found = 0
        while word(slots, 2 * slot) != 0:
            if word(slots, 2 * slot) == first:
                other = word(slots, 2 * slot + 1)
                if other == second and not is_long(second):
                    found = 1
                    break
                if is_long(second) and is_long(other):
                    theirs, length = long_ids + (other ^ at.LONG_ID), word(row, at.LENGTH)
                    if load(theirs) & 0xFFFF == length and same_bytes(
                        theirs + 2, word(row, at.START), length
                    ):
                        found = 1
                        break
            slot = (slot + 1) & mask
        store(row, at.FLAG, found)
        missing += 1 - found
    return missing


@helper
def is_same_document(row: int, first: int, second: int, start: int) -> bool:
    """Whether a row's document has that key, and, if that does not tell, those bytes."""
    return (
        word(row, at.FIRST) == first
        and word(row, at.SECOND) == second
        and (not is_long(second) or same_bytes(word(row, at.START), start, word(row, at.LENGTH)))
    )


@helper
def is_greater(row: int, other: int) -> bool:
    """Whether a row's document id is greater, by its bytes, than another row's."""
    start, other_start, done = word(row, at.START), word(other, at.START), 0
    while done < word(other, at.LENGTH):
        if done == word(row, at.LENGTH):
            return False
        difference = byte(start + done) - byte(other_start + done)
        if difference != 0:
            return difference > 0
        done += 1
    return done < word(row, at.LENGTH)


@helper
def rank_of(index: int, rows: int, count: int) -> int:
    """The rank of a row where scores descend: trec_eval puts those of the same score with greater ids before it.
    0 if there are more than a few of the same score."""
    row = rows + index * at.ROW_BYTES
    first, score = index, word(row, at.SCORE)
    while first > 0 and index - first <= _FEW and word(rows + (first - 1) * at.ROW_BYTES, at.SCORE) == score:
        first -= 1
    rank, other = first + 1, first
    while other < count and word(rows + other * at.ROW_BYTES, at.SCORE) == score:
        if other - first > _FEW:
            return 0
        if is_greater(rows + other * at.ROW_BYTES, row):
            rank += 1
        other += 1
    return rank


@compiled
def finish_query(state: int) -> int:
    """Find the rows whose document an earlier row has (their FLAG is set), and those that are judged.

    The latter are appended to FOUND, with their ranks if scores descend. Returns how many duplicates there are.
    """
    rows, count, seed = word(state, at.ROWS), word(state, at.COUNT), word(state, at.SEED)
    table, mask = word(state, at.TABLE), word(state, at.TABLE_MASK)
    for slot in range(mask + 1):
        store(table, slot, 0)
    duplicates = 0
    for index in range(count):
        row = rows + index * at.ROW_BYTES
        first, second, start = word(row, at.FIRST), word(row, at.SECOND), word(row, at.START)
        slot, same = word(row, at.HASH) & mask, 0
        while word(table, slot) != 0:
            if is_same_document(rows + (word(table, slot) - 1) * at.ROW_BYTES, first, second, start):
                same = 1
                break
            slot = (slot + 1) & mask
        store(row, at.FLAG, same)
        duplicates += same
        if same == 0:
            store(table, slot, index + 1)

    text, offsets = word(state, at.JUDGED_TEXT), word(state, at.JUDGED_OFFSETS)
    for judgement in range(word(state, at.JUDGED_FROM), word(state, at.JUDGED_TO)):
        start = text + word(offsets, judgement)
        first, second, hashed = key_of(start, text + word(offsets, judgement + 1) - start, seed)
        slot = hashed & mask
        while word(table, slot) != 0:
            index = word(table, slot) - 1
            if is_same_document(rows + index * at.ROW_BYTES, first, second, start):
                found = word(state, at.FOUND) + word(state, at.FOUND_COUNT) * 8 * at.FOUND_SIZE
                store(found, at.FOUND_JUDGEMENT, judgement)
                store(
                    found,
                    at.FOUND_RANK,
                    rank_of(index, rows, count) if word(state, at.DESCENDING) == 1 else 0,
                )
                store(found, at.FOUND_ROW, index)
                store(state, at.FOUND_COUNT, word(state, at.FOUND_COUNT) + 1)
                break
            slot = (slot + 1) & mask
    return duplicates
