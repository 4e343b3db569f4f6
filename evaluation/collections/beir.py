"""Streaming reader for test collections in BEIR layout: `corpus.jsonl` and `queries.jsonl`, plain or gzip.

Each line is a JSON object. A document has `_id`, `text`, and optionally `title`; a query has `_id` and `text`. Whole
numbers are read as decimal text, and a missing, null, or NaN text as empty text. Documents with empty text are valid,
and blank lines are skipped. Problems are collected over the whole file, so that the sender sees every class of problem
at once, with its count and its first five lines.

A corpus may be stored in blocks: a gzip file that every reader accepts, and that this module can read from any document
on. Each gzip member contains whole lines of about `BLOCK_BYTES`. Concatenated members form a gzip file (RFC 1952,
§2.2). Empty members after them contain the table of the blocks in their extra fields (§2.3.1.1): the offset of each
block in the file, and the number of documents before it. The last member has a fixed length and contains the offset of
the table, so three reads from the end of the file find the table, regardless of the number of blocks.
"""

import io
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import orjson
from isal import igzip
from isal.igzip_lib import IsalError
from numpy.typing import NDArray

from evaluation.core.files import file_sha256
from evaluation.core.problems import LINES_NAMED, InvalidContent, LineProblems, Problem

#: Maximum length of a line in bytes. A book of 1,000 pages has about 3 MB.
MAX_LINE_BYTES = 64 * 2**20
#: Maximum length of an id in bytes of UTF-8.
MAX_ID_BYTES = 256

#: Callback that receives the share of the file's bytes read so far, 0 to 1. It may raise to stop reading.
Progress = Callable[[float], None]

_GZIP_MAGIC = b"\x1f\x8b"
#: Maximum ratio of expanded to stored bytes, and the minimum expanded size for this check.
_MAX_RATIO, _RATIO_FLOOR = 50, 64 * 2**20
_open_gzip: Callable[..., io.RawIOBase] = igzip.open
_DAMAGED_GZIP: tuple[type[Exception], ...] = (EOFError, BadGzipFile, cast("type[Exception]", IsalError))
#: Bytes that some programs write before UTF-8 text. They are not part of the text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINES_BETWEEN_PROGRESS = 2000
#: Characters that are not allowed in ids: ASCII white space separates the fields of a run, control characters
#: may break its lines.
_NOT_IN_ID = re.compile(r"[\x00-\x20\x7f]")

#: Problems of lines: code → (message after “line 7” | “lines”, hint).
_LINE_PROBLEMS = {
    "line_too_long": ("is|are longer than 64 MiB", "Split the document into passages, each with its own `_id`."),
    "not_utf8": ("is|are not UTF-8", "Save the file as UTF-8."),
    "malformed_json": ("is|are not a JSON object",
        'Write one object per line, such as {"_id": "d1", "title": "…", "text": "…"}.'),
    "missing_id": ("has|have no `_id`", "Give every line a non-empty string `_id`."),
    "missing_text": ("has|have no `text`",
        "Name the text field `text`, as BEIR does. Lines may omit it only if other lines have it."),
    "not_a_string": ("has|have an `_id`, `title`, or `text` that is neither a string nor a whole number",
        "Write ids and texts in double quotes. Fractions, booleans, and lists are not accepted."),
    "unusable_id": ("has|have an id with white space or control characters, or of more than 256 bytes",
        "Rename the id: it must fit into a TREC run, where white space separates fields."),
    "duplicate_id": ("repeats|repeat the id of an earlier line", "Give every line a different id."),
}  # fmt: skip

#: Field names of other libraries for the text of a document and of a query.
OTHER_TEXT_FIELDS = ("contents", "content", "body", "passage", "passage_text", "document", "doc_text")
OTHER_QUERY_FIELDS = ("query", "query_text", "question")


class Document(NamedTuple):
    """A document of a corpus; `title` is empty if it has none."""

    id: str
    title: str
    text: str

    @property
    def title_and_text(self) -> str:
        """Title and text joined by a space."""
        return f"{self.title} {self.text}".strip()


class Query(NamedTuple):
    """A query (topic) of a collection."""

    id: str
    text: str


class FileProblems(LineProblems):
    """Problems of one file: the count and first lines of each class of problem."""

    def __init__(self, file_name: str) -> None:
        super().__init__()
        self.file_name = file_name
        self._file_problems: list[Problem] = []

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._file_problems)

    def add_problem(self, problem: Problem) -> None:
        self._file_problems.append(problem)

    def add_counts(self, other: LineProblems) -> None:
        """Add the counts and first lines of `other`."""
        self.counts.update(other.counts)
        for code, lines in other.lines.items():
            self.lines[code] = sorted([*self.lines[code], *lines])[:LINES_NAMED]

    def problems(self) -> tuple[Problem, ...]:
        """Return all problems as errors, sorted by their first line."""
        problems = []
        for code, (text, hint) in _LINE_PROBLEMS.items():
            if count := self.counts[code]:
                verbs, _, predicate = text.partition(" ")
                subject = f"{count:,} line{'s' * (count > 1)} {verbs.split('|')[count > 1]}"
                message = f"{self.file_name}: {subject} {predicate}"
                problems.append(Problem("error", code, count, message, hint, tuple(self.lines[code])))
        return (*self._file_problems, *sorted(problems, key=lambda problem: problem.lines))

    def raise_if_any(self) -> None:
        if self:
            raise InvalidContent.build(*self.problems())


def read_corpus(path: Path, progress: Progress | None = None, *, first_document: int = 0) -> Iterator[Document]:
    """Yield the documents of `corpus.jsonl` (or `.gz`) in the file's order, from number `first_document` on (0-based).

    In a file of blocks, text before that document's block is not read. After the first problem, no further document is
    yielded, but the file is read to its end to count the problems. Then raises InvalidContent with all of them.
    Duplicate ids are not detected: see `check`.
    """
    findings = FileProblems(path.name)
    for _, document in iterate_documents(path, findings, progress, first_document=first_document):
        if not findings:
            yield document
    findings.raise_if_any()


def read_queries(path: Path) -> Iterator[Query]:
    """Yield the queries of `queries.jsonl` (or `.gz`). Raises the same errors as `read_corpus`."""
    findings = FileProblems(path.name)
    for _, query in iterate_queries(path, findings):
        if not findings:
            yield query
    findings.raise_if_any()


def count_documents(path: Path) -> int:
    """Return the number of lines of `corpus.jsonl` (or `.gz`) that are not blank, without parsing them."""
    if (table := read_table(path)) is not None:
        return table.documents
    with open_expanded(path) as (_, stream):
        return sum(not line.isspace() for line in stream)


def iterate_documents(
    path: Path,
    findings: FileProblems,
    progress: Progress | None = None,
    on_bytes: Callable[[bytes], object] | None = None,
    *,
    first_document: int = 0,
) -> Iterator[tuple[int, Document]]:
    """Yield (line number, document) for each usable line; add the problems of other lines to `findings`.

    `on_bytes` receives the expanded bytes of the file line by line, without a byte order mark, for checksums. Documents
    before the 0-based number `first_document` are skipped. Line numbers count from the start of the file, or of that
    document's block in a file of blocks.
    """
    for number, record in _iterate_records(path, findings, progress, on_bytes, first_document):
        title = as_text(record.get("title"))
        if title is None:
            findings.note("not_a_string", number)
        else:
            yield number, Document(record["_id"], title, record["text"])


def iterate_queries(
    path: Path,
    findings: FileProblems,
    progress: Progress | None = None,
    on_bytes: Callable[[bytes], object] | None = None,
) -> Iterator[tuple[int, Query]]:
    """Yield (line number, query) for each usable line, as `iterate_documents` does."""
    for number, record in _iterate_records(path, findings, progress, on_bytes, 0):
        yield number, Query(record["_id"], record["text"])


def _iterate_records(
    path: Path,
    findings: FileProblems,
    progress: Progress | None,
    on_bytes: Callable[[bytes], object] | None,
    first_document: int,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) for each line with a usable `_id`; `_id` and `text` of the record are strings.

    A missing text becomes empty. It is a problem only if the line has the text under another name, or no line has a
    `text`. Problems are added to `findings`.
    """
    missing_text, has_text = LineProblems(), first_document > 0
    table = read_table(path) if first_document else None
    start = table.find_block(first_document) if table else ReadingStart(0, 0)
    document_number = start.document
    for number, line in iterate_lines(path, findings, progress, on_bytes, start.offset):
        if document_number < first_document:
            document_number += not line.isspace()
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            if not line.strip():
                continue
            record = parse_leniently(line, number, findings)
            if record is None:
                continue
        if problem := _normalize_record(record):
            findings.note(problem, number)
            continue
        if "text" in record:
            has_text = True
        else:
            missing_text.note("missing_text", number)
            record["text"] = ""
        yield number, record
    if missing_text and not has_text:
        findings.add_counts(missing_text)


def _normalize_record(record: Any) -> str | None:
    """Convert the record's `_id` and `text` to strings in place; return the code of a problem, or None.

    A record without `text` is a problem only if it has a field that other libraries use for the text.
    """
    if not isinstance(record, dict):
        return "malformed_json"
    identifier = as_text(record.get("_id"))
    if not identifier:
        return "not_a_string" if identifier is None else "missing_id"
    if _NOT_IN_ID.search(identifier) or len(identifier.encode()) > MAX_ID_BYTES:
        return "unusable_id"
    record["_id"] = identifier
    if "text" not in record:
        return "missing_text" if any(name in record for name in (*OTHER_TEXT_FIELDS, *OTHER_QUERY_FIELDS)) else None
    record["text"] = as_text(record["text"])
    return "not_a_string" if record["text"] is None else None


def as_text(value: Any) -> str | None:
    """Return an id or text as a string: empty for null and NaN, digits for a whole number, None for anything else."""
    if isinstance(value, str):
        return value
    if value is None or value != value:  # pandas writes missing values as NaN.
        return ""
    return str(value) if type(value) is int else None


def parse_leniently(line: bytes, number: int, findings: FileProblems) -> Any:
    """Parse JSON that Python's json writes but orjson rejects: NaN, and lone surrogates, which become U+FFFD.

    Returns None, after noting the problem, if the line is not UTF-8 or not JSON.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        findings.note("not_utf8", number)
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        findings.note("malformed_json", number)
        return None
    if not isinstance(record, dict):
        return record
    return {
        key: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
        for key, value in record.items()
    }


def iterate_lines(
    path: Path,
    findings: FileProblems,
    progress: Progress | None = None,
    on_bytes: Callable[[bytes], object] | None = None,
    offset: int = 0,
) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based line number, line with its end) for every line that is not too long.

    Longer lines are added to `findings`. Reading ends with a problem if the compressed file is damaged or expands too
    much. `on_bytes` receives all bytes, without a byte order mark. `offset` is the start of a member of a gzip file.
    """
    with open_expanded(path, offset) as (stored, stream):
        size = max(path.stat().st_size, 1)
        number = expanded_bytes = 0
        next_check = _RATIO_FLOOR
        is_partial = False  # Whether the last line was read only in part.
        while True:
            try:
                line = stream.readline(MAX_LINE_BYTES)
            except _DAMAGED_GZIP as error:
                ends_early = isinstance(error, EOFError)
                reason = "it is truncated" if ends_early else "it cannot be decompressed"
                message = f"{path.name}: the compressed file is damaged after line {number:,}: {reason}"
                hint = "Compress the file again and check it with `gzip -t`."
                findings.add_problem(Problem("error", "damaged_file", 1, message, hint, (max(number, 1),)))
                break
            if not line:
                break
            expanded_bytes += len(line)
            if expanded_bytes > next_check:
                next_check += 2**20
                if expanded_bytes > _MAX_RATIO * stored.tell():
                    message = f"{path.name} expands to more than {_MAX_RATIO} times its size"
                    hint = "Text usually compresses three- to tenfold. Send the file uncompressed."
                    findings.add_problem(Problem("error", "expansion", 1, message, hint))
                    break
            is_continuation, is_partial = is_partial, len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
            if number == 0 and not is_continuation:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if on_bytes is not None:
                on_bytes(line)
            if is_continuation:
                continue
            number += 1
            if is_partial:
                findings.note("line_too_long", number)
                continue
            yield number, line
            if progress is not None and number % _LINES_BETWEEN_PROGRESS == 0:
                progress(min(stored.tell() / size, 1.0))
    if progress is not None:
        progress(1.0)


@contextmanager
def open_expanded(path: Path, offset: int = 0) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield (stored file, stream of its expanded bytes), recognizing gzip by its first bytes.

    `offset` is the start of a member of a gzip file.
    """
    with path.open("rb", buffering=2**20) as stored:
        if stored.read(2) != _GZIP_MAGIC:
            stored.seek(0)
            yield stored, stored
            return
        stored.seek(offset)
        with _open_gzip(stored, "rb") as expanded:
            yield stored, io.BufferedReader(expanded, 2**20)


#: Approximate size of the text in a block. At most this much is read to find a document.
BLOCK_BYTES = 1 << 20
#: Low compression level: texts are read far more often than they are stored.
COMPRESSION_LEVEL = 2
_TABLE, _END = b"RT", b"RE"
#: Maximum size of an extra field's content without its header, a multiple of the size of a row.
_LARGEST_FIELD = 65_520
_HEADER = struct.Struct("<4BI2BH2sH")
#: An empty deflate block, the checksum of an empty text, and its length.
_EMPTY_CONTENT = b"\x03\x00" + bytes(8)
#: Offset, length, and CRC-32 of the table; gzip's checksums do not cover extra fields.
_ENDING = struct.Struct("<QQI")
_ENDING_BYTES = _HEADER.size + _ENDING.size + len(_EMPTY_CONTENT)
_ROW_BYTES = 16
#: CRC-32 and length of a member's text, its last bytes (RFC 1952, §2.3.1).
_TRAILER_BYTES = 8


class ReadingStart(NamedTuple):
    """Start of reading: an offset in the file, and the number of the first document there."""

    offset: int
    document: int


class Blocks(NamedTuple):
    """Table of a file in blocks: offset and first document number of each block (int64), and of the file's end."""

    rows: NDArray[np.int64]

    @property
    def documents(self) -> int:
        """Number of documents in the file."""
        return int(self.rows[-1, 1])

    def find_block(self, document: int) -> ReadingStart:
        """Return the start of the block with this document, or the file's end if the number is too large."""
        row = int(np.searchsorted(self.rows[:, 1], document, side="right")) - 1
        return ReadingStart(*self.rows[row].tolist())


def write_blocks(lines: BinaryIO, target: Path) -> None:
    """Write the lines of a corpus to a file in blocks. The output is deterministic."""
    rows, offset, documents = [(0, 0)], 0, 0
    with target.open("wb") as file:
        while block := lines.readlines(BLOCK_BYTES):
            offset += file.write(igzip.compress(b"".join(block), COMPRESSION_LEVEL, mtime=0))
            documents += sum(not line.isspace() for line in block)
            rows.append((offset, documents))
        table = np.array(rows, "<i8").tobytes()
        for start in range(0, len(table), _LARGEST_FIELD):
            file.write(_empty_member(_TABLE, table[start : start + _LARGEST_FIELD]))
        file.write(_empty_member(_END, _ENDING.pack(offset, len(table), zlib.crc32(table))))


def _empty_member(name: bytes, content: bytes) -> bytes:
    header = _HEADER.pack(31, 139, 8, 4, 0, 0, 255, len(content) + 4, name, len(content))
    return header + content + _EMPTY_CONTENT


def read_table(path: Path) -> Blocks | None:
    """Return the table of a file in blocks, or None for any other file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _ENDING_BYTES, 0))
        ending = file.read()
        if len(ending) < _ENDING_BYTES:
            return None
        start, length, checksum = _ENDING.unpack_from(ending, _HEADER.size)
        if ending != _empty_member(_END, _ENDING.pack(start, length, checksum)) or not start + length < size:
            return None
        file.seek(start)
        members = file.read(size - start - _ENDING_BYTES)
    table, position = b"", 0
    while position + _HEADER.size < len(members):
        field = position + _HEADER.size
        content = members[field : field + _HEADER.unpack_from(members, position)[-1]]
        member = _empty_member(_TABLE, content)
        if not members.startswith(member, position):
            break
        table += content
        position += len(member)
    if len(table) != length or length % _ROW_BYTES or zlib.crc32(table) != checksum:
        return None
    return Blocks(np.frombuffer(table, "<i8").reshape(-1, 2))


def corpus_fingerprint(path: Path) -> str:
    """Return 64 hexadecimal digits that identify a corpus, without reading it if it is in blocks.

    For a file in blocks, this is the sha256 of the table and of each block's CRC-32 and length of its text; for any
    other file, the sha256 of its bytes. It does not protect against deliberate CRC-32 collisions.
    """
    if (table := read_table(path)) is None:
        return file_sha256(path)
    digest = sha256(table.rows.tobytes())
    with path.open("rb", buffering=0) as file:
        for end in table.rows[1:, 0].tolist():
            digest.update(os.pread(file.fileno(), _TRAILER_BYTES, end - _TRAILER_BYTES))
    return digest.hexdigest()
