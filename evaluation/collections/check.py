"""Checks of a collection before its import: statistics, checksum, and every problem, in one pass.

The search for duplicate ids needs at most 8 bytes of memory per line. Texts are not stored, so a corpus of five million
documents needs about 100 MB.
"""

import hashlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.archives.compression import open_lines
from evaluation.collections import beir
from evaluation.collections.beir import Document, FileProblems, Progress, Query
from evaluation.core.problems import Problem

#: Callback that receives every id, in the file's order.
OnId = Callable[[str], object]

#: Maximum number of suspected duplicates that are compared as text; see `_report_duplicates`.
_SUSPECTS_COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics of a corpus or a query file; `records` are its documents or queries.

    Attributes:
        bytes: Size of the expanded file, so that a corpus and its `.gz` agree.
        stored_bytes: Size of the file as stored.
        sha256: Checksum of the expanded file.
        mean_words: Mean number of words, separated by white space, in title and text together. Table 1 of the BEIR
            paper appears to use the same definition.
        empty: Number of records with neither title nor text.
        share_with_titles: Share of records with a title, between 0 and 1.
    """

    records: int
    bytes: int
    stored_bytes: int
    sha256: str
    mean_words: float
    empty: int
    share_with_titles: float


def check_corpus(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> FileStatistics:
    """Read a corpus once and return its statistics.

    Raises InvalidContent with all problems: unusable lines, duplicate ids (exact), or no documents. Because problems
    are raised at the end, `on_id` may receive the ids of a file that is then rejected.
    """
    return _check_file(path, beir.iterate_documents, "document", on_id, progress)


def check_queries(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> FileStatistics:
    """Read the queries once and return their statistics. Raises the same errors as `check_corpus`."""
    return _check_file(path, beir.iterate_queries, "query", on_id, progress)


def copy_queries(path: Path, query_ids: Collection[str], target: Path) -> FileStatistics:
    """Copy the lines of the selected queries unchanged, and return the statistics of the copy.

    Unusable lines of `path` are skipped. Raises InvalidContent if an id is copied twice, or no line is copied.
    """
    line = b""

    def remember(data: bytes) -> None:
        nonlocal line
        line = data

    with target.open("wb") as file:
        for _, query in beir.iterate_queries(path, FileProblems(path.name), on_bytes=remember):
            if query.id in query_ids:
                file.write(line if line.endswith(b"\n") else line + b"\n")
    return check_queries(target)


def _check_file(
    path: Path,
    iterate: Callable[..., Iterator[tuple[int, Document | Query]]],
    kind: str,
    on_id: OnId | None,
    progress: Progress | None,
) -> FileStatistics:
    """Read a corpus or query file and return its statistics; `iterate` yields (line number, record).

    The file is read again only if ids may be repeated. `kind` names a record in messages. Raises InvalidContent like
    `check_corpus`.
    """
    records = words = empty = titled = size = 0
    sha256 = hashlib.sha256()
    findings = FileProblems(path.name)

    def add_bytes(data: bytes) -> None:
        nonlocal size
        size += len(data)
        sha256.update(data)

    def identifiers() -> Iterator[tuple[int, str]]:
        nonlocal records, words, empty, titled
        for line, record in iterate(path, findings, progress, add_bytes):
            number = sum(len(text.split()) for text in record[1:])
            records += 1
            words += number
            empty += number == 0
            titled += len(record) > 2 and record[1] != ""
            yield line, record.id

    second_pass = ((line, record.id) for line, record in iterate(path, FileProblems(path.name)))
    _find_duplicates(identifiers(), lambda: second_pass, findings, on_id)
    if records == 0 and not findings:
        hint = f"Write one JSON object per line, one for each {kind}."
        findings.add_problem(Problem("error", "empty_file", 1, f"{path.name} has no {kind}", hint))
    findings.raise_if_any()
    return FileStatistics(
        records, size, path.stat().st_size, sha256.hexdigest(), words / records, empty, titled / records
    )


def check_document_ids(path: Path, on_id: OnId) -> None:
    """Read a list of document ids, one per line, plain or compressed, skipping blank lines.

    Raises InvalidContent for lines that are not ids and for duplicate ids. `on_id` is called as in `check_corpus`.
    """
    findings = FileProblems(path.name)
    _find_duplicates(_read_ids(path, findings), lambda: _read_ids(path, FileProblems(path.name)), findings, on_id)
    findings.raise_if_any()


def _read_ids(path: Path, findings: FileProblems) -> Iterator[tuple[int, str]]:
    """Yield (line number, id) for each line with an id; add other lines that are not blank to `findings`."""
    for number, line in enumerate(open_lines(path), start=1):
        if not line:
            continue
        try:
            identifier = line.decode()
        except UnicodeDecodeError:
            findings.note("not_utf8", number)
            continue
        if len(identifier.split()) == 1 and len(line) <= beir.MAX_ID_BYTES:
            yield number, identifier.strip()
        else:
            findings.note("unusable_id", number)


def _find_duplicates(
    identifiers: Iterable[tuple[int, str]],
    read_again: Callable[[], Iterable[tuple[int, str]]],
    findings: FileProblems,
    on_id: OnId | None,
) -> None:
    """Read (line number, id) pairs, pass each id to `on_id`, and report every line with the id of an earlier line.

    Only Python's hash of each id is stored. It has 64 bits and differs between processes, so attackers cannot prepare
    collisions. Equal hashes are only suspected duplicates: a second pass, over the pairs of `read_again`, compares the
    texts.
    """
    hashes = array("q")
    for _, identifier in identifiers:
        hashes.append(hash(identifier))
        if on_id is not None:
            on_id(identifier)
    sorted_hashes = np.array(hashes, dtype=np.int64)
    sorted_hashes.sort()
    is_repeated = sorted_hashes[1:] == sorted_hashes[:-1]
    if is_repeated.any():
        _report_duplicates(sorted_hashes, is_repeated, read_again(), findings)


def _report_duplicates(
    sorted_hashes: np.ndarray,
    is_repeated: np.ndarray,
    identifiers: Iterable[tuple[int, str]],
    findings: FileProblems,
) -> None:
    """Compare ids with repeated hashes as text and report real duplicates.

    To bound memory for a file full of duplicates, text is compared only for the first `_SUSPECTS_COMPARED` hashes.
    Beyond them, equal hashes count as duplicates (among five million distinct ids, two share a hash with a probability
    of 10⁻⁶).
    """
    suspects = np.unique(sorted_hashes[1:][is_repeated])
    text_hashes = {int(value) for value in suspects[:_SUSPECTS_COMPARED]}
    other_hashes = suspects[_SUSPECTS_COMPARED:]
    ids: set[str] = set()
    has_occurred = np.zeros(len(other_hashes), dtype=np.bool_)
    for line, identifier in identifiers:
        value = hash(identifier)
        if value in text_hashes:
            duplicate = identifier in ids
            ids.add(identifier)
        else:
            index = int(np.searchsorted(other_hashes, value)) if len(other_hashes) else 0
            if index == len(other_hashes) or other_hashes[index] != value:
                continue
            duplicate = bool(has_occurred[index])
            has_occurred[index] = True
        if duplicate:
            findings.note("duplicate_id", line)
