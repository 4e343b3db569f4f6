"""Imports of judgments, with all problems of the file: TREC qrels, a table such as BEIR's, or a pool's CSV filled in.

A line without a grade, or with a negative one, is *not judged yet*: it is counted, and changes nothing. Grades are
whole numbers from -2 (TREC's mark of spam) to 10, or to the highest grade that the dataset knows already. Where it
knows some, a higher one is a slip of the finger unless the curator says that the scale grew.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from evaluation.archives.compression import FileLimits, open_lines
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import PROBLEMS, JudgementLine, is_id, judgement_lines, whole_grade

LOWEST_GRADE, HIGHEST_GRADE = -2, 10
#: What a spreadsheet takes for a formula, and the mark that keeps it from that.
FORMULA_STARTS, GUARD = ("=", "+", "-", "@", "\t", "\r"), "'"

#: Judgement files are small beside runs: MS MARCO's half a million take 10 MB, with texts a hundred times that. They
#: are read while somebody waits for a page: little is expanded before the ratio of the two sizes is looked at.
LIMITS = FileLimits(max_stored_bytes=128 * 2**20, max_expanded_bytes=512 * 2**20, ratio_floor_bytes=2 * 2**20)
#: So many judgements are taken at once: twice as many as a pool may have pairs. Each takes about 200 bytes of memory.
MOST_JUDGEMENTS = 1_000_000
#: Texts in cells may go over several lines of the file.
MOST_LINES = 5_000_000
#: The longest line: cells of a pool with a query, a title and a text of 30,000 characters each, of 4 bytes.
LONGEST_LINE = 2**20
#: So many lines are held against the collection at once.
_AT_ONCE = 5_000
#: What stands for "no grade yet" and "no line yet" while lines are told apart: lower than any grade.
_NONE_YET, _NEVER = LOWEST_GRADE - 1, LOWEST_GRADE - 2

#: code → (message, hint).
_PROBLEMS = {
    **PROBLEMS,
    "identifier": ("an id that no collection can have: {lines}", PROBLEMS["identifier"][1]),
    "grade": ("a grade that is not a whole number from {lowest} to {highest}: {lines}",
        "Write 0 for not relevant and 1, 2 … for relevant; leave a grade empty where nobody judged yet."),
    "above_scale": ("a grade above {scale}, the highest among the present judgements: {lines}",
        "Write a grade of the present scale. If the scale grew, say so: tick “The scale grew”, or --scale-grew."),
    "duplicate": ("the same judgement twice: {lines}", "Keep one line for each query and document."),
    "contradictory": ("another grade for a query and document of an earlier line: {lines}",
        "Decide on one grade for each query and document."),
    "unknown_query": ("a query that the dataset does not have: {lines}",
        "Write query ids as in the dataset's queries file; spreadsheets may have changed them (007 becomes 7)."),
    "unknown_document": ("a document that the dataset does not have: {lines}",
        "Write document ids as in the corpus; spreadsheets may have changed them (1e5 becomes 100000)."),
    "too_many": ("more than {most:,} lines", "Bring the judgements in several files, one after the other."),
    "empty": ("the file has no lines", "Check that the right file was chosen."),
    "nothing_judged": ("no line has a grade yet",
        "Fill in the grades: whole numbers in the place of -1, or in the column grade."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewJudgements:
    """The judgements of a file: `{query id: {document id: grade}}`, all grades ≥ 0.

    `unjudged` counts the pairs without a grade, `missing` the lines with a document that the corpus lacks.
    """

    grades: dict[bytes, dict[bytes, int]]
    lines: int
    unjudged: int
    missing: int = 0

    @property
    def pairs(self) -> int:
        """How many pairs are judged."""
        return sum(map(len, self.grades.values()))


@dataclass
class _JudgementCollector:
    """The grades of the lines so far, `_NONE_YET` where a pair has none: what a later line is held against."""

    findings: LineProblems
    highest: int
    scale: int | None
    lines: int = 0
    grades: dict[bytes, dict[bytes, int]] = field(default_factory=dict)

    def take(self, lines: list[JudgementLine]) -> None:
        """Grade some more lines. Raises InvalidContent where there are too many."""
        self.lines += len(lines)
        if self.lines > MOST_JUDGEMENTS:
            raise InvalidContent.of_text(_PROBLEMS, "too_many", most=MOST_JUDGEMENTS)
        for line in lines:
            self._grade(line)

    def _grade(self, line: JudgementLine) -> None:
        whole = whole_grade(line.grade)
        grade = _NONE_YET if whole is None else whole
        if line.grade and not LOWEST_GRADE <= grade <= self.highest:
            self.findings.note("grade", line.number)
            return
        if self.scale is not None and grade > self.scale:
            self.findings.note("above_scale", line.number)
        of_query = self.grades.setdefault(line.query.encode(), {})
        known = of_query.setdefault(document := line.document.encode(), _NEVER)
        if known == _NEVER:
            of_query[document] = grade
        else:
            self.findings.note("duplicate" if known == grade else "contradictory", line.number)

    def found(self) -> NewJudgements:
        """Return what was judged."""
        pairs = sum(map(len, self.grades.values()))
        judged = {
            query: kept
            for query, graded in self.grades.items()
            if (kept := {document: grade for document, grade in graded.items() if grade >= 0})
        }
        return NewJudgements(judged, self.lines, pairs - sum(map(len, judged.values())))


def read_judgements(
    path: Path | str,
    queries: Collection[str],
    documents: DocumentIds | None,
    *,
    highest: int = HIGHEST_GRADE,
    scale: int | None = None,
    strict: bool = False,
) -> NewJudgements:
    """Return the judgements of a file (plain, gzip, zstd or bz2) for a dataset with these queries and documents.

    Documents that the corpus lacks are counted. With `strict`, or where a file has no others, they are refused.
    `documents` of None: any are possible. `highest` is the highest grade that the dataset knows, if above 10;
    `scale` that grade where no higher one is to be taken, None where any may come.
    Raises InvalidContent with every class of problem in the file and its first five lines, or at once for a file of
    more than MOST_JUDGEMENTS judgements, a line over LONGEST_LINE bytes, or other limits.
    """
    findings = LineProblems()
    graded = _JudgementCollector(findings, max(highest, HIGHEST_GRADE), scale)
    lines = judgement_lines(_bounded(open_lines(path, LIMITS, LONGEST_LINE)), findings, unguard_cell)
    while batch := list(islice(lines, _AT_ONCE)):
        possible = []
        for line in batch:
            if not (is_id(line.query.encode()) and is_id(line.document.encode())):
                findings.note("identifier", line.number)
                continue
            possible.append(line)
            if line.query not in queries:
                findings.note("unknown_query", line.number)
        if documents is not None and possible:
            there = documents.contain([line.document for line in possible])
            for line, known in zip(possible, there.tolist(), strict=True):
                if not known:
                    findings.note("unknown_document", line.number)
        graded.take(batch)
    missing = findings.counts["unknown_document"]
    if not strict and missing < graded.lines:
        del findings.counts["unknown_document"]
    if findings:
        values = {"lowest": LOWEST_GRADE, "highest": graded.highest, "scale": scale}
        raise InvalidContent.of(*findings.report(_PROBLEMS, **values))
    if not graded.lines:
        raise InvalidContent.of_text(_PROBLEMS, "empty")
    found = graded.found()
    if not found.grades:
        raise InvalidContent.of_text(_PROBLEMS, "nothing_judged")
    return replace(found, missing=missing)


def guard_cell(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: `'` before what begins with = + - @, a tab, CR, or `'`."""
    return GUARD + cell if cell.startswith((*FORMULA_STARTS, GUARD)) else cell


def unguard_cell(cell: str) -> str:
    """Undo `guard_cell`. A cell whose guard a spreadsheet took away stays as it is."""
    return cell.removeprefix(GUARD)


def _bounded(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines. Raises InvalidContent if there are too many."""
    for number, line in enumerate(lines, 1):
        if number > MOST_LINES:
            raise InvalidContent.of_text(_PROBLEMS, "too_many", most=MOST_LINES)
        yield line
