"""Relevance judgments by subtopic, for measures of novelty and diversity.

`subtopics.txt` has the form of the diversity qrels of TREC's Web tracks: `query subtopic document grade`. A document
may be judged for several subtopics of a query. Other measures use the highest of these grades.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import BYTE_ORDER_MARK
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import PROBLEMS, is_id, whole_grade
from evaluation.judgements.qrels import Qrels, add_judgement, check_complete

#: Grades as `{subtopic: {query id: {document id: grade}}}`, including negative ones.
SubtopicGrades = Mapping[bytes, Mapping[bytes, Mapping[bytes, int]]]

#: Texts for lines that cannot be used: code → (message, hint).
_PROBLEMS = {
    **PROBLEMS,
    "fields": ("not four fields: {lines}", "Write `query subtopic document grade`."),
    "grade": ("a grade that is not a whole number: {lines}", "Write grades as 0, 1, 2 …"),
    "duplicate": (
        "a document judged twice for a subtopic: {lines}",
        "Judge each document once per subtopic of a query.",
    ),
    "empty": ("the file has no judgments", "Check that you chose the right file."),
}


@dataclass(frozen=True)
class Subtopics:
    """Judgments by subtopic as arrays, with the judgments of qrels by their number.

    Attributes:
        offsets: Shape (judgments + 1,). Judgment i has the entries from `offsets[i]` to `offsets[i + 1]`.
        subtopic: Number of the subtopic of each entry, ascending within a judgment. Queries have different numbers.
        grades: Grade of each entry, ≥ 0.
        query: Row in the qrels of each subtopic.
        cached_rankings: Query rows, ranks, and gains of ideal rankings, by relevance level and depth.
    """

    offsets: NDArray[np.int64]
    subtopic: NDArray[np.int64]
    grades: NDArray[np.int64]
    query: NDArray[np.int64]
    cached_rankings: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def align(cls, grades: SubtopicGrades, qrels: Qrels) -> Self:
        """Return the grades of the pairs in `qrels`. Negative grades and other pairs are omitted."""
        judgements = {
            (query.encode(), document.encode()): number
            for number, (query, document, _) in enumerate(qrels.judgements())
        }
        rows = {query.encode(): row for row, query in enumerate(qrels.query_ids)}
        numbers: dict[tuple[bytes, bytes], int] = {}
        entries = sorted(
            (judgements[query, document], numbers.setdefault((query, subtopic), len(numbers)), grade)
            for subtopic in sorted(grades)
            for query, graded in grades[subtopic].items()
            for document, grade in graded.items()
            if grade >= 0 and (query, document) in judgements
        )
        judgement, number, grade = np.array(entries, np.int64).reshape(-1, 3).T
        offsets = np.searchsorted(judgement, np.arange(qrels.number_of_judgements + 1))
        return cls(offsets, number, grade, np.array([rows[query] for query, _ in numbers], np.int64))


def read_subtopics(path: Path) -> SubtopicGrades:
    """Read judgments by subtopic, including negative grades.

    The file may be compressed and begin with a byte order mark. Raises InvalidContent with every class of problem in
    the file and its first lines.
    """
    grades: dict[bytes, dict[bytes, dict[bytes, int]]] = {}
    problems = LineProblems()
    for number, line in enumerate(open_lines(path), start=1):
        fields = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).split()
        if not fields:
            continue
        if len(fields) != 4 or not is_id(fields[1]):
            problems.note("fields" if len(fields) != 4 else "identifier", number)
            continue
        query, subtopic, document, grade = fields
        if line.decode(errors="ignore").encode() != line or b"\0" in line:
            problems.note("encoding", number)
        elif code := add_judgement(grades.setdefault(subtopic, {}), query, document, whole_grade(grade.decode())):
            problems.note(code, number)
    return check_complete(grades, problems, _PROBLEMS)


def has_subtopics(path: Path) -> bool:
    """Return whether a file of judgments in TREC's form judges a document for several subtopics of a query."""
    subtopics: dict[tuple[bytes, bytes], bytes] = {}
    with suppress(InvalidContent):
        for fields in filter(None, map(bytes.split, open_lines(path))):
            if len(fields) != 4:
                return False
            if subtopics.setdefault((fields[0], fields[2]), fields[1]) != fields[1]:
                return True
    return False


def highest_grades(grades: SubtopicGrades) -> dict[bytes, dict[bytes, int]]:
    """Return the highest grade of each pair as `{query id: {document id: grade}}`."""
    highest: dict[bytes, dict[bytes, int]] = {}
    for by_query in grades.values():
        for query, graded in by_query.items():
            query_grades = highest.setdefault(query, {})
            for document, grade in graded.items():
                query_grades[document] = max(grade, query_grades.get(document, grade))
    return highest


def write_subtopics(grades: SubtopicGrades, target: Path) -> None:
    """Write judgments by subtopic, sorted by the ids' bytes, so that equal judgments produce equal files."""
    lines = (
        (query, document, subtopic, grade)
        for subtopic, by_query in grades.items()
        for query, graded in by_query.items()
        for document, grade in graded.items()
    )
    with target.open("wb") as output:
        output.writelines(
            b"%b %b %b %d\n" % (query, subtopic, document, grade) for query, document, subtopic, grade in sorted(lines)
        )
