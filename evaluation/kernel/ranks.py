"""What is done when a query's last line was read: duplicates, unknown documents, ties, and ranks of judged documents."""

from __future__ import annotations

import numpy as np

from evaluation.kernel.compilation import helper
from evaluation.kernel.layout import (
    CHECK_DOCUMENTS,
    CHECKED_LINES,
    COUNT,
    CUT_LINES,
    DEPTH,
    DESCENDING,
    DUPLICATE,
    ELSEWHERE,
    ELSEWHERE_DEPTH,
    MAX_DEPTH,
    NAMED_LINES,
    OUTPUT,
    QUERY,
    SELF_MATCH,
    TIED,
    UNKNOWN_DOCUMENT,
    Ids,
    Integers,
    Judged,
    Lines,
    Output,
    Queries,
)
from evaluation.kernel.tables import in_ids
from evaluation.kernel.text import Bytes, bytes_precede, is_long, same_bytes


@helper
def note(noted: Integers, code: int, line: int) -> None:
    """Count a problem, and keep the five smallest line numbers in order."""
    kept = min(noted[code, 0], NAMED_LINES)
    noted[code, 0] += 1
    if kept == NAMED_LINES:
        if line >= noted[code, NAMED_LINES]:
            return
        kept -= 1
    while kept > 0 and noted[code, kept] > line:
        noted[code, kept + 1] = noted[code, kept]
        kept -= 1
    noted[code, kept + 1] = line


@helper
def precedes(lines: Lines, text: Bytes, line: int, other: int) -> bool:
    """trec_eval's order, the only one: score descending, then document id descending by its bytes."""
    if lines.score[line] != lines.score[other]:
        return lines.score[line] > lines.score[other]
    return bytes_precede(
        text, lines.start[other], lines.length[other], lines.start[line], lines.length[line]
    )


@helper
def clear_table(lines: Lines, count: int) -> int:
    """Empty as much of the working table as `count` entries need; its mask."""
    size = 16
    while size < 2 * count:
        size *= 2
    lines.table[:size] = 0
    return size - 1


@helper
def find_duplicates(lines: Lines, text: Bytes, count: int, noted: Integers) -> None:
    """Note every line whose document an earlier line has."""
    mask = clear_table(lines, count)
    for line in range(count):
        slot = np.int64(lines.hash[line] & np.uint64(mask))
        while lines.table[slot] != 0:
            other = lines.table[slot] - 1
            if (
                lines.first[other] == lines.first[line]
                and lines.second[other] == lines.second[line]
                and (
                    not is_long(lines.second[line])
                    or same_bytes(text, lines.start[other], text, lines.start[line], lines.length[line])
                )
            ):
                note(noted, DUPLICATE, lines.number[line])
                break
            slot = (slot + 1) & mask
        else:
            lines.table[slot] = line + 1


@helper
def find_ties(lines: Lines, count: int, descending: bool, noted: Integers) -> None:
    """Note every line whose score an earlier line has."""
    if descending:
        for line in range(1, count):
            if lines.score[line] == lines.score[line - 1]:
                note(noted, TIED, lines.number[line])
        return
    mask = clear_table(lines, count)
    bits = lines.score.view(np.uint32)
    for line in range(count):
        slot = np.int64((np.uint64(bits[line]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & mask
        while lines.table[slot] != 0:
            if bits[lines.table[slot] - 1] == bits[line]:
                note(noted, TIED, lines.number[line])
                break
            slot = (slot + 1) & mask
        else:
            lines.table[slot] = line + 1


@helper
def judgement_of(judged: Judged, row: int, lines: Lines, text: Bytes, line: int) -> int:
    """The number of the judgement of a line's document for the query, or -1."""
    offset = judged.slot_offset[row]
    mask = judged.slot_offset[row + 1] - offset - 1
    slot = np.int64(lines.hash[line] & np.uint64(mask))
    while judged.slots[offset + slot] != 0:
        number = judged.slots[offset + slot] - 1
        if (
            judged.first[number] == lines.first[line]
            and judged.second[number] == lines.second[line]
            and (
                not is_long(lines.second[line])
                or same_bytes(judged.text, judged.start[number], text, lines.start[line], lines.length[line])
            )
        ):
            return np.int64(number)
        slot = (slot + 1) & mask
    return -1


@helper
def track(
    lines: Lines, text: Bytes, count: int, skip: int, row: int, judged: Judged, elsewhere: Ids, look_elsewhere: bool
) -> int:
    """List the lines whose rank is wanted, with their grades; how many."""
    tracked = 0
    for line in range(count):
        if line == skip:
            continue
        number = judgement_of(judged, row, lines, text, line)
        if number >= 0:
            lines.grade[tracked] = judged.grade[number]
        elif look_elsewhere and in_ids(
            elsewhere, text, lines.start[line], lines.length[line], lines.first[line], lines.second[line], lines.hash[line]
        ):
            lines.grade[tracked] = ELSEWHERE
        else:
            continue
        lines.tracked[tracked] = line
        tracked += 1
    return tracked


@helper
def sort_tracked(lines: Lines, text: Bytes, tracked: int) -> None:
    """Shell sort into trec_eval's order: short, in place, and fast on the nearly sorted lists that occur."""
    gap = 1
    while 3 * gap < tracked:
        gap = 3 * gap + 1
    while gap > 0:
        for index in range(gap, tracked):
            line, grade = lines.tracked[index], lines.grade[index]
            at = index
            while at >= gap and precedes(lines, text, line, lines.tracked[at - gap]):
                lines.tracked[at], lines.grade[at] = lines.tracked[at - gap], lines.grade[at - gap]
                at -= gap
            lines.tracked[at], lines.grade[at] = line, grade
        gap //= 3


@helper
def count_before(lines: Lines, text: Bytes, count: int, tracked: int) -> None:
    """Set `before[i]` to how many lines come before tracked line i, but not before i - 1."""
    lines.before[: tracked + 1] = 0
    for line in range(count):
        low, high = 0, tracked
        while low < high:
            middle = (low + high) >> 1
            other = lines.tracked[middle]
            if lines.score[other] > lines.score[line] or (
                lines.score[other] == lines.score[line] and (other == line or precedes(lines, text, other, line))
            ):
                low = middle + 1
            else:
                high = middle
        lines.before[low] += 1


@helper
def finish_query(
    text: Bytes, options: Integers, state: Integers, noted: Integers, lines: Lines, queries: Queries, judged: Judged,
    documents: Ids, elsewhere: Ids, output: Output,
) -> None:  # fmt: skip
    """Check the lines of the query at hand, and put the ranks of its judged documents into `output`."""
    count, query = state[COUNT], state[QUERY]
    if count == 0:
        return
    find_duplicates(lines, text, count, noted)
    find_ties(lines, count, state[DESCENDING] == 1, noted)
    if options[CHECK_DOCUMENTS]:
        state[CHECKED_LINES] += count
        for line in range(count):
            if not in_ids(
                documents, text, lines.start[line], lines.length[line], lines.first[line], lines.second[line],
                lines.hash[line],
            ):  # fmt: skip
                note(noted, UNKNOWN_DOCUMENT, lines.number[line])
    skip = state[SELF_MATCH]
    if skip >= 0:
        lines.score[skip] = -np.inf  # behind every other line, so that it takes no rank
    retrieved = count - (skip >= 0)
    depth = options[MAX_DEPTH]
    if retrieved > depth:
        note(noted, DEPTH, lines.number[depth])
        state[CUT_LINES] += retrieved - depth
    queries.retrieved[query] = min(retrieved, depth)
    row = np.int64(judged.row[query]) if query < len(judged.row) else -1
    if row < 0:
        return
    tracked = track(lines, text, count, skip, row, judged, elsewhere, options[ELSEWHERE_DEPTH] > 0)
    if tracked == 0:
        return
    sort_tracked(lines, text, tracked)
    count_before(lines, text, count, tracked)
    rank = 1
    for index in range(tracked):
        rank += lines.before[index]
        grade = lines.grade[index]
        limit = options[ELSEWHERE_DEPTH] if grade == ELSEWHERE else depth
        if rank <= limit and state[OUTPUT] < len(output.rank):
            output.query[state[OUTPUT]] = query
            output.rank[state[OUTPUT]] = rank
            output.grade[state[OUTPUT]] = grade
            state[OUTPUT] += 1
