"""TREC run lines read where they lie in the buffer, one pass, into the columns of the query at hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluation.kernel import layout as at
from evaluation.kernel.compilation import compiled, helper
from evaluation.kernel.layout import Ids, Integers, Judged, Lines, Numbers, Output, Queries, Tags
from evaluation.kernel.ranks import finish_query, note
from evaluation.kernel.scores import READ, UNDECIDED, read_score
from evaluation.kernel.tables import number_of_query
from evaluation.kernel.text import PADDING, Bytes, field_end, field_start, is_space, is_utf8, key_of, same_bytes

_NEWLINE = 10


@helper
def read_rank(text: Bytes, position: int, end: int) -> int:
    """The rank column as a whole number, -1 if it is none; it is only compared with the scores."""
    if text[position] == 45:
        return -1
    rank = np.int64(0)
    while position < end:
        digit = np.int64(text[position]) - 48
        if not 0 <= digit <= 9:
            return -1
        rank = min(rank * 10 + digit, 1 << 40)
        position += 1
    return rank


@helper
def see_tag(text: Bytes, start: int, end: int, line: int, state: Integers, noted: Integers, tags: Tags) -> None:
    """Remember a tag other than the line's before."""
    length = end - start
    for tag in range(state[at.TAGS]):
        first = tags.start[tag]
        if tags.start[tag + 1] - first == length and same_bytes(tags.text, first, text, start, length):
            state[at.TAG] = tag
            return
    tag = state[at.TAGS]
    if tag + 1 == len(tags.start):
        return
    first = tags.start[tag]
    for index in range(length):
        tags.text[first + index] = text[start + index]
    tags.start[tag + 1] = first + length
    state[at.TAG] = tag
    state[at.TAGS] = tag + 1
    note(noted, at.NEW_TAG, line)


@helper
def problem_of(
    text: Bytes, start: int, end: int, query_end: int, document_length: int, query_length: int, complete: bool,
    options: Integers,
) -> int:  # fmt: skip
    """What is wrong with a line's form, or -1."""
    if end - start > options[at.MAX_LINE]:
        return at.LINE_LENGTH
    if options[at.CHECK_ENCODING] and not is_utf8(text, start, end):
        return at.ENCODING
    if not complete:
        return at.FIELDS
    if query_length > options[at.MAX_ID] or document_length > options[at.MAX_ID]:
        return at.IDENTIFIER
    return -1


@helper
def open_query(
    text: Bytes, start: int, length: int, options: Integers, seed: np.uint64, state: Integers, queries: Queries
) -> int:
    """Make the query whose line begins at `start` the one at hand; DONE, or why that is not possible."""
    number = number_of_query(queries, state, text, start, length, seed)
    if number < 0:
        return at.TOO_MANY_QUERIES
    known = number < options[at.KNOWN_QUERIES] or options[at.ANY_QUERY] == 1
    if queries.seen[number] and known:
        return at.NOT_GROUPED
    queries.seen[number] = 1
    for index in range(length):
        queries.current[index] = text[start + index]
    state[at.QUERY_LENGTH] = length
    state[at.QUERY] = number if known else -1
    state[at.DESCENDING] = 1
    state[at.SELF_MATCH] = -1
    return at.DONE


@helper
def add_line(
    text: Bytes, start: int, length: int, rank: int, score: np.float32, number: int, options: Integers, seed: np.uint64,
    state: Integers, noted: Integers, lines: Lines, queries: Queries,
) -> None:  # fmt: skip
    """Append a line to the columns of the query at hand, and compare it with the line before."""
    count = state[at.COUNT]
    lines.first[count], lines.second[count], lines.hash[count] = key_of(text, start, length, seed)
    lines.start[count], lines.length[count], lines.number[count] = start, length, number
    lines.score[count] = score + np.float32(0)  # -0 becomes 0
    if count > 0:
        before, previous_rank = lines.score[count - 1], state[at.PREVIOUS_RANK]
        if score > before:
            state[at.DESCENDING] = 0
        if previous_rank >= 0 and ((score > before and rank > previous_rank) or (score < before and rank < previous_rank)):
            note(noted, at.RANK_ORDER, number)
    if rank < 0:
        note(noted, at.RANK_ORDER, number)
    state[at.PREVIOUS_RANK] = rank
    if (
        options[at.DROP_SELF_MATCHES]
        and length == state[at.QUERY_LENGTH]
        and same_bytes(text, start, queries.current, 0, length)
    ):
        state[at.SELF_MATCH] = count
    state[at.COUNT] = count + 1


@compiled
def read_lines(
    text: Bytes, stop: int, numbers: Numbers, options: Integers, seed: np.uint64, state: Integers, noted: Integers,
    given: NDArray[np.float32], lines: Lines, queries: Queries, judged: Judged, documents: Ids, elsewhere: Ids,
    tags: Tags, output: Output,
) -> int:  # fmt: skip
    """Read the lines from `state[POSITION]` to `stop` (behind a newline), and finish every query that ends there.

    `numbers` are the lines' numbers in the file where they were rearranged, else empty. `given[0]` is a score
    that was asked for by NEEDS_SCORE. Returns DONE or why it stopped before a line; called again, it goes on.
    """
    position = state[at.POSITION]
    status = at.DONE
    while position < stop:
        if state[at.COUNT] == len(lines.score):
            status = at.NEEDS_ROOM
            break
        line = state[at.LINE]
        number = np.int64(numbers[line]) if len(numbers) > 0 else line + 1
        query = field_start(text, position)
        if text[query] == _NEWLINE:
            note(noted, at.BLANK, number)
            state[at.LINE] = line + 1
            position = query + 1
            continue
        length = state[at.QUERY_LENGTH]
        same = length > 0 and is_space(text[query + length]) and same_bytes(text, query, queries.current, 0, length)
        query_end = query + length if same else field_end(text, query)
        iteration = field_start(text, query_end)
        document = field_start(text, field_end(text, iteration))
        document_end = field_end(text, document)
        rank = field_start(text, document_end)
        rank_end = field_end(text, rank)
        score = field_start(text, rank_end)
        score_end = field_end(text, score)
        tag = field_start(text, score_end)
        tag_end = field_end(text, tag)
        end = field_start(text, tag_end)
        complete = tag_end > tag and text[end] == _NEWLINE
        while text[end] != _NEWLINE:
            end = field_start(text, field_end(text, end))

        problem = problem_of(
            text, position, end, query_end, document_end - document, query_end - query, complete, options
        )
        value = np.float32(0)
        if problem < 0:
            outcome, value = read_score(text, score, score_end)
            if outcome == UNDECIDED:
                if state[at.GIVEN] == 0:
                    state[at.SCORE_START], state[at.SCORE_END] = score, score_end
                    status = at.NEEDS_SCORE
                    break
                state[at.GIVEN] = 0
                value = given[0]
                outcome = READ if np.isfinite(value) else UNDECIDED
            if outcome != READ:
                problem = at.SCORE
        state[at.LAST_TEXT_LINE] = max(state[at.LAST_TEXT_LINE], number)
        if problem >= 0:
            note(noted, problem, number)
            state[at.LINE] = line + 1
            position = end + 1
            continue
        if not same:
            finish_query(text, options, state, noted, lines, queries, judged, documents, elsewhere, output)
            state[at.COUNT] = 0
            status = open_query(text, query, query_end - query, options, seed, state, queries)
            if status != at.DONE:
                break
        if state[at.QUERY] < 0:
            note(noted, at.UNKNOWN_QUERY, number)
        else:
            if state[at.COUNT] == 0:
                state[at.GROUP_START] = position
            add_line(
                text, document, document_end - document, read_rank(text, rank, rank_end), value, number, options, seed,
                state, noted, lines, queries,
            )  # fmt: skip
        known_tag = state[at.TAG]
        first = tags.start[known_tag]
        if tags.start[known_tag + 1] - first != tag_end - tag or not same_bytes(
            tags.text, first, text, tag, tag_end - tag
        ):
            see_tag(text, tag, tag_end, number, state, noted, tags)
        state[at.LINE] = line + 1
        position = end + 1
    state[at.POSITION] = position
    if state[at.COUNT] == 0:
        state[at.GROUP_START] = position
    return status


@compiled
def finish_last_query(
    text: Bytes, options: Integers, state: Integers, noted: Integers, lines: Lines, queries: Queries, judged: Judged,
    documents: Ids, elsewhere: Ids, output: Output,
) -> None:  # fmt: skip
    """Finish the query at hand when the file has ended."""
    finish_query(text, options, state, noted, lines, queries, judged, documents, elsewhere, output)
    state[at.COUNT] = 0


@compiled
def index_lines(
    text: Bytes, stop: int, seed: np.uint64, state: Integers, queries: Queries, starts: Integers, owners: Numbers
) -> int:
    """Where each line starts, and the number of its query (0 if it has none that fits); returns how many lines."""
    position = 0
    count = 0
    while position < stop:
        starts[count] = position
        query = field_start(text, position)
        length = field_end(text, query) - query
        owner = 0
        if 0 < length <= len(queries.current) - PADDING:
            owner = number_of_query(queries, state, text, query, length, seed)
            if owner < 0:
                return -1
        owners[count] = owner
        count += 1
        while text[position] != _NEWLINE:
            position += 1
        position += 1
    starts[count] = position
    return count


@compiled
def gather_lines(
    text: Bytes, starts: Integers, order: Integers, done: int, buffer: Bytes, filled: int, stop: int, longest: int
) -> tuple[int, int]:
    """Copy the lines `order[done:]` behind each other into `buffer[filled:stop]`, as many as fit, each cut to
    `longest` bytes. Returns how many lines are done, and where the buffer is filled to."""
    while done < len(order):
        start = starts[order[done]]
        length = min(starts[order[done] + 1] - start, longest)
        if filled + length > stop:
            break
        for index in range(length):
            buffer[filled + index] = text[start + index]
        filled += length
        buffer[filled - 1] = _NEWLINE
        done += 1
    return done, filled
