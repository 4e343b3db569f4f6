"""One pass over the lines of a run: the kernel reads lines and looks ids up, Python sees to whole queries.

The buffer always holds all lines of the query at hand, so that ids are compared where they lie.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.errors import InvalidContent
from evaluation.formats.compression import BLOCK, Limits, describe_bytes
from evaluation.formats.run_problems import Counted
from evaluation.formats.run_query import QueryAtHand, ReadingTask
from evaluation.formats.run_source import LONGEST_KEPT, LineSource, Progress, too_many_queries
from evaluation.kernel import layout as at
from evaluation.kernel.compilation import prepare
from evaluation.kernel.layout import Words, address
from evaluation.kernel.lines import FIELDS_KEPT, read_lines
from evaluation.kernel.scores import NOT_A_SCORE, POWERS_OF_TEN, sortable
from evaluation.kernel.tables import finish_query, look_up_ids
from evaluation.problems import Problem

_CODES = {
    at.BLANK: "blank", at.LINE_LENGTH: "line_length", at.ENCODING: "encoding", at.FIELDS: "fields",
    at.IDENTIFIER: "identifier", at.BAD_SCORE: "score", at.DUPLICATE: "duplicate",
    at.UNKNOWN_DOCUMENT: "unknown_documents", at.UNKNOWN_QUERY: "unknown_queries", at.DEPTH: "depth",
    at.RANK_ORDER: "rank_order", at.TIED: "ties",
}  # fmt: skip
_NOT_SCORED = ("line_length", "encoding", "fields", "identifier", "score", "unknown_queries")
_ISSUES = 8192
#: Distinct tags that are told apart, and changes from line to line after which tags are no longer looked at.
MAX_TAGS, MAX_TAG_CHANGES = 16, 10_000
_MARGIN = at.PADDING + 2 * LONGEST_KEPT


@dataclass(frozen=True, slots=True)
class RunContents:
    """What a pass found. `judgement`, `rank`: the numbers of the judgements whose documents the run has, and their
    ranks, in no order. `elsewhere`: row of the qrels and rank of documents judged for another query only. `seen` and
    `retrieved` (at most the maximum depth) are by query number."""

    counted: dict[str, Counted]
    lines: int
    cut_lines: int
    known_lines: int
    queries: int
    seen: NDArray[np.bool_]
    retrieved: Words
    judgement: Words
    rank: Words
    elsewhere: Words
    tags: tuple[str, ...]
    expanded_bytes: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class NotGroupedError(Exception):
    """A query came back after another one; the file is to be read again, in order of queries."""


class Noted:
    """How often each problem was seen, and its first lines."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.lines: dict[str, list[int]] = {}

    def add(self, code: str, numbers: Words) -> None:
        """Note a problem of the lines of these numbers."""
        if not len(numbers):
            return
        self.counts[code] = self.counts.get(code, 0) + len(numbers)
        smallest = np.partition(numbers, 5)[:5] if len(numbers) > 6 else numbers
        self.lines[code] = sorted([*self.lines.get(code, []), *smallest.tolist()])[:5]

    def counted(self) -> dict[str, Counted]:
        """All of it."""
        return {code: Counted(count, tuple(self.lines[code])) for code, count in self.counts.items()}


class RunPass:
    """The state of one pass."""

    def __init__(self, task: ReadingTask, limits: Limits, header_lines: int) -> None:
        prepare(read_lines, finish_query, *([look_up_ids] if task.documents or task.elsewhere else []))
        self.task, self.limits, self.header_lines = task, limits, header_lines
        self.noted = Noted()
        self.state = np.zeros(at.STATE_SIZE, np.int64)
        self.fields = np.zeros(2 * FIELDS_KEPT, np.int64)
        self.issues = np.zeros((_ISSUES, 2), np.int64)
        self.query_text = np.zeros(limits.max_id_bytes + at.PADDING, np.uint8)
        self.tag_text = np.zeros(limits.max_line_bytes + at.PADDING, np.uint8)
        self.tags: dict[bytes, int] = {}
        self.tag_changes = 0
        self.unknown: set[bytes] = set()
        self.seen = np.zeros(len(task.known), np.bool_)
        self.bad_text: set[int] = set()  # lines that are no text, made blank before the kernel sees them
        self._set_constants()
        self.query = QueryAtHand(task, self.state, self.noted)
        self.group_start = self.filled = self.position = 0
        self._use_buffer(np.zeros(2 * BLOCK + _MARGIN, np.uint8))

    def _set_constants(self) -> None:
        state, documents = self.state, self.task.documents
        state[at.FIRST_NUMBER] = self.header_lines + 1
        state[at.FIELD_SPACE] = address(self.fields)
        state[at.ISSUES], state[at.ISSUES_ROOM] = address(self.issues), _ISSUES
        state[at.QUERY], state[at.TAG] = address(self.query_text), address(self.tag_text)
        state[at.SEED], state[at.POWERS] = self.task.seed, address(POWERS_OF_TEN)
        state[at.MAX_LINE], state[at.MAX_ID] = self.limits.max_line_bytes, self.limits.max_id_bytes
        if documents is not None:
            state[at.PREFETCHED], state[at.PREFETCHED_MASK] = address(documents.slots), documents.mask

    def _use_buffer(self, buffer: NDArray[np.uint8]) -> None:
        self.buffer, self.base, self.view = buffer, address(buffer), memoryview(buffer.data)

    def read(self, source: LineSource, progress: Progress | None) -> RunContents:
        """Read all lines of a source."""
        self.numbers = source.numbers
        self.state[at.NUMBERS] = address(self.numbers) if len(self.numbers) else 0
        skipping = False  # within a line that is too long to keep
        while True:
            self._make_room()
            count = source.readinto(self.view[self.filled : self.filled + BLOCK])
            if not count:
                break
            if skipping:
                count = self._drop_to_newline(count)
                skipping = count == 0
            self.filled += count
            self._read_whole_lines()
            if self.filled - self.position > LONGEST_KEPT:
                self.filled = self.position + LONGEST_KEPT
                skipping = True
            if progress:
                progress(source.share_read)
        if self.filled > self.position:
            self.buffer[self.filled] = 10
            self.filled += 1
            self._read_whole_lines()
        self.query.finish()
        return self._contents()

    def _make_room(self) -> None:
        """Move the query at hand to the buffer's start, so that a block fits behind it."""
        start = self.group_start if self.state[at.COUNT] else self.position
        kept = self.filled - start
        if kept > self.limits.max_query_bytes:
            raise InvalidContent.of(
                Problem(
                    "error", "query_size", 1,
                    f"one query has more than {describe_bytes(self.limits.max_query_bytes)} of lines",
                    f"Keep at most {self.task.maximum_depth:,} documents per query.",
                )
            )  # fmt: skip
        old, old_base = self.buffer, self.base
        if kept + BLOCK + _MARGIN > len(old):
            self._use_buffer(np.zeros(2 * (kept + BLOCK) + _MARGIN, np.uint8))
        self.buffer[:kept] = old[start : self.filled]
        self.query.move(self.base - old_base - start)
        self.position, self.filled, self.group_start = self.position - start, kept, 0

    def _drop_to_newline(self, count: int) -> int:
        """Leave out the rest of a line that is too long; how many bytes remain, from its newline on."""
        fresh = self.buffer[self.filled : self.filled + count]
        end = fresh.tobytes().find(b"\n")
        if end < 0:
            return 0
        fresh[: count - end] = fresh[end:].copy()
        return count - end

    def _read_whole_lines(self) -> None:
        region = self.buffer[self.position : self.filled].tobytes()
        length = region.rfind(b"\n") + 1
        if not length:
            return
        if not _is_text(region, length):
            self._blank_what_is_no_text(region[:length])
        self._read_lines(self.position + length)
        self._collect_issues()
        self.bad_text.clear()

    def _blank_what_is_no_text(self, region: bytes) -> None:
        """Note lines that are not UTF-8, or have a NUL, and let the kernel see white space in their place."""
        offset, index = self.position, int(self.state[at.LINE])
        for line in region.split(b"\n")[:-1]:
            if len(line) <= self.limits.max_line_bytes and not _is_text(line, len(line)):
                self.buffer[offset : offset + len(line)] = 32
                self.bad_text.add(self._number(index))
            offset, index = offset + len(line) + 1, index + 1
        if self.bad_text:
            self.noted.add("encoding", np.array(sorted(self.bad_text), np.int64))
            self.state[at.LAST_TEXT] = max(int(self.state[at.LAST_TEXT]), *self.bad_text)

    def _number(self, index: int) -> int:
        """The number in the file of the line read as `index`-th."""
        return self.header_lines + 1 + (int(self.numbers[index]) if len(self.numbers) else index)

    def _read_lines(self, stop: int) -> None:
        state, where = self.state, address(self.state)
        state[at.POSITION], state[at.STOP] = self.base + self.position, self.base + stop
        while status := read_lines(where):
            if status == at.NEW_QUERY:
                self._open_query()
            elif status == at.NEW_TAG:
                self._open_tag()
            elif status == at.ISSUES_FULL:
                self._collect_issues()
            elif status == at.NEEDS_ROOM:
                self.query.grow()
            else:
                self._decide_score()
        self.position = stop

    def _field(self, number: int) -> bytes:
        start, end = self.fields[2 * number : 2 * number + 2].tolist()
        return bytes(self.view[start - self.base : end - self.base])

    def _open_query(self) -> None:
        """Finish the query at hand, and make that of the next line the one."""
        self.query.finish()
        query = self._field(0)
        number = self.task.known.get(query, -1)
        if number >= 0:
            if self.seen[number]:
                raise NotGroupedError
            self.seen[number] = True
        else:
            if query in self.unknown and not self.task.known:
                raise NotGroupedError
            self.unknown.add(query)
            if len(self.unknown) > self.limits.max_queries:
                raise too_many_queries(self.limits)
        self.query_text[: len(query)] = np.frombuffer(query, np.uint8)
        self.state[at.QUERY_LENGTH] = len(query)
        self.query.begin(number)
        self.group_start = int(self.state[at.POSITION]) - self.base

    def _open_tag(self) -> None:
        """Remember the next line's tag; a run that changes it all the time is no longer asked."""
        tag = self._field(5)
        if self.tags:
            self.tag_changes += 1
        if tag not in self.tags:
            self.tags[tag] = self._number(int(self.state[at.LINE]))
        if len(self.tags) >= MAX_TAGS or self.tag_changes >= MAX_TAG_CHANGES:
            self.state[at.TAG_LENGTH] = -1
            return
        self.tag_text[: len(tag)] = np.frombuffer(tag, np.uint8)
        self.state[at.TAG_LENGTH] = len(tag)

    def _decide_score(self) -> None:
        """A score too near to a rounding boundary for the kernel, by way of Python's exact conversion."""
        with np.errstate(over="ignore"):
            score = np.float32(float(self._field(4)))
        self.state[at.GIVEN] = 1
        bits = int(score.view(np.int32))
        self.state[at.GIVEN_SCORE] = sortable(bits) if np.isfinite(score) else NOT_A_SCORE

    def _collect_issues(self) -> None:
        count = int(self.state[at.ISSUE_COUNT])
        if not count:
            return
        self.state[at.ISSUE_COUNT] = 0
        codes, numbers = self.issues[:count, 0], self.issues[:count, 1]
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            lines = numbers[codes == code]
            if code == at.BLANK and self.bad_text:
                lines = lines[~np.isin(lines, list(self.bad_text))]
            self.noted.add(_CODES[code], lines)

    def _contents(self) -> RunContents:
        counted, lines = self.noted.counted(), int(self.state[at.LINE])
        blank = counted.pop("blank", Counted())
        # empty lines at the end of the file are no problem, others are lines without six fields
        last = int(self.state[at.LAST_TEXT])
        inner = blank.count - (self.header_lines + lines - last)
        if inner > 0 and last:
            fields = counted.get("fields", Counted())
            named = (*fields.lines, *(number for number in blank.lines if number < last))
            counted["fields"] = Counted(fields.count + inner, tuple(sorted(named)[:5]))
        if len(self.tags) > 1:
            counted["several_tags"] = Counted(len(self.tags), tuple(sorted(self.tags.values())[1:6]))
        unusable = sum(counted.get(code, Counted()).count for code in _NOT_SCORED)
        text_lines = lines - blank.count
        found: Words = self.query.found[: int(self.state[at.FOUND_COUNT])]
        found = found[found[:, at.FOUND_RANK] <= self.task.maximum_depth]
        return RunContents(
            counted=counted,
            lines=text_lines,
            cut_lines=self.query.cut_lines,
            known_lines=text_lines + max(0, inner) - unusable,
            queries=int(np.count_nonzero(self.seen)) + len(self.unknown),
            seen=self.seen,
            retrieved=self.query.retrieved,
            judgement=found[:, at.FOUND_JUDGEMENT],
            rank=found[:, at.FOUND_RANK],
            elsewhere=np.concatenate([np.zeros((0, 2), np.int64), *self.query.found_elsewhere]),
            tags=tuple(tag.decode("utf-8", "replace") for tag in self.tags),
        )


def _is_text(region: bytes, length: int) -> bool:
    """Whether the first `length` bytes are UTF-8 without NUL; the rest is an unfinished line."""
    if b"\0" in region:
        return False
    if region.isascii():
        return True
    try:
        codecs.utf_8_decode(memoryview(region)[:length], "strict", True)
    except UnicodeDecodeError:
        return False
    return True


__all__ = ["MAX_TAGS", "NotGroupedError", "ReadingTask", "RunContents", "RunPass"]
