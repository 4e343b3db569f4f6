"""TREC run lines read where they lie, one pass, into rows of the query at hand."""

from __future__ import annotations

from evaluation.kernel import layout as at
from evaluation.kernel.compilation import compiled, helper
from evaluation.kernel.memory import byte, prefetch, store, word
from evaluation.kernel.scores import NOT_A_SCORE, UNDECIDED, read_score
from evaluation.kernel.text import field_end, key_of, same_bytes

_NEWLINE = 10
_FIELDS = 6
#: Starts and ends of this many fields are kept; of further ones only the last.
FIELDS_KEPT = 8


@helper
def split_line(position: int, fields: int) -> tuple[int, int]:
    """Put the start and end of each field of the line at `position` into `fields`; how many there are, and where the
    line ends."""
    count = 0
    while True:
        character = byte(position)
        while character == 32 or (9 <= character <= 13 and character != _NEWLINE):
            position += 1
            character = byte(position)
        if character == _NEWLINE:
            return count, position
        store(fields, 2 * count, position)
        position = field_end(position)
        store(fields, 2 * count + 1, position)
        if count < FIELDS_KEPT - 1:
            count += 1


@helper
def read_rank(position: int, end: int) -> int:
    """The rank column as a whole number, -1 if it is none; it is only compared with the scores."""
    rank = 0
    while position < end:
        digit = byte(position) - 48
        if digit < 0 or digit > 9 or rank > 1 << 40:
            return -1
        rank = rank * 10 + digit
        position += 1
    return rank


@compiled
def read_lines(state: int) -> int:
    """Read lines from `state[POSITION]` to `state[STOP]` (behind a newline) into rows of the query at hand.

    Returns DONE, or why it stopped in front of a line: another query begins, another tag, there is no more room for
    rows or for issues, a score must be decided with more digits. Called again, it goes on there.
    """
    position, stop, line = word(state, at.POSITION), word(state, at.STOP), word(state, at.LINE)
    count, issues, issue_count = word(state, at.COUNT), word(state, at.ISSUES), word(state, at.ISSUE_COUNT)
    fields, numbers, seed = word(state, at.FIELD_SPACE), word(state, at.NUMBERS), word(state, at.SEED)
    max_id, ids, ids_mask = (
        word(state, at.MAX_ID),
        word(state, at.PREFETCHED),
        word(state, at.PREFETCHED_MASK),
    )
    status = at.DONE
    while position < stop:
        if issue_count + 4 > word(state, at.ISSUES_ROOM):
            status = at.ISSUES_FULL
            break
        number = word(state, at.FIRST_NUMBER) + (line if numbers == 0 else word(numbers, line))
        found, end = split_line(position, fields)
        query, query_length = word(fields, 0), word(fields, 1) - word(fields, 0)
        document, document_length = word(fields, 4), word(fields, 5) - word(fields, 4)
        problem, score = 0, 0
        if found == 0:
            problem = at.BLANK
        elif end - position > word(state, at.MAX_LINE):
            problem = at.LINE_LENGTH
        elif found != _FIELDS:
            problem = at.FIELDS
        elif query_length > max_id or document_length > max_id:
            problem = at.IDENTIFIER
        else:
            score = read_score(word(fields, 8), word(fields, 9), word(state, at.POWERS))
            if score == UNDECIDED:
                if word(state, at.GIVEN) == 0:
                    status = at.NEEDS_SCORE
                    break
                score = word(state, at.GIVEN_SCORE)
            if score == NOT_A_SCORE:
                problem = at.BAD_SCORE
        if problem == 0:
            at_hand = word(state, at.QUERY)
            if query_length != word(state, at.QUERY_LENGTH) or not same_bytes(query, at_hand, query_length):
                status = at.NEW_QUERY
                break
            tag, tag_length = word(fields, 10), word(fields, 11) - word(fields, 10)
            if word(state, at.TAG_LENGTH) >= 0 and (
                tag_length != word(state, at.TAG_LENGTH)
                or not same_bytes(tag, word(state, at.TAG), tag_length)
            ):
                status = at.NEW_TAG
                break
            if word(state, at.QUERY_KNOWN) == 0:
                problem = at.UNKNOWN_QUERY
            elif count == word(state, at.ROOM):
                status = at.NEEDS_ROOM
                break
        store(state, at.GIVEN, 0)
        line += 1
        position = end + 1
        if problem != at.BLANK and number > word(state, at.LAST_TEXT):
            store(state, at.LAST_TEXT, number)
        if problem != 0:
            store(issues, 2 * issue_count, problem)
            store(issues, 2 * issue_count + 1, number)
            issue_count += 1
            continue

        row = word(state, at.ROWS) + count * at.ROW_BYTES
        first, second, hashed = key_of(document, document_length, seed)
        if (
            ids != 0
        ):  # the table of documents is larger than the cache, and is asked when the query is complete
            prefetch(ids + 16 * (hashed & ids_mask))
        store(row, at.FIRST, first)
        store(row, at.SECOND, second)
        store(row, at.HASH, hashed)
        store(row, at.START, document)
        store(row, at.LENGTH, document_length)
        store(row, at.SCORE, score)
        store(row, at.NUMBER, number)
        rank, previous_rank = read_rank(word(fields, 6), word(fields, 7)), word(state, at.PREVIOUS_RANK)
        store(state, at.PREVIOUS_RANK, rank)
        change = 0
        if count > 0:
            change = score - word(row - at.ROW_BYTES, at.SCORE)
            if change > 0:
                store(state, at.DESCENDING, 0)
            elif change == 0:
                store(issues, 2 * issue_count, at.TIED)
                store(issues, 2 * issue_count + 1, number)
                issue_count += 1
        if rank < 0 or (
            previous_rank >= 0
            and ((change > 0 and rank > previous_rank) or (change < 0 and rank < previous_rank))
        ):
            store(issues, 2 * issue_count, at.RANK_ORDER)
            store(issues, 2 * issue_count + 1, number)
            issue_count += 1
        if document_length == query_length and same_bytes(document, query, query_length):
            store(state, at.SELF_MATCH, count)
        count += 1
    store(state, at.POSITION, position)
    store(state, at.LINE, line)
    store(state, at.COUNT, count)
    store(state, at.ISSUE_COUNT, issue_count)
    return status


@compiled
def index_lines(position: int, stop: int, seed: int, starts: int, hashes: int) -> int:
    """Where each line starts, and a hash of its query (0 if it has none); returns how many lines there are."""
    first, count = position, 0
    while position < stop:
        store(starts, count, position - first)
        while byte(position) == 32 or (9 <= byte(position) <= 13 and byte(position) != _NEWLINE):
            position += 1
        hashed = 0
        if byte(position) != _NEWLINE:
            end = field_end(position)
            _, _, hashed = key_of(position, end - position, seed)
            position = end
        store(hashes, count, hashed)
        count += 1
        while byte(position) != _NEWLINE:
            position += 1
        position += 1
    store(starts, count, position - first)
    return count
