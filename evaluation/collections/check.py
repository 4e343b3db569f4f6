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

import numpy as np

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import (
    MAX_ID_BYTES,
    Document,
    Findings,
    Progress,
    Query,
    iterate_documents,
    iterate_queries,
)
from evaluation.core.problems import LINES_NAMED, Problem

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
    findings = Findings(path.name)
    digest = _Digest()
    documents = words = empty = titled = 0

    def count() -> Iterator[tuple[int, str]]:
        nonlocal documents, words, empty, titled
        for line, document in iterate_documents(path, findings, progress, digest.update):
            documents += 1
            words_here = len(document.title.split()) + len(document.text.split())
            words += words_here
            empty += words_here == 0
            titled += bool(document.title)
            yield line, document.id

    _find_duplicates(count(), lambda: _ids(iterate_documents(path, Findings(path.name))), findings, on_id)
    _require_some(documents, findings, "document")
    findings.raise_if_any()
    return CorpusStatistics(
        documents=documents,
        bytes=digest.size,
        stored_bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        mean_words=words / documents,
        empty_documents=empty,
        share_with_titles=titled / documents,
    )


def check_queries(path: Path, on_id: OnId | None = None, progress: Progress | None = None) -> QueryStatistics:
    """Read the queries once and say what they are; errors as in `check_corpus`."""
    findings = Findings(path.name)
    digest = _Digest()
    queries = words = empty = 0

    def count() -> Iterator[tuple[int, str]]:
        nonlocal queries, words, empty
        for line, query in iterate_queries(path, findings, progress, digest.update):
            queries += 1
            words_here = len(query.text.split())
            words += words_here
            empty += words_here == 0
            yield line, query.id

    _find_duplicates(count(), lambda: _ids(iterate_queries(path, Findings(path.name))), findings, on_id)
    _require_some(queries, findings, "query")
    findings.raise_if_any()
    return QueryStatistics(
        queries=queries,
        bytes=digest.size,
        stored_bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        mean_words=words / queries,
        empty_queries=empty,
    )


def check_document_ids(path: Path, on_id: OnId) -> None:
    """Read a list of document ids, one a line, plain or compressed; blank lines are passed over.

    Raises InvalidContent for lines that are no id, and for ids that are there twice; `on_id` as in `check_corpus`.
    """
    findings = Findings(path.name)
    _find_duplicates(
        _listed_ids(path, findings), lambda: _listed_ids(path, Findings(path.name)), findings, on_id
    )
    findings.raise_if_any()


def _listed_ids(path: Path, findings: Findings) -> Iterator[tuple[int, str]]:
    """(line number, id) for each line that is one."""
    for number, line in enumerate(open_lines(path), start=1):
        if not line:
            continue
        try:
            identifier = line.decode()
        except UnicodeDecodeError:
            findings.add("not_utf8", number)
            continue
        if len(identifier.split()) == 1 and len(line) <= MAX_ID_BYTES:
            yield number, identifier.strip()
        else:
            findings.add("unusable_id", number)


def _ids(records: Iterable[tuple[int, Document | Query]]) -> Iterator[tuple[int, str]]:
    return ((line, record.id) for line, record in records)


class _Digest:
    """The sha256 and the number of the bytes it is told."""

    def __init__(self) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self.hexdigest = self._sha256.hexdigest

    def update(self, data: bytes) -> None:
        self.size += len(data)
        self._sha256.update(data)


def _require_some(count: int, findings: Findings, what: str) -> None:
    if count == 0 and not findings:
        findings.add_problem(
            Problem(
                severity="error",
                code="empty_file",
                count=1,
                message=f"{findings.file_name} holds no {what}",
                hint=f"Write one JSON object a line, one for each {what}.",
            )
        )


def _find_duplicates(
    identifiers: Iterable[tuple[int, str]],
    read_again: Callable[[], Iterable[tuple[int, str]]],
    findings: Findings,
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
    findings: Findings,
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
    count = 0
    lines: list[int] = []
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
            count += 1
            if len(lines) < LINES_NAMED:
                lines.append(line)
    if count:
        findings.add_counted("duplicate_id", count, lines)
