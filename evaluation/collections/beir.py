"""Reading test collections in BEIR layout: `corpus.jsonl` and `queries.jsonl`, plain or gzip, as a stream.

One JSON object a line. A document has `_id`, `text` and optionally `title`; a query has `_id` and `text`. Whole
numbers are read as their decimal text, a text that is missing, null, or NaN as empty. Documents with empty text are
kept. Blank lines are skipped. Problems are collected over the whole file, so that the sender sees every class of
problem at once, with its count and its first five lines.

A corpus may be in blocks: one gzip file that every reader takes, and that ours reads from any document on. Whole lines,
about `BLOCK_BYTES` of them, are a gzip member each, and members one behind the other are a gzip file (RFC 1952, §2.2).
Members without content follow, whose extra fields (§2.3.1.1) hold the table of the blocks: where each
begins in the file, and how many documents are before it. The last one says where the table begins, and has one length,
so the table is found from the end of the file, in three reads however many blocks there are.
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

from evaluation.core.files import sha256_of
from evaluation.core.problems import LINES_NAMED, InvalidContent, LineProblems, Problem

#: Longest line accepted, in bytes. A book of 1,000 pages has about 3 MB.
MAX_LINE_BYTES = 64 * 2**20
#: Longest identifier accepted, in bytes of UTF-8.
MAX_ID_BYTES = 256

#: Told the share of the file's bytes that has been read, 0 to 1. It may raise to stop the reading.
Progress = Callable[[float], None]

_GZIP_MAGIC = b"\x1f\x8b"
#: Expanded : stored, of files that expand to more than the floor, in bytes.
_MOST_RATIO, _RATIO_FLOOR = 50, 64 * 2**20
_open_gzip: Callable[..., io.RawIOBase] = igzip.open
_DAMAGED_GZIP: tuple[type[Exception], ...] = (EOFError, BadGzipFile, cast("type[Exception]", IsalError))
#: What some programs put before the text of a UTF-8 file. It is no part of the text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINES_BETWEEN_PROGRESS = 2000
#: ASCII white space separates the fields of a run, and control characters break its lines.
_NOT_IN_ID = re.compile(r"[\x00-\x20\x7f]")

#: What can be wrong with a line: code → (message after “line 7” | “lines”, what would be right).
_LINE_PROBLEMS = {
    "line_too_long": ("is|are longer than 64 MiB", "Split the document into passages, each with its own `_id`."),
    "not_utf8": ("is|are not UTF-8", "Save the file as UTF-8."),
    "malformed_json": ("does|do not hold one JSON object",
        'Each line holds one object, such as {"_id": "d1", "title": "…", "text": "…"}.'),
    "missing_id": ("has|have no `_id`", "Give every line a string `_id` that is not empty."),
    "missing_text": ("has|have no `text`",
        "Name the text field `text`, as BEIR does. Lines may omit it only if other lines have it."),
    "not_a_string": ("has|have an `_id`, `title` or `text` that is neither a string nor a whole number",
        "Write identifiers and texts in double quotes: fractions, booleans, and lists are not accepted."),
    "unusable_id": ("has|have an id with white space or control characters, or of more than 256 bytes",
        "Identifiers must fit into a TREC run, whose fields are separated by white space."),
    "duplicate_id": ("repeats|repeat the id of an earlier line", "Give every line an id of its own."),
}  # fmt: skip

#: Field names for the text of a document, and of a query, in other libraries.
OTHER_TEXT_FIELDS = ("contents", "content", "body", "passage", "passage_text", "document", "doc_text")
OTHER_QUERY_FIELDS = ("query", "query_text", "question")


class Document(NamedTuple):
    """One document of a corpus; `title` is empty where the corpus has none."""

    id: str
    title: str
    text: str


class Query(NamedTuple):
    """One query (topic) of a collection."""

    id: str
    text: str


class FileProblems(LineProblems):
    """What is wrong with one file: for each class of problem its count and first lines."""

    def __init__(self, file_name: str) -> None:
        super().__init__()
        self.file_name = file_name
        self._others: list[Problem] = []

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._others)

    def add_problem(self, problem: Problem) -> None:
        """Add a problem of the file as a whole."""
        self._others.append(problem)

    def add_counts(self, other: LineProblems) -> None:
        """Add the counts and first lines of `other`."""
        self.counts.update(other.counts)
        for code, lines in other.lines.items():
            self.lines[code] = sorted([*self.lines[code], *lines])[:LINES_NAMED]

    def problems(self) -> tuple[Problem, ...]:
        """Every class of problem found, as errors, in order of the first line concerned."""
        problems = []
        for code, (text, hint) in _LINE_PROBLEMS.items():
            if count := self.counts[code]:
                verbs, _, rest = text.partition(" ")
                subject = f"{count:,} line{'s' * (count > 1)} {verbs.split('|')[count > 1]}"
                message = f"{self.file_name}: {subject} {rest}"
                problems.append(Problem("error", code, count, message, hint, tuple(self.lines[code])))
        return (*self._others, *sorted(problems, key=lambda problem: problem.lines))

    def raise_if_any(self) -> None:
        """Raise InvalidContent with all problems, if there are any."""
        if self:
            raise InvalidContent.of(*self.problems())


def read_corpus(path: Path, progress: Progress | None = None, *, first: int = 0) -> Iterator[Document]:
    """Yield the documents of `corpus.jsonl` (or `.gz`) one by one, in the file's order, from number `first` on.

    In a file of blocks, text before that document's block is not read. Raises InvalidContent
    with every problem of the file. Nothing after the first problem is yielded, but the file is read to its end, to
    count. Duplicate identifiers are not looked for here: see `check`.
    """
    findings = FileProblems(path.name)
    for _, document in iterate_documents(path, findings, progress, first=first):
        if not findings:
            yield document
    findings.raise_if_any()


def read_queries(path: Path) -> Iterator[Query]:
    """Yield the queries of `queries.jsonl` (or `.gz`) one by one; errors as in `read_corpus`."""
    findings = FileProblems(path.name)
    for _, query in iterate_queries(path, findings):
        if not findings:
            yield query
    findings.raise_if_any()


def count_documents(path: Path) -> int:
    """How many lines of `corpus.jsonl` (or `.gz`) are not blank, without reading what they say."""
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
    first: int = 0,
) -> Iterator[tuple[int, Document]]:
    """(line number, document) for each usable line; what is wrong with the others goes to `findings`.

    `on_bytes` receives the expanded bytes of the file, line by line and without a byte order mark: for checksums. From
    document number `first` on lines are read; their numbers count from where reading began.
    """
    for number, record in _iterate_records(path, findings, progress, on_bytes, first):
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
    """(line number, query) for each usable line, as `iterate_documents`."""
    for number, record in _iterate_records(path, findings, progress, on_bytes, 0):
        yield number, Query(record["_id"], record["text"])


def _iterate_records(
    path: Path,
    findings: FileProblems,
    progress: Progress | None,
    on_bytes: Callable[[bytes], object] | None,
    first: int,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) for each line whose `_id` and `text` are usable; in the record they are strings."""
    without, with_text = LineProblems(), first > 0
    table = read_table(path) if first else None
    place = table.place_of(first) if table else Place(0, 0)
    passed = place.document
    for number, line in iterate_lines(path, findings, progress, on_bytes, place.offset):
        if passed < first:
            passed += not line.isspace()
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            if not line.strip():
                continue
            record = parse_leniently(line, number, findings)
            if record is None:
                continue
        if problem := _normalize(record):
            findings.note(problem, number)
            continue
        if "text" in record:
            with_text = True
        else:
            without.note("missing_text", number)
            record["text"] = ""
        yield number, record
    if without and not with_text:
        findings.add_counts(without)


def _normalize(record: Any) -> str | None:
    """Convert the record's `_id` and `text` to strings; return the code of a problem, or None."""
    if not isinstance(record, dict):
        return "malformed_json"
    identifier = as_text(record.get("_id"))
    if not identifier:
        return "not_a_string" if identifier is None else "missing_id"
    if _NOT_IN_ID.search(identifier) or len(identifier.encode()) > MAX_ID_BYTES:
        return "unusable_id"
    record["_id"] = identifier
    if "text" not in record:
        return (
            "missing_text"
            if any(name in record for name in (*OTHER_TEXT_FIELDS, *OTHER_QUERY_FIELDS))
            else None
        )
    record["text"] = as_text(record["text"])
    return "not_a_string" if record["text"] is None else None


def as_text(value: Any) -> str | None:
    """Return an id or text as a string: empty for null and NaN, digits for a whole number, None for anything else."""
    if isinstance(value, str):
        return value
    if value is None or value != value:  # pandas writes a missing value as NaN
        return ""
    return str(value) if type(value) is int else None


def parse_leniently(line: bytes, number: int, findings: FileProblems) -> Any:
    """Parse what orjson refuses but Python's json writes: lone surrogates (replaced by U+FFFD) and NaN."""
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
        key: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if isinstance(value, str)
        else value
        for key, value in record.items()
    }


def iterate_lines(
    path: Path,
    findings: FileProblems,
    progress: Progress | None = None,
    on_bytes: Callable[[bytes], object] | None = None,
    offset: int = 0,
) -> Iterator[tuple[int, bytes]]:
    """(1-based line number, line with its end) for every line that is not too long, from a member of the file on."""
    with open_expanded(path, offset) as (stored, stream):
        size = max(path.stat().st_size, 1)
        number = expanded = 0
        looked_at = _RATIO_FLOOR
        cut = False  # whether the last line read goes on
        while True:
            try:
                line = stream.readline(MAX_LINE_BYTES)
            except _DAMAGED_GZIP as error:
                ends_early = isinstance(error, EOFError)
                why = "it ends before its compressed data does" if ends_early else "it does not expand"
                message = f"{path.name}: the compressed file is damaged after line {number:,}: {why}"
                hint = "Compress the file again, and check it with `gzip -t`."
                findings.add_problem(Problem("error", "damaged_file", 1, message, hint, (max(number, 1),)))
                break
            if not line:
                break
            expanded += len(line)
            if expanded > looked_at:
                looked_at += 2**20
                if expanded > _MOST_RATIO * stored.tell():
                    message = f"{path.name} expands to more than {_MOST_RATIO} times its size"
                    hint = "Text shrinks three- to tenfold; send the file plain if it is real."
                    findings.add_problem(Problem("error", "expansion", 1, message, hint))
                    break
            continued, cut = cut, len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
            if number == 0 and not continued:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if on_bytes is not None:
                on_bytes(line)
            if continued:
                continue
            number += 1
            if cut:
                findings.note("line_too_long", number)
                continue
            yield number, line
            if progress is not None and number % _LINES_BETWEEN_PROGRESS == 0:
                progress(min(stored.tell() / size, 1.0))
    if progress is not None:
        progress(1.0)


@contextmanager
def open_expanded(path: Path, offset: int = 0) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """(stored file, stream of its expanded bytes); gzip is told from its first bytes, not from the name.

    `offset` is where a member of a gzip file begins.
    """
    with path.open("rb", buffering=2**20) as stored:
        if stored.read(2) != _GZIP_MAGIC:
            stored.seek(0)
            yield stored, stored
            return
        stored.seek(offset)
        with _open_gzip(stored, "rb") as expanded:
            yield stored, io.BufferedReader(expanded, 2**20)


#: Bytes of text in a block, or a little more: so much is read at most to come to a document.
BLOCK_BYTES = 1 << 20
#: As little as is useful: texts are read far more often than they are stored.
COMPRESSION_LEVEL = 2
_TABLE, _END = b"RT", b"RE"
#: Bytes of an extra field's content beside its own head, a multiple of a row's.
_LARGEST_FIELD = 65_520
_HEADER = struct.Struct("<4BI2BH2sH")
#: An empty deflate block, the checksum of nothing and its length.
_NOTHING = b"\x03\x00" + bytes(8)
#: Where the table begins, how long it is, and its CRC-32, since extra fields are in no checksum of gzip.
_ENDING = struct.Struct("<QQI")
_ENDING_BYTES = _HEADER.size + _ENDING.size + len(_NOTHING)
_ROW_BYTES = 16
#: CRC-32 and length of a member's text, its last bytes (RFC 1952, §2.3.1).
_TRAILER_BYTES = 8


class Place(NamedTuple):
    """Where reading begins: an offset in the file, and the number of the first document there."""

    offset: int
    document: int


class Blocks(NamedTuple):
    """The table of a file: offset and number of the first document of each block (int64), and of the file's end."""

    rows: NDArray[np.int64]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self.rows[-1, 1])

    def place_of(self, document: int) -> Place:
        """Return the block that the document is in; the file's end for one that there is not."""
        row = int(np.searchsorted(self.rows[:, 1], document, side="right")) - 1
        return Place(*self.rows[row].tolist())


def write_blocks(lines: BinaryIO, target: Path) -> None:
    """Write the lines of a corpus to a file in blocks. The same lines give the same bytes."""
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
    return header + content + _NOTHING


def read_table(path: Path) -> Blocks | None:
    """Return the table of a file in blocks; None for any other file."""
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
    table, place = b"", 0
    while place + _HEADER.size < len(members):
        field = place + _HEADER.size
        content = members[field : field + _HEADER.unpack_from(members, place)[-1]]
        member = _empty_member(_TABLE, content)
        if not members.startswith(member, place):
            break
        table += content
        place += len(member)
    if len(table) != length or length % _ROW_BYTES or zlib.crc32(table) != checksum:
        return None
    return Blocks(np.frombuffer(table, "<i8").reshape(-1, 2))


def fingerprint_of(path: Path) -> str:
    """What tells a corpus from another, as 64 hexadecimal digits, without reading it where it is in blocks.

    Of a file in blocks it is the sha256 of the table and of the CRC-32 and length that each block has of its text; of
    any other file that of its bytes. It is no proof against somebody who looks for two texts of one CRC-32.
    """
    if (table := read_table(path)) is None:
        return sha256_of(path)
    found = sha256(table.rows.tobytes())
    with path.open("rb", buffering=0) as file:
        for end in table.rows[1:, 0].tolist():
            found.update(os.pread(file.fileno(), _TRAILER_BYTES, end - _TRAILER_BYTES))
    return found.hexdigest()
