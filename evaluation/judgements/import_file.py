"""Import of judgments from TREC qrels, a table such as BEIR's, or the completed CSV of a pool.

A pair without a grade, or with a negative one, is not judged yet: it is only counted. Grades are whole
numbers from -2 (TREC's mark of spam) to 10, or to the highest grade in the dataset. If the dataset has grades, a higher
one is treated as a typing error unless the curator confirms that the scale grew.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from evaluation.archives.compression import FileLimits, open_lines
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, LineProblems
from evaluation.judgements.forms import PROBLEMS, JudgementLine, is_id, judgement_lines, parse_whole_grade

LOWEST_GRADE, HIGHEST_GRADE = -2, 10
#: First characters that spreadsheets interpret as the start of a formula, and the prefix that prevents this.
FORMULA_STARTS, GUARD = ("=", "+", "-", "@", "\t", "\r"), "'"

#: Judgment files are small compared to runs: MS MARCO's half a million need 10 MB, and a hundred times more with
#: texts. They are read during a page request, so the ratio of expanded to stored bytes is checked early.
LIMITS = FileLimits(max_stored_bytes=128 * 2**20, max_expanded_bytes=512 * 2**20, ratio_floor_bytes=2 * 2**20)
#: Maximum number of judgments in a file, twice the maximum of pairs in a pool. Each needs about 200 bytes of memory.
MAX_JUDGEMENTS = 1_000_000
#: Maximum number of lines, which is higher because texts in cells may span several lines.
MAX_LINES = 5_000_000
#: Maximum length of a line: cells of a pool with a query, a title, and a text of 30,000 characters of 4 bytes
#: each.
LONGEST_LINE = 2**20
#: Number of lines that are checked against the collection at a time.
_BATCH_LINES = 5_000
#: Internal grades of pairs without a grade and of pairs without a line, lower than any valid grade.
_NONE_YET, _NEVER = LOWEST_GRADE - 1, LOWEST_GRADE - 2

#: Texts of problems: code → (message, hint).
_PROBLEMS = {
    **PROBLEMS,
    "identifier": ("an id that a collection cannot have: {lines}", PROBLEMS["identifier"][1]),
    "grade": ("a grade that is not a whole number from {lowest} to {highest}: {lines}",
        "Write 0 for not relevant and 1, 2 … for relevant. Leave the grade empty for pairs that are not judged yet."),
    "above_scale": ("a grade above {scale}, the highest among the current judgments: {lines}",
        "Write a grade of the current scale. If the scale grew, tick “The scale grew” or pass --scale-grew."),
    "duplicate": ("the same judgment twice: {lines}", "Keep one line for each query and document."),
    "contradictory": ("another grade for a query and document of an earlier line: {lines}",
        "Decide on one grade for each query and document."),
    "unknown_query": ("a query that is not in the dataset: {lines}",
        "Write query ids as in the dataset's queries file; spreadsheets may have changed them (007 becomes 7)."),
    "unknown_document": ("a document that is not in the dataset: {lines}",
        "Write document ids as in the corpus; spreadsheets may have changed them (1e5 becomes 100000)."),
    "too_many": ("more than {most:,} lines", "Import the judgments in several files."),
    "empty": ("the file has no lines", "Check that the right file was chosen."),
    "nothing_judged": ("no line has a grade yet",
        "Fill in the grades: whole numbers instead of -1, or in the column grade."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewJudgements:
    """Judgments of a file: `{query id: {document id: grade}}`, with all grades ≥ 0.

    `unjudged` is the number of pairs without a grade, and `missing` the number of lines with a document that is not in
    the corpus.
    """

    grades: dict[bytes, dict[bytes, int]]
    lines: int
    unjudged: int
    missing: int = 0

    @property
    def pairs(self) -> int:
        """Number of judged pairs."""
        return sum(map(len, self.grades.values()))


@dataclass
class _JudgementCollector:
    """Grades of the lines so far, for comparison with later lines; `_NONE_YET` for pairs without a grade."""

    findings: LineProblems
    highest: int
    scale: int | None
    lines: int = 0
    grades: dict[bytes, dict[bytes, int]] = field(default_factory=dict)

    def add_lines(self, lines: list[JudgementLine]) -> None:
        """Record the grades of more lines. Raises InvalidContent if there are too many."""
        self.lines += len(lines)
        if self.lines > MAX_JUDGEMENTS:
            raise InvalidContent.from_text(_PROBLEMS, "too_many", most=MAX_JUDGEMENTS)
        for line in lines:
            self._add_grade(line)

    def _add_grade(self, line: JudgementLine) -> None:
        """Record a line's grade, and note a problem if the grade is invalid or its pair has occurred before."""
        parsed_grade = parse_whole_grade(line.grade)
        grade = _NONE_YET if parsed_grade is None else parsed_grade
        if line.grade and not LOWEST_GRADE <= grade <= self.highest:
            self.findings.note("grade", line.number)
            return
        if self.scale is not None and grade > self.scale:
            self.findings.note("above_scale", line.number)
        grades_of_query = self.grades.setdefault(line.query.encode(), {})
        earlier_grade = grades_of_query.setdefault(document := line.document.encode(), _NEVER)
        if earlier_grade == _NEVER:
            grades_of_query[document] = grade
        else:
            self.findings.note("duplicate" if earlier_grade == grade else "contradictory", line.number)

    def get_judgements(self) -> NewJudgements:
        """Return the judged pairs, without pairs that have no grade yet."""
        pairs = sum(map(len, self.grades.values()))
        judged_pairs = {
            query: grades
            for query, all_grades in self.grades.items()
            if (grades := {document: grade for document, grade in all_grades.items() if grade >= 0})
        }
        return NewJudgements(judged_pairs, self.lines, pairs - sum(map(len, judged_pairs.values())))


def read_judgements(
    path: Path | str,
    queries: Collection[str],
    documents: DocumentIds | None,
    *,
    highest: int = HIGHEST_GRADE,
    scale: int | None = None,
    strict: bool = False,
) -> NewJudgements:
    """Return the judgments of a file (plain, gzip, zstd, or bz2) for a dataset with these queries and documents.

    Args:
        path: The file to read.
        queries: Query ids of the dataset.
        documents: Document ids of the corpus, or None to accept any.
        highest: Highest grade in the dataset, if above 10.
        scale: Highest grade to accept, or None if the scale may grow.
        strict: Whether to refuse documents that are not in the corpus. Otherwise they are only counted, unless the file
            has no others.

    Raises:
        InvalidContent: The file has problems; the error lists every class of problem and its first five lines. It is
            raised immediately for more than MAX_JUDGEMENTS judgments, a line over LONGEST_LINE bytes, or other limits.
    """
    findings = LineProblems()
    collector = _JudgementCollector(findings, max(highest, HIGHEST_GRADE), scale)
    lines = judgement_lines(limit_lines(open_lines(path, LIMITS, LONGEST_LINE)), findings, unguard_cell)
    while batch := list(islice(lines, _BATCH_LINES)):
        valid_lines = []
        for line in batch:
            if not (is_id(line.query.encode()) and is_id(line.document.encode())):
                findings.note("identifier", line.number)
                continue
            valid_lines.append(line)
            if line.query not in queries:
                findings.note("unknown_query", line.number)
        if documents is not None and valid_lines:
            is_in_corpus = documents.contain([line.document for line in valid_lines])
            for line, is_known in zip(valid_lines, is_in_corpus.tolist(), strict=True):
                if not is_known:
                    findings.note("unknown_document", line.number)
        collector.add_lines(batch)
    missing_count = findings.counts["unknown_document"]
    if not strict and missing_count < collector.lines:
        del findings.counts["unknown_document"]
    if findings:
        values = {"lowest": LOWEST_GRADE, "highest": collector.highest, "scale": scale}
        raise InvalidContent.build(*findings.report(_PROBLEMS, **values))
    if not collector.lines:
        raise InvalidContent.from_text(_PROBLEMS, "empty")
    judgements = collector.get_judgements()
    if not judgements.grades:
        raise InvalidContent.from_text(_PROBLEMS, "nothing_judged")
    return replace(judgements, missing=missing_count)


def guard_cell(cell: str) -> str:
    """Prefix a cell with `'` if a spreadsheet might interpret it as a formula, or if it begins with `'`."""
    return GUARD + cell if cell.startswith((*FORMULA_STARTS, GUARD)) else cell


def unguard_cell(cell: str) -> str:
    """Undo `guard_cell`. A cell is unchanged if a spreadsheet has removed its prefix."""
    return cell.removeprefix(GUARD)


def limit_lines(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines. Raises InvalidContent if there are too many."""
    for number, line in enumerate(lines, 1):
        if number > MAX_LINES:
            raise InvalidContent.from_text(_PROBLEMS, "too_many", most=MAX_LINES)
        yield line
