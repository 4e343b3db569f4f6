"""Checking a collection before it is taken in: one pass gives statistics, checksum and every problem.

Memory is bounded: 8 bytes a line for finding duplicate identifiers, and no text is kept, so a corpus of five
million documents needs about 100 MB.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import (
    MAX_ID_BYTES,
    Document,
    FileProblems,
    Progress,
    Query,
    iterate_documents,
    iterate_queries,
)
from evaluation.core.problems import Problem

Record = TypeVar("Record", Document, Query)
#: Told every identifier, in the file's order.
OnId = Callable[[str], object]

#: How many identifiers suspected of being duplicates are compared as text; see `_report_duplicates`.
_SUSPECTS_COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What a corpus holds.

    `bytes` and `sha256` are of the expanded file, so that a corpus and its `.gz` have the same;
    `stored_bytes` is the size of the file as it lies there. `mean_words` counts what white space separates in
    title and text together, as Table 1 of the BEIR paper seems to; `empty_documents` have neither title nor
    text; `share_with_titles` is between 0 and 1.
    """

    documents: int
    bytes: int
    stored_bytes: int
    sha256: str
    mean_words: float
    empty_documents: int
    share_with_titles: float


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """What a file of queries holds; fields as in CorpusStatistics."""

    queries: int
    bytes: int
    stored_bytes: int
    sha256: str
    mean_words: float
    empty_queries: int


def check_corpus(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> CorpusStatistics:
    """Read a corpus once and say what it holds.

    Raises InvalidContent with all problems together: unusable lines, duplicate identifiers (exact), no
    document at all. `on_id` has then been told identifiers of a file that is not taken in.
    """
    titled = 0

    def count_words(document: Document) -> int:
        nonlocal titled
        titled += bool(document.title)
        return len(document.title.split()) + len(document.text.split())

    counts = _Counts(path, iterate_documents, count_words, "document", on_id, progress)
    return CorpusStatistics(
        documents=counts.records,
        empty_documents=counts.empty,
        share_with_titles=titled / counts.records,
        **counts.as_dict(),
    )


def check_queries(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> QueryStatistics:
    """Read the queries once and say what they are; errors as in `check_corpus`."""
    counts = _Counts(path, iterate_queries, lambda query: len(query.text.split()), "query", on_id, progress)
    return QueryStatistics(queries=counts.records, empty_queries=counts.empty, **counts.as_dict())


class _Counts(Generic[Record]):
    """What one pass over a file counts. Raises InvalidContent, see `check_corpus`."""

    def __init__(
        self,
        path: Path,
        iterate: Callable[..., Iterator[tuple[int, Record]]],
        count_words: Callable[[Record], int],
        what: str,
        on_id: OnId | None,
        progress: Progress | None,
    ) -> None:
        self.records = self.words = self.empty = self.bytes = 0
        self._path = path
        self._count_words: Callable[[Record], int] = count_words
        self._sha256 = hashlib.sha256()
        findings = FileProblems(path.name)
        read = self._count(iterate(path, findings, progress, self._take_bytes))
        again = ((line, record.id) for line, record in iterate(path, FileProblems(path.name)))
        _find_duplicates(read, lambda: again, findings, on_id)
        if self.records == 0 and not findings:
            message, hint = (
                f"{path.name} holds no {what}",
                f"Write one JSON object a line, one for each {what}.",
            )
            findings.add_problem(Problem("error", "empty_file", 1, message, hint))
        findings.raise_if_any()

    def _take_bytes(self, data: bytes) -> None:
        self.bytes += len(data)
        self._sha256.update(data)

    def _count(self, records: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, str]]:
        for line, record in records:
            words = self._count_words(record)
            self.records += 1
            self.words += words
            self.empty += words == 0
            yield line, record.id

    def as_dict(self) -> dict[str, Any]:
        """What corpora and queries have in common, by names of fields."""
        return {
            "bytes": self.bytes,
            "stored_bytes": self._path.stat().st_size,
            "sha256": self._sha256.hexdigest(),
            "mean_words": self.words / self.records,
        }


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
        if len(identifier.split()) == 1 and len(line) <= MAX_ID_BYTES:
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
