"""Run formats other than TREC's, recognized by the start of the file and rewritten as TREC lines.

Every reader of runs uses this module (`trec_text`, or `recognize_format` and `write_as_trec`), so that all of them read
a file the same way. A table without column names is recognized only if its values cannot be judgments.
"""

import codecs
import csv
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from numpy.typing import NDArray

from evaluation.archives.compression import BLOCK, MIB, ExpandedFile, FileLimits, open_expanded, open_lines
from evaluation.core.problems import InvalidRun
from evaluation.runs.answer_runs import AnswerRun, is_answer_run, read_answer_run
from evaluation.runs.header import BYTE_ORDER_MARK, RunHeader, is_result, is_trec_eval_result, read_header
from evaluation.runs.json_runs import DOCUMENT, QUERY, RANK, SCORE_NAMES, TAG, find_column, json_as_lines
from evaluation.runs.problems import ENCODING

#: Number of rows that determine the format of a table, and the share that must fit. Damaged rows are reported later.
_SAMPLED_ROWS, _SHARE_OF_ROWS = 5_000, 0.9
#: The last of three columns contains ranks if they reach this number for a query. Grades rarely do.
MIN_DEPTH = 4
_LONGEST_RANK, _MAX_COLUMNS = 10, 64
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Pattern of a TREC line. JSON never has two adjacent numbers, such as a rank and a score.
_TREC_LINE = re.compile(rb"\s*\S+\s+\S+\s+\S+\s+\d+(\.0)?\s+[-+.\d]\S*\s+\S+\s*")
_NUMBER = re.compile(rb"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_FRACTION = re.compile(rb"[-+]?\d*\.0*[1-9]\d*([eE][-+]?\d+)?")
_GRADE = re.compile(rb"(-[12]|\d|10)(\.0*)?")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a row for each retrieved document. Columns are numbered from 0.

    `separator` is None for white space. Without a column of scores, scores are reciprocal ranks, with ranks starting at
    `first_rank`.
    """

    separator: bytes | None
    columns: int
    query: int
    document: int
    rank: int | None = None
    score: int | None = None
    tag: int | None = None
    first_rank: int = 1
    #: The line of column names, if there is one.
    names: bytes | None = None

    def as_trec(self, line: bytes) -> bytes | None:
        """Return a row as a TREC line, or None if it is not a row of this table."""
        cells = _split_cells(line, self.separator)
        if len(cells) != self.columns:
            return None
        rank = b"0" if self.rank is None else _whole_rank(cells[self.rank])
        if self.score is not None:
            score = cells[self.score]
        elif rank.isdigit() and len(rank) < _LONGEST_RANK and int(rank) >= self.first_rank:
            score = repr(1 / (int(rank) - self.first_rank + 1)).encode()
        else:
            return None
        if line.startswith(b"#") and not (_NUMBER.fullmatch(score) and (cells[0].strip(b"#") or rank.isdigit())):
            return None  # a comment, such as `# k1 is 0.9`
        tag = b"_".join(cells[self.tag].split()) if self.tag is not None else b""
        fields = [cells[self.query], b"Q0", cells[self.document], rank, score, tag or b"run"]
        return b" ".join(fields) + b"\n" if all(len(field.split()) == 1 for field in fields) else None

    def has_query_id(self, line: bytes) -> bool:
        """Return whether a line has the table's number of cells, and a query id other than `#`."""
        cells = _split_cells(line, self.separator)
        query = cells[self.query] if len(cells) == self.columns else b""
        return len(query.split()) == 1 and query.strip(b"#") != b""

    def results(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return the rows that are not comments."""
        return [row for row in rows if not _begins_as_comment(row) or self.as_trec(row)]

    def split(self, rows: Sequence[bytes]) -> list[list[bytes]]:
        """Return the cells of the rows that have the table's number of columns."""
        return [cells for row in rows if len(cells := _split_cells(row, self.separator)) == self.columns]

    def fits_names(self, rows: Sequence[bytes]) -> bool:
        """Return whether most rows below the column names are results of this table, not judgments or TREC lines."""
        cells = self.split(rows)
        if 2 * len(cells) < len(rows) or all(map(_is_trec, rows)):
            return False
        if self.score is None:
            return True
        grades = self.rank is None and all(_GRADE.fullmatch(row[self.score]) for row in cells)
        return not grades and _NUMBER.fullmatch(cells[0][self.score]) is not None

    def recognized_first_rank(self, cells: Sequence[Sequence[bytes]]) -> int | None:
        """Return the first rank if the rows clearly form this table without column names, otherwise None.

        Ranks must count up for each query. Scores without ranks must be varied numbers, mostly with fractions.
        """
        if self.score is not None:
            numbers = [row[self.score] for row in cells]
            if not all(map(_NUMBER.fullmatch, numbers)):
                return None
            if self.rank is None:
                fractions = sum(_FRACTION.fullmatch(score) is not None for score in numbers)
                # Scores may recur in other queries, as 1 / (60 + rank) does.
                falling = _count_falling_scores(cells)
                has_varied_scores = 2 * max(len(set(numbers)), falling) > len(numbers)
                has_varied_scores &= not is_trec_eval_result(cells[0])
                return 1 if 2 * fractions > len(numbers) and has_varied_scores else None
        if self.document == 2 and {row[1].upper() for row in cells} in ({b"Q0"}, {b"0"}):
            return 1 if all(_whole_rank(row[3]).isdigit() for row in cells) else None
        depth, first_rank = self._ranked_depth(cells)
        return first_rank if depth >= (MIN_DEPTH if self.score is None else 2) else None

    def _ranked_depth(self, cells: Sequence[Sequence[bytes]]) -> tuple[int, int]:
        """Return the maximum number of documents of a query, and the first rank.

        The number is 0 unless the ranks of each query count up.
        """
        counts: dict[bytes, int] = {}
        pairs = {(row[self.query], row[self.document]) for row in cells}
        first_rank = 0 if _whole_rank(cells[0][self.rank or 0]) == b"0" else 1
        for row in cells:
            counts[row[self.query]] = counts.get(row[self.query], 0) + 1
            if _whole_rank(row[self.rank or 0]) != str(counts[row[self.query]] + first_rank - 1).encode():
                return 0, first_rank
        return (max(counts.values()) if len(pairs) == len(cells) else 0), first_rank


#: Format of a run: TREC (None), a table, a JSON document, JSON Lines, or an answer run.
Form = Table | Literal["json", "jsonl", "answers"] | None


def recognize_format(start: bytes) -> Form:
    """Return the format of a run that begins with `start`, as returned by `read_start`; None for TREC lines.

    Raises InvalidRun for UTF-16.
    """
    if start.startswith(_UTF_16):
        hint = "Save the file as UTF-8, for example with `iconv -f UTF-16 -t UTF-8 run.txt > run-utf8.txt`."
        raise InvalidRun.build(ENCODING.problem("the file is in UTF-16", hint))
    text = start.removeprefix(BYTE_ORDER_MARK)
    if text.lstrip()[:1] in (b"{", b"["):
        first, _, other_lines = text.lstrip().partition(b"\n")
        if not _TREC_LINE.fullmatch(first):
            if is_answer_run(first):
                return "answers"
            ends = {b"{": b"}", b"[": b"]"}[first[:1]]
            return "jsonl" if first.rstrip().endswith(ends) and other_lines.lstrip()[:1] == first[:1] else "json"
    first = next((line for line in io.BytesIO(text) if line.strip() and not line.startswith(b"#")), b"")
    lines = [] if _is_trec(first) else text.split(b"\n")
    if len(text) >= BLOCK - len(BYTE_ORDER_MARK) and len(lines) > 1:
        del lines[-1]  # The last line is incomplete.
    rows = sorted(filter(bytes.strip, lines), key=_begins_as_comment)[:_SAMPLED_ROWS]
    if not rows or 2 * sum(map(_is_trec, [first] if first else rows)) > len([first] if first else rows):
        return None
    for candidate_rows in ([row for row in rows if not _begins_as_comment(row)], rows):
        for separator in (b"\t", b",", b";", None):
            if candidate_rows and (table := _find_table(candidate_rows, separator)):
                return table
    return None


def read_start(file: ExpandedFile) -> bytes:
    """Read the part of a file that decides its format."""
    block, start = memoryview(bytearray(BLOCK)), b""
    while len(start) < BLOCK and (count := file.readinto(block)):
        start += block[:count]
    return start


def read_responses(source: Path | str | bytes) -> AnswerRun | None:
    """Return the responses of an answer run, or None for a run in another format. Raises InvalidContent."""
    with open_expanded(source, FileLimits()) as file:
        form = recognize_format(read_start(file))
    return read_answer_run(source, FileLimits()) if form == "answers" else None


def write_as_trec(form: Form, source: Path | str | bytes, limits: FileLimits, output: IO[bytes]) -> dict[str, Any]:
    """Write a run in another format to `output` as TREC lines; return the metadata of a JSON document.

    The lines of a table keep their numbers, and rows that do not fit are copied unchanged. Raises InvalidContent.
    """
    if form == "answers":
        output.write(read_answer_run(source, limits).trec_lines()[0])
        return {}
    if isinstance(form, str):
        return json_as_lines(source, limits, output, by_line=form == "jsonl")
    assert form is not None
    header_seen = False
    for number, line in enumerate(open_lines(source, limits, MIB)):
        line = line if number else line.removeprefix(BYTE_ORDER_MARK)
        row = b"# " + line + b"\n" if line == form.names else form.as_trec(line)
        if row is None and header_seen and _begins_as_comment(line) and form.has_query_id(line):
            row = b" " + line + b"\n"  # The leading blank prevents that a damaged row is read as a comment.
        header_seen |= line == form.names
        output.write(row or line + b"\n")
    return {}


class StreamedLines(io.RawIOBase):
    """Remaining lines of an open file, starting with the bytes that were already read."""

    order: NDArray[Any] | None = None

    def __init__(self, file: ExpandedFile, ahead: bytes) -> None:
        self.file, self.ahead = file, ahead

    def readable(self) -> bool:
        """Return True, as `io.BufferedReader` requires."""
        return True

    def readinto(self, view: Any, /) -> int:
        """Fill the start of `view`, first with the bytes already read; return the number of bytes written."""
        if self.ahead:
            count = min(len(self.ahead), len(view))
            view[:count] = self.ahead[:count]
            self.ahead = self.ahead[count:]
            return count
        return self.file.readinto(view)

    @property
    def share_read(self) -> float:
        return self.file.share_read


@contextmanager
def trec_text(
    source: Path | str | bytes, limits: FileLimits | None = None, *, is_trec: bool = False
) -> Iterator[tuple[RunHeader, BinaryIO]]:
    """Open a run in any format, plain or compressed, and yield its header and the remaining text in TREC format.

    If `is_trec`, other formats are not recognized. Raises InvalidContent.
    """
    limits = limits or FileLimits()
    with open_expanded(source, limits) as file:
        start = read_start(file)
        form = None if is_trec else recognize_format(start)
        if form is None:
            header = read_header(start)
            yield header, io.BufferedReader(StreamedLines(file, start[header.size :]), BLOCK)
            return
    with (
        open_rewritten(form, source, limits) as (path, limits, _),
        trec_text(path, limits, is_trec=True) as text,
    ):
        yield text


@contextmanager
def open_rewritten(
    form: Form, source: Path | str | bytes, limits: FileLimits
) -> Iterator[tuple[str, FileLimits, dict[str, Any]]]:
    """Rewrite a run as a temporary file of TREC lines; yield its path, the limits for it, and metadata.

    The file is deleted at the end of the block. Raises InvalidContent.
    """
    with tempfile.NamedTemporaryFile(prefix="rewritten-", suffix=".run") as lines:
        metadata = write_as_trec(form, source, limits, cast(IO[bytes], lines))
        lines.flush()
        yield lines.name, replace(limits, max_stored_bytes=limits.max_expanded_bytes), metadata


def _begins_as_comment(line: bytes) -> bool:
    return line.startswith(b"#")


def _is_trec(line: bytes) -> bool:
    return len(line.split()) == 6 and is_result(line)


def _whole_rank(cell: bytes) -> bytes:
    """Return a rank without `.0`, which pandas adds if another row of the column is empty."""
    return cell.removesuffix(b".0")


def _split_cells(line: bytes, separator: bytes | None) -> list[bytes]:
    """Return the stripped cells of a line, without quotes of CSV; no cells if the quotes are invalid.

    A separator of None stands for white space, where quotes have no meaning.
    """
    if separator is None:
        return line.split()
    if b'"' not in line:
        return [cell.strip() for cell in line.split(separator)]
    text = line.decode("utf-8", "surrogateescape")
    try:
        row = next(csv.reader([text], delimiter=separator.decode(), skipinitialspace=True), [])
    except csv.Error:  # A field is too long or has a line break.
        return []
    return [cell.strip().encode("utf-8", "surrogateescape") for cell in row]


def _find_table(rows: Sequence[bytes], separator: bytes | None) -> Table | None:
    """Return the table that the rows form with this separator, or None if they do not clearly form one.

    The first row may have column names. Without them, the values must show which columns are ranks or scores.
    """
    first = _split_cells(rows[0], separator)
    if len(first) > _MAX_COLUMNS:
        return None
    names = [name.decode("utf-8", "replace") for name in first]
    query, document, rank, score, tag = (
        find_column(names, column_names) for column_names in (QUERY, DOCUMENT, RANK, SCORE_NAMES, TAG)
    )
    if query is not None and document is not None and (rank is not None or score is not None):
        heading = rows[0].removesuffix(b"\r")
        named_table = Table(separator, len(names), query, document, rank, score, tag, 0, heading)
        results = named_table.results(rows[1:])
        ranks = {_whole_rank(row[named_table.rank or 0]) for row in named_table.split(results)}
        return replace(named_table, first_rank=int(b"0" not in ranks)) if named_table.fits_names(results) else None
    for pattern in _UNNAMED_TABLES:
        if pattern.columns != len(first) and not _begins_as_comment(rows[0]):
            continue
        table = replace(pattern, separator=separator, first_rank=0)
        results = table.results(rows)
        cells = table.split(results)
        if not cells or len(cells) < _SHARE_OF_ROWS * len(results):
            continue
        if (first_rank := table.recognized_first_rank(cells)) is not None:
            return replace(table, first_rank=first_rank)
    return None


#: Tables that are recognized without column names.
_UNNAMED_TABLES = (
    Table(None, 3, query=0, document=1, rank=2),
    Table(None, 3, query=0, document=1, score=2),
    Table(None, 4, query=0, document=1, rank=2, score=3),
    Table(None, 5, query=0, document=2, rank=3, score=4),
    Table(None, 5, query=0, document=1, rank=2, score=3, tag=4),
    Table(None, 6, query=0, document=2, rank=3, score=4, tag=5),
)


def _count_falling_scores(cells: Sequence[Sequence[bytes]]) -> int:
    """Count scores below the previous one of the same query; 0 if any score does not fall, as in judgments."""
    count = 0
    for previous, row in pairwise(cells):
        if row[0] == previous[0]:
            if float(row[2]) >= float(previous[2]):
                return 0
            count += 1
    return count
