"""Checking a collection before it is taken in: one pass gives statistics, checksum and every problem.

Memory is bounded: 8 bytes a line for finding duplicate identifiers, and no text is kept, so a corpus of five
million documents needs about 100 MB.
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

#: Called with every identifier, in the file's order.
OnId = Callable[[str], object]

#: How many identifiers suspected of being duplicates are compared as text; see `_report_duplicates`.
_SUSPECTS_COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Counts of a corpus or a file of queries; `records` are its documents or queries.

    `bytes` and `sha256` are of the expanded file, so that a corpus and its `.gz` have the same; `stored_bytes` is the
    size of the file. `mean_words` counts what white space separates in title and text together, as Table 1 of the BEIR
    paper seems to; `empty` records have neither title nor text; `share_with_titles` is between 0 and 1.
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

    Raises InvalidContent with all problems together: unusable lines, duplicate identifiers (exact), no document at all.
    `on_id` has then been called with identifiers of a file that is not imported.
    """
    return _check(path, beir.iterate_documents, "document", on_id, progress)


def check_queries(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> FileStatistics:
    """Read the queries once and return their statistics; errors as in `check_corpus`."""
    return _check(path, beir.iterate_queries, "query", on_id, progress)


def copy_queries(path: Path, wanted: Collection[str], target: Path) -> FileStatistics:
    """Copy the lines of the wanted queries as they are, and return the statistics of the copy."""
    line = b""

    def remember(data: bytes) -> None:
        nonlocal line
        line = data

    with target.open("wb") as file:
        for _, query in beir.iterate_queries(path, FileProblems(path.name), on_bytes=remember):
            if query.id in wanted:
                file.write(line if line.endswith(b"\n") else line + b"\n")
    return check_queries(target)


def _check(
    path: Path,
    iterate: Callable[..., Iterator[tuple[int, Document | Query]]],
    kind: str,
    on_id: OnId | None,
    progress: Progress | None,
) -> FileStatistics:
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

    again = ((line, record.id) for line, record in iterate(path, FileProblems(path.name)))
    _find_duplicates(identifiers(), lambda: again, findings, on_id)
    if records == 0 and not findings:
        hint = f"Write one JSON object a line, one for each {kind}."
        findings.add_problem(Problem("error", "empty_file", 1, f"{path.name} holds no {kind}", hint))
    findings.raise_if_any()
    return FileStatistics(
        records, size, path.stat().st_size, sha256.hexdigest(), words / records, empty, titled / records
    )


def check_document_ids(path: Path, on_id: OnId) -> None:
    """Read a list of document ids, one a line, plain or compressed; blank lines are passed over.

    Raises InvalidContent for lines that are no id, and for ids that are there twice; `on_id` as in `check_corpus`.
    """
    findings = FileProblems(path.name)
    _find_duplicates(
        _listed_ids(path, findings), lambda: _listed_ids(path, FileProblems(path.name)), findings, on_id
    )
    findings.raise_if_any()


def _listed_ids(path: Path, findings: FileProblems) -> Iterator[tuple[int, str]]:
    """(line number, id) for each line that is one."""
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
    """Pass through (line, identifier) pairs, and add every line whose identifier was used before.

    Of each identifier only Python's own hash is kept, which is 64 bits wide and differs from process to
    process, so that no file can be made to collide. Equal hashes are only a suspicion: a second pass compares
    the text.
    """
    hashes = array("q")
    for _, identifier in identifiers:
        hashes.append(hash(identifier))
        if on_id is not None:
            on_id(identifier)
    ordered = np.array(hashes, dtype=np.int64)
    ordered.sort()
    repeated = ordered[1:] == ordered[:-1]
    if repeated.any():
        _report_duplicates(ordered, repeated, read_again(), findings)


def _report_duplicates(
    ordered: np.ndarray,
    repeated: np.ndarray,
    identifiers: Iterable[tuple[int, str]],
    findings: FileProblems,
) -> None:
    """Compare the identifiers with repeated hashes as text, and report those that are really equal.

    So that a file full of duplicates needs no more memory than another, text is compared for the first
    `_SUSPECTS_COMPARED` suspected hashes only; beyond these the hashes are believed (of five million distinct
    identifiers, two share a hash with a probability of 10⁻⁶).
    """
    suspects = np.unique(ordered[1:][repeated])
    compared = {int(value) for value in suspects[:_SUSPECTS_COMPARED]}
    believed = suspects[_SUSPECTS_COMPARED:]
    seen: set[str] = set()
    seen_hashes = np.zeros(len(believed), dtype=np.bool_)
    for line, identifier in identifiers:
        value = hash(identifier)
        if value in compared:
            duplicate = identifier in seen
            seen.add(identifier)
        else:
            place = int(np.searchsorted(believed, value)) if len(believed) else 0
            if place == len(believed) or believed[place] != value:
                continue
            duplicate = bool(seen_hashes[place])
            seen_hashes[place] = True
        if duplicate:
            findings.note("duplicate_id", line)
