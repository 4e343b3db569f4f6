"""One-pass reader of TREC runs, which checks every line and records the ranks of judged documents.

It reads lines from a stream, or from a text in memory that was sorted by query.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import BLOCK, SIZE, FileLimits, describe_bytes, open_expanded
from evaluation.core.problems import LINES_NAMED, InvalidRun
from evaluation.kernel.layout import BLANK, NAMED_LINES, NO_IDS, NOTED, PADDING, Ids
from evaluation.kernel.library import NO_JUDGEMENTS, GroupedLines, Judged, NotGroupedError, Reading, TooManyQueriesError
from evaluation.runs import problems
from evaluation.runs.answer_runs import AnswerRun, read_answer_run
from evaluation.runs.forms import Form, StreamedLines, open_rewritten, read_start, recognize_format
from evaluation.runs.header import RunHeader, lines_to_quote, read_header, read_lines
from evaluation.runs.problems import LineCount, RunContents

Progress = Callable[[float], None]
#: Number of stored bytes of a line that is too long, to report its error.
LONG_LINE_BYTES = 4096
#: Six fields of one byte, five separators, and a newline.
_SHORTEST_LINE = 12
#: Number of lines before and after the first tie that are searched for other lines of its query.
_NEAR_TIES = 1000


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """Lookup tables and options for reading a run.

    Attributes:
        query_text: The ids of all queries; `query_text[query_offsets[i]:query_offsets[i + 1]]` is the id of query i.
        documents: Ids of the corpus, or None to accept any document.
        elsewhere_depth: Maximum rank at which documents judged for other queries are recorded, or 0 for none.
        first_documents: Number of each query's first documents to return.
        excluded: Documents to drop from a query's ranking before ranks are counted.
        any_query: Whether to read queries that are not in `query_text`.
    """

    query_text: NDArray[np.uint8]
    query_offsets: NDArray[np.int64]
    seed: int
    maximum_depth: int
    judged: Judged = NO_JUDGEMENTS
    judgements: int = 0
    documents: Ids | None = None
    elsewhere: Ids = NO_IDS
    elsewhere_depth: int = 0
    drop_self_matches: bool = False
    first_documents: int = 0
    excluded: Judged = NO_JUDGEMENTS
    any_query: bool = False

    @property
    def queries(self) -> int:
        """Number of queries in the dataset."""
        return len(self.query_offsets) - 1


def read_run(
    path: Path | str | bytes, task: ReadingTask, limits: FileLimits, progress: Progress | None = None
) -> RunContents:
    """Read a run in any format, plain or compressed, from a file or from its content.

    `progress` is called between blocks with the share read and may raise to stop. Problems of lines are counted in the
    result; raises InvalidContent if the file cannot be read to its end.
    """
    try:
        return _RunFile(path, task, limits, progress).read()
    except TooManyQueriesError as error:
        message = f"the run has more than {limits.max_queries:,} different queries"
        hint = "Check that the first column has the dataset's query ids."
        raise InvalidRun.build(SIZE.problem(message, hint)) from error


@dataclass(frozen=True, slots=True)
class _RunFile:
    """Reader of one run file."""

    path: Path | str | bytes
    task: ReadingTask
    limits: FileLimits
    progress: Progress | None

    def read(self, is_trec: bool = False) -> RunContents:
        """Read the lines as a stream, or sorted by query if the stream turns out to be ungrouped.

        `is_trec` skips the recognition of other formats.
        """
        with open_expanded(self.path, self.limits) as file:
            start = read_start(file)
            if not is_trec and (form := recognize_format(start)) is not None:
                return self._read_answers() if form == "answers" else self._read_rewritten(form)
            header = read_header(start)
            text = start[header.size :]
            if file.kind == "plain":  # Expansion limits check compressed data.
                problems.refuse_binary(text)
            if b"\n" not in text and b"\r" in text.rstrip(b"\r"):
                message = "lines end with a carriage return alone, so the file is a single line"
                raise InvalidRun.build(
                    problems.ENCODING.problem(message, "End lines with LF, or with CR LF.", lines=(1,))
                )
            max_bytes = file.stored_bytes if file.kind == "plain" else self.limits.max_expanded_bytes
            try:
                contents = self._read_source(StreamedLines(file, text), header, max_bytes)
                return self._add_header(contents, header, file.expanded_bytes)
            except NotGroupedError:
                pass
        text_array, length = self._load_text(header)
        reading = Reading(self.task.seed, self.limits.max_queries, self.limits.max_id_bytes)
        reading.use_text(text_array)
        grouped = GroupedLines(reading, text_array, length, LONG_LINE_BYTES)
        contents = self._read_source(grouped, header, length)
        return self._add_header(contents, header, length + header.size)

    def _read_source(self, source: StreamedLines | GroupedLines, header: RunHeader, max_bytes: int) -> RunContents:
        return _RunPass(self.task, self.limits, header.lines, max_bytes).read(source, self.progress)

    def _read_rewritten(self, form: Form) -> RunContents:
        """Rewrite a run in this format as TREC lines, and read these instead.

        Problems of a JSON run have no line numbers and quotations, because its lines are not those of the file.
        """
        with open_rewritten(form, self.path, self.limits) as (lines, wider_limits, metadata):
            contents = _RunFile(lines, self.task, wider_limits, self.progress).read(is_trec=True)
        if not isinstance(form, str):
            return contents  # Line numbers of a table are unchanged, and messages quote the rewritten lines.
        counts = {code: LineCount(lines.count) for code, lines in contents.line_counts.items()}
        return replace(contents, line_counts=counts, metadata=metadata, texts={})

    def _read_answers(self) -> RunContents:
        """Read the rankings and the citations of an answer run.

        Problems have the line numbers of the responses. In a run without rankings, citations are the ranking.
        """
        run = read_answer_run(self.path, self.limits)
        contents = self._read_responses(run, cited=False)
        citations = self._read_responses(run, cited=True) if run.rankings else None
        offsets = pairwise(self.task.query_offsets.tolist())
        known = [self.task.query_text[start:end].tobytes().decode() for start, end in offsets]
        unknown = [run.lines[query] for query in run.responses.keys() - known] if known else []
        counts = dict(contents.line_counts)
        counts[problems.UNKNOWN_QUERIES] = LineCount(len(unknown), tuple(sorted(unknown)[:LINES_NAMED]))
        for code, count in run.warnings.counts.items():
            counts[code] = LineCount(count, tuple(run.warnings.lines[code]))
        if citations is not None:
            both = [each.line_counts[problems.UNKNOWN_DOCUMENTS] for each in (contents, citations)]
            lines = sorted({*both[0].lines, *both[1].lines})[:LINES_NAMED]
            counts[problems.UNKNOWN_DOCUMENTS] = LineCount(both[0].count + both[1].count, tuple(lines))
        known_lines = contents.known_lines + (citations.known_lines if citations is not None else 0)
        seen = np.array([query in run.responses for query in known], np.bool_)
        return replace(
            contents,
            line_counts=counts,
            lines=len(run.lines),
            known_lines=known_lines,
            queries=len(run.responses),
            seen=seen,
            responses=run.responses,
            citations=citations,
        )

    def _read_responses(self, run: AnswerRun, *, cited: bool) -> RunContents:
        text, line_numbers = run.trec_lines(cited=cited)
        limits = replace(self.limits, max_stored_bytes=self.limits.max_expanded_bytes)
        contents = _RunFile(text, self.task, limits, None).read(is_trec=True)
        counts = {
            code: LineCount(lines.count, tuple(sorted({line_numbers[line - 1] for line in lines.lines})))
            for code, lines in contents.line_counts.items()
        }
        return replace(contents, line_counts=counts, texts={})

    def _load_text(self, header: RunHeader) -> tuple[NDArray[np.uint8], int]:
        """Return the text after the header as an array with padding, and its length without the padding."""
        content, limit = bytearray(), self.limits.max_ungrouped_bytes
        with open_expanded(self.path, self.limits) as file, memoryview(bytearray(BLOCK)) as block:
            while count := file.readinto(block):
                content += block[:count]
                if len(content) > limit:
                    raise problems.refusal(problems.UNGROUPED, limit=describe_bytes(limit))
                if self.progress:
                    self.progress(file.share_read * 0.5)
        if not content.endswith(b"\n"):
            content += b"\n"
        length = len(content) - header.size
        content += bytes(PADDING + self.limits.max_id_bytes)
        return np.frombuffer(content, np.uint8)[header.size :], length

    def _add_header(self, contents: RunContents, header: RunHeader, expanded_bytes: int) -> RunContents:
        """Add the header and the lines that messages quote to the contents."""
        quoted_lines = lines_to_quote({code: count.lines for code, count in contents.line_counts.items()})
        first_tie = next(iter(contents.line_counts[problems.TIES].lines), 0)
        lines_near_ties = range(max(1, first_tie - _NEAR_TIES), first_tie + _NEAR_TIES)
        lines_near_ties = lines_near_ties if contents.has_many_ties else range(0)
        texts = read_lines(self.path, {*quoted_lines, *lines_near_ties}, self.limits)
        return replace(
            contents,
            expanded_bytes=int(expanded_bytes),
            metadata=header.metadata,
            first_line=header.lines + 1,
            texts=texts,
            ties_differ=_ties_differ(texts[line] for line in lines_near_ties if line in texts),
        )


def _ties_differ(lines: Iterable[bytes]) -> bool:
    """Return whether two lines of one query have different scores that are equal in single precision."""
    exact_scores: dict[tuple[bytes, float], float] = {}
    for line in lines:
        fields = line.split()
        try:
            score = float(fields[4])
        except (IndexError, ValueError):
            continue
        with np.errstate(over="ignore"):
            key = fields[0], float(np.float32(score))
        if exact_scores.setdefault(key, score) != score:
            return True
    return False


class _RunPass:
    """State of one pass: a buffer that always contains the complete current query, and the kernel's view of it."""

    def __init__(self, task: ReadingTask, limits: FileLimits, header_lines: int, max_bytes: int) -> None:
        self.task, self.limits, self.header_lines = task, limits, header_lines
        # The allocation of a large, mostly empty table is slower than reading a small run.
        max_queries = min(limits.max_queries, max_bytes // _SHORTEST_LINE + 1)
        longest = max(limits.max_id_bytes, int(np.diff(task.query_offsets).max(initial=0)))
        self.reading = Reading(task.seed, max_queries + task.queries, longest)
        self.reading.number_queries(task.query_text, task.query_offsets)
        room = task.judgements + task.queries * task.elsewhere_depth
        documents = NO_IDS if task.documents is None else task.documents
        self.reading.use_judgements(task.judged, task.excluded, documents, task.elsewhere, room)
        self.reading.make_room_for_lines(LONG_LINE_BYTES)
        self.filled_bytes = 0
        self._use_buffer(bytearray(2 * BLOCK + PADDING))
        fields = self.reading.fields
        fields.longest_line = limits.max_line_bytes
        fields.longest_id = limits.max_id_bytes
        fields.depth = task.maximum_depth
        fields.elsewhere_depth = task.elsewhere_depth
        fields.known_queries = task.queries
        fields.any_query = task.any_query or task.queries == 0
        fields.drop_self_matches = task.drop_self_matches
        fields.check_documents = task.documents is not None

    def _use_buffer(self, buffer: bytearray) -> None:
        self.buffer, self.view = buffer, memoryview(buffer)
        self.reading.use_text(np.frombuffer(buffer, np.uint8), self.task.first_documents)

    def read(self, source: StreamedLines | GroupedLines, progress: Progress | None) -> RunContents:
        """Read all lines of the source and return what they contain.

        `progress` is called between blocks with the share read. Raises NotGroupedError, TooManyQueriesError, or
        InvalidRun if the lines of one query are too large.
        """
        fields = self.reading.fields
        if source.order is not None:
            self.reading.use_order(source.order, 1 + self.header_lines)
        first_line = fields.line = 0 if source.order is not None else self.header_lines
        skipping = False  # Whether the input is within a line that is too long for the buffer.
        while True:
            self._make_room()
            count = source.readinto(self.view[self.filled_bytes : self.filled_bytes + BLOCK])
            if not count:
                break
            if skipping:
                count = self._drop_to_newline(count)
                skipping = count == 0
            self.filled_bytes += count
            self._read_whole_lines()
            unread = self.filled_bytes - fields.position
            if unread > LONG_LINE_BYTES:
                self.filled_bytes -= unread - LONG_LINE_BYTES
                skipping = True
            if progress:
                progress(source.share_read)
        if self.filled_bytes > fields.position:
            self.buffer[self.filled_bytes] = 10
            self.filled_bytes += 1
            self._read_whole_lines()
        reading, query_count = self.reading, self.task.queries
        reading.finish()
        lines_read, output = fields.line - first_line, fields.output.count
        return RunContents(
            line_counts=self._count_lines(lines_read),
            lines=max(0, fields.last_text_line - self.header_lines),  # without blank lines at the end
            cut_lines=fields.cut_lines,
            known_lines=lines_read - sum(reading.get_occurrences(name)[0] for name in problems.UNREAD_CODES),
            queries=int(np.count_nonzero(reading.seen[: fields.queries.count])),
            seen=reading.seen[:query_count].astype(np.bool_),
            retrieved=reading.retrieved[:query_count].copy(),
            query=reading.query[:output].copy(),
            rank=reading.rank[:output].copy(),
            grade=reading.grade[:output].copy(),
            tags=reading.tags(),
            first_documents=bytes(reading.first_documents),
        )

    def _make_room(self) -> None:
        """Move the current query to the start of the buffer, and enlarge the buffer if another block does not fit.

        Raises InvalidRun if the query's lines are too large.
        """
        start = self.reading.fields.group_start
        group_bytes = self.filled_bytes - start
        if group_bytes > self.limits.max_query_bytes:
            limit = describe_bytes(self.limits.max_query_bytes)
            raise problems.refusal(problems.QUERY_SIZE, limit=limit, depth=self.task.maximum_depth)
        text = self.view[start : self.filled_bytes]
        if group_bytes + BLOCK + PADDING > len(self.buffer):
            self._use_buffer(bytearray(2 * (group_bytes + BLOCK) + PADDING))
        self.view[:group_bytes] = text
        self.filled_bytes = group_bytes
        self.reading.shift_positions(start)

    def _drop_to_newline(self, count: int) -> int:
        """Drop the rest of a line that is too long. Return the number of remaining bytes, starting with its newline."""
        end = self.buffer.find(b"\n", self.filled_bytes, self.filled_bytes + count)
        if end < 0:
            return 0
        remaining_bytes = self.filled_bytes + count - end
        self.view[self.filled_bytes : self.filled_bytes + remaining_bytes] = self.view[end : end + remaining_bytes]
        return remaining_bytes

    def _read_whole_lines(self) -> None:
        if stop := self.buffer.rfind(b"\n", self.reading.fields.position, self.filled_bytes) + 1:
            self.reading.read(self.buffer, stop)

    def _count_lines(self, lines_read: int) -> dict[str, LineCount]:
        """Return the number and the first lines of each problem. Blank lines before other lines count as `fields`."""
        line_counts = {code: LineCount(*self.reading.get_occurrences(code)) for code in NOTED if code != BLANK}
        # Blank lines are valid only at the end of the file. Elsewhere they are lines without six fields.
        blank, blank_lines = self.reading.get_occurrences(BLANK)
        last_line = self.reading.fields.last_text_line
        blank_count = blank - (self.header_lines + lines_read - last_line)
        if blank_count > 0 and last_line:
            fields = line_counts[problems.FIELDS]
            lines = fields.lines + tuple(number for number in blank_lines if number < last_line)
            line_counts[problems.FIELDS] = LineCount(fields.count + blank_count, tuple(sorted(lines)[:NAMED_LINES]))
        return line_counts
