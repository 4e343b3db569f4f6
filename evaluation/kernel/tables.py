"""Hash tables of ids: open addressing, exact (equal hashes are verified by the bytes).

A set of ids is a table of slots of two words, empty where the first is 0. An id of at most 16 bytes is its slot. Of a
longer one the first word is the hash, the second (under LONG_ID) the place of its bytes among the long ids, where two
bytes of length precede them.
"""

from __future__ import annotations

from evaluation.kernel import layout as at
from evaluation.kernel.compilation import compiled, helper
from evaluation.kernel.memory import load, store, word
from evaluation.kernel.text import is_long, key_of, same_bytes

#: Rows of one score are looked for among so many neighbours on either side.
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
def equal_rows(row: int, step: int, most: int) -> int:
    """How many rows follow (step 1) or precede (step -1) a row with its score, if they are few."""
    equal = 0
    while equal < min(most, _FEW):
        if word(row + (equal + 1) * step * at.ROW_BYTES, at.SCORE) != word(row, at.SCORE):
            break
        equal += 1
    return equal


@compiled
def insert_judgements(keys: int, count: int, offsets: int, grades: int, slots: int, mask: int) -> None:
    """Put one query's judgements, keys as `keys_of` gives them, into its empty table."""
    for number in range(count):
        slot = word(keys, 3 * number + 2) & mask
        while word(slots, at.JUDGED_SIZE * slot) != 0:
            slot = (slot + 1) & mask
        store(slots, at.JUDGED_SIZE * slot + at.JUDGED_FIRST, word(keys, 3 * number))
        store(slots, at.JUDGED_SIZE * slot + at.JUDGED_SECOND, word(keys, 3 * number + 1))
        store(slots, at.JUDGED_SIZE * slot + at.JUDGED_AT, word(offsets, number))
        store(slots, at.JUDGED_SIZE * slot + at.JUDGED_GRADE, word(grades, number))


@compiled
def finish_query(state: int) -> int:
    """Find the rows whose document an earlier row has (their FLAG is set), and those that are judged.

    The latter are put into TRACKED: row number, grade, and (for scores that descend) the first row of the same score
    and how many there are, 0 for more than a few. Returns how many are judged, and in the bits from 32 on how many
    are duplicates.
    """
    rows, count = word(state, at.ROWS), word(state, at.COUNT)
    table, mask = word(state, at.TABLE), word(state, at.TABLE_MASK)
    judged, judged_mask, text = (
        word(state, at.JUDGED),
        word(state, at.JUDGED_MASK),
        word(state, at.JUDGED_TEXT),
    )
    tracked, found, duplicates = word(state, at.TRACKED), 0, 0
    for slot in range(mask + 1):
        store(table, slot, 0)
    for index in range(count):
        row = rows + index * at.ROW_BYTES
        first, second, start = word(row, at.FIRST), word(row, at.SECOND), word(row, at.START)
        slot = word(row, at.HASH) & mask
        same = False
        while word(table, slot) != 0 and not same:
            same = is_same_document(word(table, slot), first, second, start)
            slot = (slot + 1) & mask
        if same:
            store(row, at.FLAG, 1)
            duplicates += 1
        else:
            store(row, at.FLAG, 0)
            store(table, slot, row)
        if judged != 0:
            slot = word(row, at.HASH) & judged_mask
            entry = judged + 8 * at.JUDGED_SIZE * slot
            while word(entry, at.JUDGED_FIRST) != 0:
                if word(entry, at.JUDGED_SECOND) == second and is_same_document(
                    row, word(entry, at.JUDGED_FIRST), second, text + word(entry, at.JUDGED_AT)
                ):
                    store(tracked, at.TRACKED_SIZE * found, index)
                    store(tracked, at.TRACKED_SIZE * found + 1, word(entry, at.JUDGED_GRADE))
                    before, behind = equal_rows(row, -1, index), equal_rows(row, 1, count - 1 - index)
                    store(tracked, at.TRACKED_SIZE * found + 2, index - before)
                    few = before < _FEW and behind < _FEW
                    store(tracked, at.TRACKED_SIZE * found + 3, before + 1 + behind if few else 0)
                    found += 1
                    break
                slot = (slot + 1) & judged_mask
                entry = judged + 8 * at.JUDGED_SIZE * slot
    return found + (duplicates << 32)
