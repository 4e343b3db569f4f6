"""Relevance judgments: TREC qrels and BEIR's tab-separated files, read into flat arrays.

`excluded.tsv` lists documents to drop from the rankings of single queries before scoring, like BRIGHT's `excluded_ids`.
Each line has a query id, a tab, and a document id, usually under the header `query-id<TAB>corpus-id`. A document
excluded for a query counts as not retrieved, and the documents below it move up.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import BYTE_ORDER_MARK
from evaluation.collections.tables import column_places
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import PROBLEMS, is_id, judgement_lines, parse_whole_grade
from evaluation.kernel.layout import pad_text
from evaluation.kernel.library import JudgedTable, compute_keys

#: Texts for lines that cannot be used: code → (message, hint).
QRELS_PROBLEMS = {
    **PROBLEMS,
    "grade": ("a grade that is not a whole number: {lines}", "Write grades as 0, 1, 2 …"),
    "duplicate": (
        "a document judged twice for a query: {lines}",
        "Judge each document once per query. Name judgments by subtopic subtopic-qrels.txt.",
    ),
    "empty": ("the file has no judgments", "Check that you chose the right file."),
}
_EXCLUDED_COLUMNS = ("query-id", "corpus-id")
_EXCLUDED_PROBLEMS = {
    "encoding": PROBLEMS["encoding"],
    "identifier": PROBLEMS["identifier"],
    "fields": (
        "not two fields with a tab between them: {lines}",
        "Write `query<TAB>document`, usually under the header `query-id<TAB>corpus-id`.",
    ),
    "duplicate": ("a document excluded twice for a query: {lines}", "List each pair once."),
    "empty": ("the file excludes no document", "Leave the file out, or check that you chose the right one."),
}
_TAG_COLUMNS = ("query-id", "tag")
_TAG = re.compile(rb"[\w.+-]{1,40}")
_TAG_PROBLEMS = {
    **_EXCLUDED_PROBLEMS,
    "fields": (
        "not two fields with a tab between them: {lines}",
        "Write `query<TAB>tag`, usually under the header `query-id<TAB>tag`, and one line for each tag of a query.",
    ),
    "tag": ("an invalid tag: {lines}", "Use 1 to 40 ASCII letters, digits, or . _ + - in tags."),
    "duplicate": ("a query with the same tag twice: {lines}", "List each pair once."),
    "empty": ("the file has no tags", "Check that you chose the right file."),
}


@dataclass(frozen=True)
class Qrels:
    """Judgments grouped by query, as immutable arrays. Reuse an instance, because its lookup tables are built once.

    Attributes:
        query_ids: The judged queries, sorted by their bytes. They include queries with only negative grades, which
            trec_eval counts.
        offsets: Shape (queries + 1,). Query i has the judgments from `offsets[i]` to `offsets[i + 1]`.
        documents: Concatenated document ids in UTF-8, sorted within a query.
        document_offsets: Judgment i is of the document `documents[document_offsets[i]:document_offsets[i + 1]]`.
        grades: Grade of each judgment, ≥ 0.
        negative_count: Number of negative grades, which mean unjudged and are omitted.
        pool: The judgments and the pairs with negative grades; None without such pairs. In place of grades it stores
            judgment numbers. With n judgments, a pair with a negative grade has n, or n + 1 if its document is judged
            for another query.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    documents: NDArray[np.uint8]
    document_offsets: NDArray[np.int64]
    grades: NDArray[np.int32]
    negative_count: int = 0
    pool: Qrels | None = None
    _tables: dict[int, JudgedTable] = field(default_factory=dict, repr=False, compare=False)
    #: Values by query that measures derive only from the judgments, by name. They are computed with the first run.
    cached_values: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_dict(cls, judgements: Mapping[str, Mapping[str, int]]) -> Qrels:
        """Build qrels from `{query id: {document id: grade}}`."""
        return cls._from_bytes(
            {
                query.encode(): {document.encode(): grade for document, grade in graded.items()}
                for query, graded in judgements.items()
            }
        )

    @classmethod
    def _from_bytes(cls, judgements: Mapping[bytes, Mapping[bytes, int]]) -> Qrels:
        """Build qrels from `{query id: {document id: grade}}` in UTF-8.

        Queries with only negative grades are included.
        """
        queries = sorted(judgements)
        documents: list[bytes] = []
        grades: list[int] = []
        counts = [0]
        negative_count = 0
        for query in queries:
            valid_items = sorted(item for item in judgements[query].items() if item[1] >= 0)
            negative_count += len(judgements[query]) - len(valid_items)
            documents += [document for document, _ in valid_items]
            grades += [grade for _, grade in valid_items]
            counts.append(len(documents))
        pool = None
        if negative_count:
            numbers, judged_documents = iter(range(len(documents))), set(documents)
            pool = cls._from_bytes(
                {
                    query: {
                        document: next(numbers) if grade >= 0 else len(documents) + (document in judged_documents)
                        for document, grade in sorted(judgements[query].items())
                    }
                    for query in queries
                }
            )
        return cls(
            query_ids=tuple(query.decode() for query in queries),
            offsets=np.array(counts, np.int64),
            documents=np.frombuffer(b"".join(documents), np.uint8),
            document_offsets=np.cumsum([0, *map(len, documents)], dtype=np.int64),
            grades=np.array(grades, np.int32),
            negative_count=negative_count,
            pool=pool,
        )

    @property
    def number_of_judgements(self) -> int:
        """Number of judgments without negative ones."""
        return len(self.grades)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Query number of every judgment."""
        return np.repeat(np.arange(len(self.query_ids)), np.diff(self.offsets))

    def judgements(self) -> Iterator[tuple[str, str, int]]:
        """Yield (query id, document id, grade) in the order of the arrays."""
        text = self.documents.tobytes()
        edges = self.document_offsets.tolist()
        for number, (row, grade) in enumerate(zip(self.rows.tolist(), self.grades.tolist(), strict=True)):
            yield self.query_ids[row], text[edges[number] : edges[number + 1]].decode(), grade

    def get_grades(self, row: int) -> dict[str, int]:
        """Return `{document id: grade}` for the query with this number, with ids in order of their bytes."""
        first, last = int(self.offsets[row]), int(self.offsets[row + 1])
        edges = self.document_offsets[first : last + 1].tolist()
        text = self.documents[edges[0] : edges[-1]].tobytes()
        names = [text[start - edges[0] : end - edges[0]].decode() for start, end in pairwise(edges)]
        return dict(zip(names, self.grades[first:last].tolist(), strict=True))

    def find_row(self, query_id: str) -> int | None:
        """Return the row of a query, or None if the query is not judged."""
        row = bisect_left(self.query_ids, query_id)
        return row if row < len(self.query_ids) and self.query_ids[row] == query_id else None

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Return `{query id: {document id: grade}}`, as pytrec_eval expects it."""
        result: dict[str, dict[str, int]] = {query: {} for query in self.query_ids}
        for query, document, grade in self.judgements():
            result[query][document] = grade
        return result

    def without_pairs(self, pairs: Mapping[bytes, Collection[bytes]]) -> Qrels:
        """Return these judgments without the given `{query id: document ids}`, but with the same queries."""
        remaining_grades: dict[bytes, dict[bytes, int]] = {query.encode(): {} for query in self.query_ids}
        for query, document, grade in (self.pool or self).judgements():
            if self.pool:
                grade = int(self.grades[grade]) if grade < len(self.grades) else -1
            if document.encode() not in pairs.get(query.encode(), ()):
                remaining_grades[query.encode()][document.encode()] = grade
        return self._from_bytes(remaining_grades)

    def table(self, seed: int) -> JudgedTable:
        """Return the lookup keys of the scoring kernel, built once per hash seed.

        The kernel returns judgment numbers in place of grades; see `pool` for pairs with negative grades.
        """
        if seed not in self._tables:
            pairs = self.pool or self
            text = pad_text(pairs.documents.tobytes())
            keys = compute_keys(text, pairs.document_offsets, seed)
            judgement_numbers = pairs.grades if self.pool else np.arange(len(self.grades), dtype=np.int32)
            self._tables[seed] = JudgedTable(pairs.offsets, keys, pairs.document_offsets, text, judgement_numbers)
        return self._tables[seed]


def read_qrels(path: Path | str) -> Qrels:
    """Read judgments from a TREC file (`query iteration document grade`) or a table such as BEIR's.

    The file may be compressed and begin with a byte order mark. Raises InvalidContent with every class of problem in
    the file and its first lines.
    """
    return Qrels._from_bytes(read_grades(path))


def read_grades(path: Path | str) -> dict[bytes, dict[bytes, int]]:
    """Read judgments as `{query id: {document id: grade}}`, including negative grades, in the order of the file.

    Raises InvalidContent like `read_qrels`.
    """
    judgements: dict[bytes, dict[bytes, int]] = {}
    problems = LineProblems()
    for line in judgement_lines(open_lines(path), problems):
        grade = parse_whole_grade(line.grade)
        if code := add_judgement(judgements, line.query.encode(), line.document.encode(), grade):
            problems.note(code, line.number)
    return check_complete(judgements, problems, QRELS_PROBLEMS)


def read_excluded(path: Path) -> Qrels:
    """Return the excluded documents of each query as qrels with grade 0.

    The file, `excluded.tsv`, may be compressed. Raises InvalidContent with every class of problem in the file and its
    first lines.
    """
    problems = LineProblems()
    pairs = _read_pairs(path, _EXCLUDED_COLUMNS, problems)
    return Qrels._from_bytes(check_complete(pairs, problems, _EXCLUDED_PROBLEMS))


def read_tags(path: Path) -> dict[str, list[str]]:
    """Return the tags of each query in `tags.tsv`, which may be compressed, in file order.

    Raises InvalidContent with every class of problem in the file and its first lines.
    """
    problems = LineProblems()
    pairs = check_complete(_read_pairs(path, _TAG_COLUMNS, problems, _TAG), problems, _TAG_PROBLEMS)
    return {query.decode(): [tag.decode() for tag in tags] for query, tags in pairs.items()}


def _read_pairs(
    path: Path, columns: Sequence[str], problems: LineProblems, pattern: re.Pattern[bytes] | None = None
) -> dict[bytes, dict[bytes, int]]:
    """Read lines of two fields, with or without a header of `columns`, as `{query id: {second field: 0}}`.

    Second fields must match `pattern`.
    """
    pairs: dict[bytes, dict[bytes, int]] = {}
    for number, line in enumerate(open_lines(path), start=1):
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        is_header = number == 1 and column_places(line.decode(errors="replace").split("\t"), columns)
        if not line.strip() or is_header:
            continue
        fields = [field.strip() for field in line.split(b"\t")]
        pair = b"\t".join(fields)
        if len(fields) != 2:
            problems.note("fields", number)
        elif all(map(is_id, fields)) and pair.decode(errors="ignore").encode() != pair:
            problems.note("encoding", number)
        elif pattern is not None and not pattern.fullmatch(fields[1]):
            problems.note("tag", number)
        elif code := add_judgement(pairs, fields[0], fields[1], 0):
            problems.note(code, number)
    return pairs


def add_judgement(
    judgements: dict[bytes, dict[bytes, int]], query: bytes, document: bytes, grade: int | None
) -> str | None:
    """Add a judgment. Return the code of its problem, or None."""
    if not (is_id(query) and is_id(document)):
        return "identifier"
    if grade is None:
        return "grade"
    graded = judgements.setdefault(query, {})
    if document in graded:
        return "duplicate"
    graded[document] = grade
    return None


def check_complete(
    judgements: dict[bytes, dict[bytes, int]], problems: LineProblems, texts: Mapping[str, tuple[str, str]]
) -> dict[bytes, dict[bytes, int]]:
    """Return the judgments unchanged. Raises InvalidContent if there are problems, or no judgments."""
    if problems:
        raise InvalidContent.build(*problems.report(texts))
    if not judgements:
        raise InvalidContent.from_text(texts, "empty")
    return judgements
