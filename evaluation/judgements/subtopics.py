"""Relevance judgments by subtopic, for measures of novelty and diversity.

`subtopic-qrels.txt` has the form of the diversity qrels of TREC's Web tracks: `query subtopic document grade`. A
document may be judged for several subtopics of a query. Other measures use the highest of these grades.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import open_lines
from evaluation.collections.beir import BYTE_ORDER_MARK
from evaluation.core.problems import LineProblems
from evaluation.judgements.forms import is_id, parse_whole_grade
from evaluation.judgements.qrels import QRELS_PROBLEMS, Qrels, check_complete

#: Grades as `{query id: {(document id, subtopic): grade}}`, including negative ones.
SubtopicGrades = Mapping[bytes, Mapping[tuple[bytes, bytes], int]]

_PROBLEMS = QRELS_PROBLEMS | {
    "fields": ("not `query subtopic document grade`: {lines}", "Write four fields, and whole numbers as grades."),
    "duplicate": ("a document judged twice for a subtopic: {lines}", "Judge each document once per subtopic."),
}


@dataclass(frozen=True, eq=False)
class Subtopics:
    """Judgments by subtopic, and their positions among the judgments of other measures.

    Attributes:
        qrels: Judgments with a query for each subtopic of each query.
        query: Row of each subtopic's query in the other qrels.
        offsets: The subtopic judgments of judgment i are `judgement_numbers[offsets[i]:offsets[i + 1]]`.
        judgement_numbers: Numbers of judgments in `qrels`.
    """

    qrels: Qrels
    query: NDArray[np.int64]
    offsets: NDArray[np.int64]
    judgement_numbers: NDArray[np.int64]

    @classmethod
    def align(cls, grades: SubtopicGrades, qrels: Qrels) -> Self:
        """Align grades by subtopic with `qrels`, and omit pairs that are not in it."""
        numbers = {(query, document): number for number, (query, document, _) in enumerate(qrels.judgements())}
        by_subtopic: dict[str, dict[str, int]] = {}
        for query, graded in grades.items():
            for (document, subtopic), grade in graded.items():
                if (query.decode(), document.decode()) in numbers:
                    by_subtopic.setdefault(f"{query.decode()} {subtopic.decode()}", {})[document.decode()] = grade
        subtopic_qrels = Qrels.from_dict(by_subtopic)
        judgement = [numbers[name.split(" ")[0], document] for name, document, _ in subtopic_qrels.judgements()]
        rows = [qrels.find_row(name.split(" ")[0]) for name in subtopic_qrels.query_ids]
        judgement_numbers = np.argsort(np.array(judgement, np.int64), kind="stable")
        offsets = np.searchsorted(np.sort(judgement), np.arange(qrels.number_of_judgements + 1))
        return cls(subtopic_qrels, np.array(rows, np.int64), offsets, judgement_numbers)


def read_subtopics(path: Path) -> SubtopicGrades:
    """Read judgments by subtopic. The file may be compressed and begin with a byte order mark.

    Raises InvalidContent with every class of problem in the file and its first lines.
    """
    grades: dict[bytes, dict[tuple[bytes, bytes], int]] = {}
    problems = LineProblems()
    for number, line in enumerate(open_lines(path), start=1):
        fields = line.removeprefix(BYTE_ORDER_MARK if number == 1 else b"").split()
        grade = parse_whole_grade(fields[-1].decode(errors="replace")) if fields else 0
        is_utf8 = line.decode(errors="ignore").encode() == line
        if len(fields) not in (0, 4) or grade is None or not (is_utf8 and all(map(is_id, fields))):
            problems.note("fields", number)
        elif fields:
            graded, pair = grades.setdefault(fields[0], {}), (fields[2], fields[1])
            if pair in graded:
                problems.note("duplicate", number)
            graded[pair] = grade
    check_complete(highest_grades(grades), problems, _PROBLEMS)
    return grades


def highest_grades(grades: SubtopicGrades) -> dict[bytes, dict[bytes, int]]:
    """Return the highest grade of each pair as `{query id: {document id: grade}}`."""
    return {
        query: {document: grade for (document, _), grade in sorted(graded.items(), key=itemgetter(1))}
        for query, graded in grades.items()
    }


def write_subtopics(grades: SubtopicGrades, target: Path) -> None:
    """Write judgments by subtopic, sorted by the ids' bytes, so that equal judgments produce equal files."""
    lines = ((query, *pair, grade) for query, graded in grades.items() for pair, grade in graded.items())
    text = (b"%b %b %b %d\n" % (query, subtopic, document, grade) for query, document, subtopic, grade in sorted(lines))
    target.write_bytes(b"".join(text))
