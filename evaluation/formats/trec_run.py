"""TREC runs read, checked and reduced to the ranks of their judged documents, in one pass over the file."""

from __future__ import annotations

import codecs
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.errors import InvalidRun
from evaluation.formats.compression import BLOCK, Limits, describe_bytes, open_expanded
from evaluation.formats.mteb import looks_like_json, predictions_as_lines
from evaluation.formats.run_header import RunHeader, read_header
from evaluation.formats.run_problems import Counted
from evaluation.formats.run_source import (
    LONGEST_KEPT,
    GroupedLines,
    LineSource,
    Progress,
    StreamedLines,
    too_many_queries,
)
from evaluation.kernel import layout as at
from evaluation.kernel.layout import Ids, Judged, Output, Tags, grown_lines, new_lines, new_queries
from evaluation.kernel.lines import finish_last_query, read_lines
from evaluation.kernel.tables import number_queries
from evaluation.kernel.text import PADDING
from evaluation.problems import Problem

_CODES = {
    "line_length": at.LINE_LENGTH, "encoding": at.ENCODING, "fields": at.FIELDS, "identifier": at.IDENTIFIER,
    "score": at.SCORE, "duplicate": at.DUPLICATE, "unknown_documents": at.UNKNOWN_DOCUMENT,
    "unknown_queries": at.UNKNOWN_QUERY, "depth": at.DEPTH, "rank_order": at.RANK_ORDER, "ties": at.TIED,
    "several_tags": at.NEW_TAG,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """What a run is read against: `query_text[query_offsets[i]:query_offsets[i + 1]]` is the id of query i."""

    query_text: NDArray[np.uint8]
    query_offsets: NDArray[np.int64]
    judged: Judged
    judgements: int
    documents: Ids
    check_documents: bool
    elsewhere: Ids
    #: How deep documents judged for other queries are looked for, 0 for not at all.
    elsewhere_depth: int
    seed: int
    drop_self_matches: bool
    maximum_depth: int

    @property
    def queries(self) -> int:
        """How many queries the dataset has."""
        return len(self.query_offsets) - 1


@dataclass(frozen=True, slots=True)
class RunContents:
    """What a pass found. `query`, `rank`, `grade`: the judged documents retrieved, grouped by query, by rank;
    `seen` and `retrieved` (at most the maximum depth) are by query number."""

    counted: dict[str, Counted]
    lines: int
    cut_lines: int
    known_lines: int
    queries: int
    seen: NDArray[np.bool_]
    retrieved: NDArray[np.int32]
    query: NDArray[np.int32]
    rank: NDArray[np.int32]
    grade: NDArray[np.int32]
    tags: tuple[str, ...]
    expanded_bytes: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class _NotGroupedError(Exception):
    """A query came back after another one; the file is read again, in order of queries."""


def read_run(path: Path | str, task: ReadingTask, limits: Limits, progress: Progress | None = None) -> RunContents:
    """Read a run (TREC lines or MTEB predictions, plain or compressed).

    `progress` is called between blocks with the share read, and may raise to stop. Raises InvalidContent where
    the file cannot be read to its end; all other problems are counted in the result.
    """
    path = Path(path)
    with open_expanded(path, limits) as file:
        block = bytearray(BLOCK)
        start = b""
        while len(start) < BLOCK and (count := file.readinto(memoryview(block))):
            start += block[:count]
        if looks_like_json(start):
            return _read_predictions(path, task, limits, progress)
        header = read_header(start)
        _refuse_lone_carriage_returns(start[header.size :])
        lines = _RunPass(task, limits, header.lines)
        try:
            contents = lines.read(StreamedLines(file, start[header.size :]), progress)
            return _with_header(contents, header, file.expanded_bytes)
        except _NotGroupedError:
            del lines
    source = GroupedLines(path, header.size, header.lines, limits, task.seed, progress)
    return _with_header(_RunPass(task, limits, header.lines).read(source, progress), header, source.starts[-1] + header.size)


def _read_predictions(path: Path, task: ReadingTask, limits: Limits, progress: Progress | None) -> RunContents:
    with tempfile.NamedTemporaryFile(prefix="predictions-", suffix=".run") as lines:
        metadata = predictions_as_lines(path, limits, lines.file)
        lines.flush()
        contents = read_run(lines.name, task, limits, progress)
    # the lines are ours, so their numbers would tell the sender nothing
    counted = {code: Counted(counted.count) for code, counted in contents.counted.items()}
    return replace(contents, counted=counted, metadata=metadata)


def _with_header(contents: RunContents, header: RunHeader, expanded_bytes: int) -> RunContents:
    counted = contents.counted
    if header.byte_order_mark:
        found = counted.get("encoding", Counted())
        counted = {**counted, "encoding": Counted(found.count + 1, (1, *found.lines)[:5])}
    return replace(contents, counted=counted, expanded_bytes=int(expanded_bytes), metadata=header.metadata)


def _refuse_lone_carriage_returns(start: bytes) -> None:
    if b"\n" not in start and b"\r" in start.rstrip(b"\r"):
        message = "lines end with a carriage return alone, so the file is a single line"
        raise InvalidRun.of(Problem("error", "encoding", 1, message, "End lines with LF, or with CR LF.", (1,)))


class _RunPass:
    """The state of one pass: a buffer that always holds the whole of the query at hand, and the kernel's arrays."""

    def __init__(self, task: ReadingTask, limits: Limits, header_lines: int) -> None:
        self.task, self.limits = task, limits
        self.state = np.zeros(at.STATE_SIZE, np.int64)
        self.noted = np.zeros((at.CODES, 1 + at.NAMED_LINES), np.int64)
        self.given = np.zeros(1, np.float32)
        self.margin = PADDING + 2 * LONGEST_KEPT  # what the kernel may look at behind the last line
        self.buffer = np.zeros(2 * BLOCK + self.margin, np.uint8)
        self.filled = 0
        self.lines = new_lines(4096)
        longest = max(limits.max_id_bytes, int(np.diff(task.query_offsets).max(initial=0)))
        self.queries = new_queries(limits.max_queries + task.queries, longest)
        number_queries(self.queries, self.state, task.query_text, task.query_offsets, np.uint64(task.seed))
        self.options = self._options()
        self.tags = Tags(np.zeros(at.MAX_TAGS * LONGEST_KEPT, np.uint8), np.zeros(at.MAX_TAGS + 1, np.int64))
        room = task.judgements + task.queries * task.elsewhere_depth
        self.output = Output(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32))
        self.state[at.QUERY] = self.state[at.SELF_MATCH] = -1
        self.header_lines = header_lines

    def _options(self) -> NDArray[np.int64]:
        options = np.zeros(at.OPTIONS_SIZE, np.int64)
        options[at.MAX_LINE] = self.limits.max_line_bytes
        options[at.MAX_ID] = self.limits.max_id_bytes
        options[at.MAX_DEPTH] = self.task.maximum_depth
        options[at.DROP_SELF_MATCHES] = self.task.drop_self_matches
        options[at.KNOWN_QUERIES] = self.task.queries
        options[at.ANY_QUERY] = self.task.queries == 0
        options[at.CHECK_DOCUMENTS] = self.task.check_documents
        options[at.ELSEWHERE_DEPTH] = self.task.elsewhere_depth
        return options

    def read(self, source: LineSource, progress: Progress | None) -> RunContents:
        """Read all lines of a source."""
        self.numbers = source.numbers
        first_line = 0 if len(self.numbers) else self.header_lines
        self.state[at.LINE] = first_line
        view = memoryview(self.buffer.data)
        skipping = False  # within a line that is too long to keep
        while True:
            if self._make_room():
                view = memoryview(self.buffer.data)
            count = source.readinto(view[self.filled : self.filled + BLOCK])
            if not count:
                break
            if skipping:
                count = self._drop_to_newline(count)
                skipping = count == 0
            self.filled += count
            self._read_whole_lines()
            unread = self.filled - int(self.state[at.POSITION])
            if unread > LONGEST_KEPT:
                self.filled -= unread - LONGEST_KEPT
                skipping = True
            if progress:
                progress(source.share_read)
        if self.filled > self.state[at.POSITION]:
            self.buffer[self.filled] = 10
            self.filled += 1
            self._read_whole_lines()
        self._finish()
        return self._contents(int(self.state[at.LINE]) - first_line)

    def _make_room(self) -> bool:
        """Move the query at hand to the buffer's start, so that a block fits behind it; whether the buffer is new."""
        start = int(self.state[at.GROUP_START])
        kept = self.filled - start
        if kept > self.limits.max_query_bytes:
            raise InvalidRun.of(
                Problem(
                    "error", "query_size", 1,
                    f"one query has more than {describe_bytes(self.limits.max_query_bytes)} of lines",
                    f"Keep at most {self.task.maximum_depth:,} documents per query.",
                )
            )  # fmt: skip
        new = kept + BLOCK + self.margin > len(self.buffer)
        target = np.zeros(2 * (kept + BLOCK) + self.margin, np.uint8) if new else self.buffer
        target[:kept] = self.buffer[start : self.filled]
        self.buffer, self.filled = target, kept
        self.lines.start[: self.state[at.COUNT]] -= start
        self.state[at.POSITION] -= start
        self.state[at.GROUP_START] = 0
        return new

    def _drop_to_newline(self, count: int) -> int:
        """Leave out the rest of a line that is too long; how many bytes remain, from its newline on."""
        fresh = self.buffer[self.filled : self.filled + count]
        end = fresh.tobytes().find(b"\n")
        if end < 0:
            return 0
        fresh[: count - end] = fresh[end:].copy()
        return count - end

    def _read_whole_lines(self) -> None:
        region = self.buffer[self.state[at.POSITION] : self.filled].tobytes()
        length = region.rfind(b"\n") + 1
        if length:
            self.options[at.CHECK_ENCODING] = not _is_text(region, length)
            self._read_lines(int(self.state[at.POSITION]) + length)

    def _read_lines(self, stop: int) -> None:
        task, seed = self.task, np.uint64(self.task.seed)
        while status := read_lines(
            self.buffer, stop, self.numbers, self.options, seed, self.state, self.noted, self.given, self.lines,
            self.queries, task.judged, task.documents, task.elsewhere, self.tags, self.output,
        ):  # fmt: skip
            if status == at.NEEDS_ROOM:
                self.lines = grown_lines(self.lines, 2 * len(self.lines.score))
            elif status == at.NEEDS_SCORE:
                text = self.buffer[self.state[at.SCORE_START] : self.state[at.SCORE_END]].tobytes()
                with np.errstate(over="ignore"):
                    self.given[0] = np.float32(float(text))
                self.state[at.GIVEN] = 1
            elif status == at.NOT_GROUPED:
                raise _NotGroupedError
            else:
                raise too_many_queries(self.limits)

    def _finish(self) -> None:
        task = self.task
        finish_last_query(
            self.buffer, self.options, self.state, self.noted, self.lines, self.queries, task.judged, task.documents,
            task.elsewhere, self.output,
        )  # fmt: skip

    def _counted(self, lines_read: int) -> dict[str, Counted]:
        counted = {
            code: Counted(int(self.noted[row, 0]), _line_numbers(self.noted[row])) for code, row in _CODES.items()
        }
        # empty lines at the end of the file are no problem, others are lines without six fields
        last = int(self.state[at.LAST_TEXT_LINE])
        inner = int(self.noted[at.BLANK, 0]) - (self.header_lines + lines_read - last)
        if inner > 0 and last:
            blank = tuple(number for number in _line_numbers(self.noted[at.BLANK]) if number < last)
            fields = counted["fields"]
            counted["fields"] = Counted(fields.count + inner, tuple(sorted(fields.lines + blank)[: at.NAMED_LINES]))
        return counted

    def _contents(self, lines_read: int) -> RunContents:
        known, output = self.task.queries, int(self.state[at.OUTPUT])
        in_error = [at.BLANK, at.LINE_LENGTH, at.ENCODING, at.FIELDS, at.IDENTIFIER, at.SCORE, at.UNKNOWN_QUERY]
        tags = [
            self.tags.text[self.tags.start[tag] : self.tags.start[tag + 1]].tobytes().decode("utf-8", "replace")
            for tag in range(int(self.state[at.TAGS]))
        ]
        return RunContents(
            counted=self._counted(lines_read),
            lines=lines_read - int(self.noted[at.BLANK, 0]),
            cut_lines=int(self.state[at.CUT_LINES]),
            known_lines=lines_read - int(self.noted[in_error, 0].sum()),
            queries=int(np.count_nonzero(self.queries.seen[: self.state[at.QUERIES]])),
            seen=self.queries.seen[:known].astype(np.bool_),
            retrieved=self.queries.retrieved[:known].copy(),
            query=self.output.query[:output].copy(),
            rank=self.output.rank[:output].copy(),
            grade=self.output.grade[:output].copy(),
            tags=tuple(tags),
        )


def _line_numbers(noted: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(noted[1 : 1 + min(int(noted[0]), at.NAMED_LINES)].tolist())


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
