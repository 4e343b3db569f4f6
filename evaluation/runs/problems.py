"""Problems of a run and the texts that report them, errors first.

The kernel records only line numbers. Messages quote the first line of a problem, so a file with problems is read again,
up to the last quoted line.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import LINE_LENGTH, FileLimits
from evaluation.core.problems import InvalidRun, Problem, ProblemCode, format_count
from evaluation.judgements.responses import Response
from evaluation.kernel.layout import BLANK, MAX_TAGS, NOTED
from evaluation.runs.header import is_header, quotation, recognize_other_kind, select_metadata

_TREC_LINE = "`query Q0 document rank score tag`"
_FileProblem = partial(ProblemCode, about="file")
#: Errors of lines, which the kernel counts.
ENCODING = _FileProblem(
    "encoding", "A line that is not UTF-8 or has a NUL byte, or a file whose lines end with CR alone.",
    "Save as UTF-8; end lines with LF or CR LF.", "q1 Q0 d\\xff 1 12.75 mine",
    message="{lines} not UTF-8, or with a NUL byte", hint="Save the file as UTF-8 (not UTF-16).", quote="",
)  # fmt: skip
FIELDS = _FileProblem(
    "fields", "A line without exactly six fields.",
    "“query Q0 document rank score tag”, separated by spaces or tabs; ids have no white space.", "q1 Q0 d17 1 12.75",
    message="{lines} without exactly six fields",
    hint=f"Write {_TREC_LINE}, separated by spaces or tabs; ids have no white space.", quote="has {fields}",
)  # fmt: skip
IDENTIFIER = _FileProblem(
    "identifier", "An id is too long, empty, or has white space.", "Use the ids of the dataset's files.",
    message="{lines} with a query or document id longer than {max_id} bytes",
    quote="has ids of {query_bytes:,} and {document_bytes:,} bytes",
)  # fmt: skip
SCORE = _FileProblem(
    "score", "A score that is not a finite number in single precision.",
    "ASCII digits such as 12.75, -3 or 1.5e-7, below 3.4e38; no nan, inf or thousands separators.",
    "q1 Q0 d17 1 nan mine", message="{lines} whose score is not a finite number in single precision",
    hint="Write scores like 12.75, -3 or 1.5e-7: ASCII digits, no thousands separators, no nan or inf, below 3.4e38.",
    quote="has the score {score}",
)  # fmt: skip
DUPLICATE = _FileProblem(
    "duplicate", "A document that its query already has.",
    "Each document once per query; keep the line with the best score.", "q1 Q0 d17 1 9.1 mine … q1 Q0 d17 2 8.4 mine",
    message="{lines} with a document that its query already has",
    hint="List each document once per query; keep the line with the best score.",
    quote="repeats {document} for the query {query}",
)  # fmt: skip
#: Errors of the file as a whole.
QUERY_SIZE = _FileProblem(
    "query_size", "The lines of one query do not fit in memory.",
    "Only the best 1,000 documents of a query are scored: omit the rest.",
    message="the lines of one query take more than {limit}", hint="Keep at most {depth:,} documents per query.",
)  # fmt: skip
UNGROUPED = _FileProblem(
    "ungrouped", "The lines of a query are scattered, and the file is too large for Runboard to sort.",
    "sort -s -k1,1 run.txt", message="the lines of a query are not together, and the file is over {limit}",
    hint="Sort the file by query, for example with `sort -s -k1,1`.",
)  # fmt: skip
EMPTY = _FileProblem(
    "empty", "The file has no lines.",
    f"Send a line for each document retrieved, {_TREC_LINE}; check that it is the right file.",
    message="the file has no lines",
)  # fmt: skip
NOT_TEXT = _FileProblem(
    "not_text", "A file that is not text, such as an image.",
    "Send a TREC run as text (plain, .gz, .zst, or .bz2), a file in another listed format, or a zip of such files.",
    message="the file is not text",
)  # fmt: skip
#: Differences between a run's ids and the dataset's.
NO_KNOWN_QUERY = _FileProblem(
    "no_known_query", "None of the run's queries is in the dataset.",
    "Choose the dataset that the run is for; write query ids as in its queries file.", "Q001 instead of 1",
    message="none of the {queries} is in the dataset{quoted}",
    hint="Check that the run is for this dataset, and that query ids are written as in its queries file.",
)  # fmt: skip
UNKNOWN_QUERIES = _FileProblem(
    "unknown_queries", "Queries that are not among the dataset's queries. They are ignored.",
    "No action is needed if the run covers a larger query set.",
    message="{queries} ({lines}) not among the dataset's queries, ignored{quoted}",
    hint="No action is needed if the run covers a larger query set.", quote="has the query {query}",
    severity="warning",
)  # fmt: skip
JUDGED_QUERIES_MISSING = _FileProblem(
    "judged_queries_missing", "Judged queries that are missing from the run. They score 0.",
    "Retrieve documents for every query. (Reported only if the qrels are open.)",
    message="{queries} judged queries are missing; they score 0{ids}",
    hint="Retrieve documents for every query, unless you left these out on purpose.", severity="warning",
)  # fmt: skip
QUERIES_MISSING = _FileProblem(
    "queries_missing", "Queries of the dataset that are missing from the run. Judged ones score 0.",
    "Retrieve documents for every query.",
    message="{queries} queries of the dataset are missing; judged ones score 0{ids}",
    hint="Retrieve documents for every query of the dataset.", severity="warning",
)  # fmt: skip
UNKNOWN_DOCUMENTS = _FileProblem(
    "unknown_documents", "Documents that are not in the dataset. Up to 5% of the lines may have one; they count as not "
    "relevant. Above 5%, the file is refused.", "Make the run from this version of the corpus.",
    "q1 Q0 no-such-id 1 9.1 mine",
    message="{lines} ({share}) with documents that are not in the dataset{effect}{quoted}",
    quote="has the document {document}", severity="error or warning",
)  # fmt: skip
#: Depth and order of rankings.
DEPTH = _FileProblem(
    "depth", "More than 1,000 documents for a query. Only the best 1,000 are scored.", "No action is needed.",
    message="{queries} with more than {depth:,} documents; {lines} cut",
    hint="The best {depth:,} by score are scored, wherever they are in the file.", severity="warning",
)  # fmt: skip
SHALLOW = _FileProblem(
    "shallow", "The run has fewer documents per query than a measure reads.",
    "Send up to 1,000 documents per query, or compare by measures with smaller cutoffs.",
    "R@1000 of a run with 100 documents per query",
    message="at most {longest} for a query: {changes} than with more documents",
    hint="Send up to {depth:,} documents per query, or compare by measures with smaller cutoffs.",
    severity="warning",
)  # fmt: skip
RANK_ORDER = _FileProblem(
    "rank_order", "Ranks that disagree with the scores. Ranks are ignored.",
    "Check that a higher score means a better document.", "q1 Q0 d17 2 9.1 mine · q1 Q0 d18 1 8.4 mine",
    message="{lines} whose rank disagrees with the scores, or is not a whole number",
    hint="Ranks are ignored: documents are ordered by score, as trec_eval does. Check that a higher score means a "
    "better document.", severity="warning",
)  # fmt: skip
TIES = _FileProblem(
    "ties", "Many equal scores within a query, in single precision.",
    "Write scores with more digits. If they already differ by less than single precision represents, spread them out.",
    message="{lines} with the same score (in single precision) as an earlier line of the query",
    hint="Ties are ordered by document id, descending, as trec_eval does. {advice}", severity="warning",
)  # fmt: skip
SEVERAL_TAGS = _FileProblem(
    "several_tags", "More than one tag in the last column.", "Check that files were not mixed.",
    message="the run has {tags} different tags",
    hint="A run has one tag in its last column; check that files were not mixed.", severity="warning",
)  # fmt: skip

#: Differences between a run's format and the dataset's measures.
NOT_AN_ANSWER_RUN = _FileProblem(
    "not_an_answer_run", "A ranking for a dataset that ranks by a measure of answers. It appears without a rank.",
    "Send an answer run: JSON Lines with `query_id`, `answer`, and `citations`.",
    message="the board ranks by {measure}, which needs answers; this ranking will appear without a rank",
    severity="warning",
)  # fmt: skip
#: Remarks on final texts in the form of BrowseComp-Plus.
UNRETRIEVED_CITATIONS = _FileProblem(
    "unretrieved_citations", "Numbers in brackets that are not in `retrieved_docids`. They do not count as citations.",
    "Check that answers cite only retrieved documents, and that `retrieved_docids` lists all of these.",
    message="{lines} with numbers in brackets that are not in `retrieved_docids`; they do not count as citations",
    severity="warning",
)  # fmt: skip
CONFIDENCE_RANGE = _FileProblem(
    "confidence_range", "A confidence outside 0–100%. It counts as 0% or 100%.", "State a confidence from 0% to 100%.",
    "Confidence: 101%", message="{lines} with a confidence outside 0–100%, counted as 0% or 100%", severity="warning",
)  # fmt: skip

_LINE_ERRORS = (LINE_LENGTH, ENCODING, FIELDS, IDENTIFIER, SCORE, DUPLICATE)
#: Lines with one of these problems do not count as lines of a known query.
UNREAD_CODES = (BLANK, LINE_LENGTH, ENCODING, FIELDS, IDENTIFIER, SCORE, UNKNOWN_QUERIES)
_WARNINGS = (UNKNOWN_DOCUMENTS, UNKNOWN_QUERIES, DEPTH, RANK_ORDER, TIES, SEVERAL_TAGS)


def check_registered(counted_codes: Iterable[str], reported_codes: Iterable[ProblemCode]) -> None:
    """Raise LookupError unless every problem counted by the kernel is reported here, and vice versa.

    Reported codes must also have a message.
    """
    reported_codes = list(reported_codes)
    if unmatched := set(counted_codes) ^ {BLANK, *reported_codes}:
        raise LookupError(
            f"counted in NOTED or reported in runs/problems.py, but not both: {', '.join(sorted(unmatched))}"
        )
    if incomplete := [code for code in reported_codes if not code.message]:
        raise LookupError(f"register a message for reports of {', '.join(incomplete)}")


check_registered(NOTED, (*_LINE_ERRORS, *_WARNINGS))

#: Maximum share of unknown documents among the lines of known queries. A run with more was created with another version
#: of the corpus or with other ids. Up to this share, unknown documents count as not relevant.
UNKNOWN_DOCUMENTS_SHARE = 0.05

#: Share of lines tied with an earlier line of their query above which a warning explains how ties are broken.
TIES_SHARE = 0.1
#: Measures that divide by the number of retrieved documents. More documents can increase or decrease them.
_SHARES = ("Hole", "Judged")


@dataclass(frozen=True, slots=True)
class LineCount:
    """Number of lines with a problem, and the numbers of the first (at most five)."""

    count: int = 0
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunContents:
    """Result of reading a run.

    `query`, `rank`, and `grade` describe the judged documents retrieved, grouped by query and ordered by rank. `seen`
    and `retrieved` (at most the maximum depth) are indexed by query number.
    """

    line_counts: dict[str, LineCount]
    lines: int
    cut_lines: int
    known_lines: int
    queries: int
    seen: NDArray[np.bool_]
    retrieved: NDArray[np.int32]
    query: NDArray[np.int32]
    rank: NDArray[np.int32]
    grade: NDArray[np.int32]
    tags: tuple[str, ...]
    #: Input of `evaluation.runs.top_documents`.
    first_documents: bytes = b""
    expanded_bytes: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    #: Number of the first line after the header.
    first_line: int = 1
    #: Lines that messages quote, by line number.
    texts: dict[int, bytes] = field(default_factory=dict)
    #: Whether the file has different values for scores that are tied in single precision.
    ties_differ: bool = False
    #: Responses of an answer run, by query.
    responses: Mapping[str, Response] | None = None
    #: Contents of the citations of an answer run, read like a ranking; None if the citations are the ranking.
    citations: "RunContents | None" = None

    def __post_init__(self) -> None:
        # Readers of all formats create this class, so none of them can skip the limits on metadata.
        if self.metadata:
            object.__setattr__(self, "metadata", select_metadata(self.metadata))

    @property
    def ranks_citations(self) -> bool:
        """Whether the rankings are the citations of an answer run."""
        return self.responses is not None and self.citations is None

    @property
    def known_queries(self) -> int:
        """Number of the dataset's queries that are in the run."""
        return int(np.count_nonzero(self.seen))

    @property
    def depth(self) -> int:
        """Length of the longest ranking of a known query."""
        return int(self.retrieved.max(initial=0))

    @property
    def has_many_ties(self) -> bool:
        """Whether enough scores are tied to warn about their order."""
        return self.line_counts.get(TIES, LineCount()).count > TIES_SHARE * max(1, self.known_lines)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Contents of a run, compared with the expected queries.

    Attributes:
        missing_ids: The first missing queries, if their ids may be shown.
        expects_judged_only: Whether only judged queries are expected.
        example_document: Id of a document of the corpus, if it may be shown.
        capped_measures: Names of the measures that read more documents than the run has.
    """

    contents: RunContents
    missing_queries: int
    missing_ids: tuple[str, ...]
    expected_queries: int
    expects_judged_only: bool
    maximum_depth: int
    capped_measures: tuple[str, ...] = ()
    example_document: str = ""

    @property
    def unknown_queries(self) -> int:
        """Number of queries that are not in the dataset."""
        return self.contents.queries - self.contents.known_queries

    def line_count(self, code: str) -> LineCount:
        """Return the count and first lines of a problem. They are empty if it did not occur."""
        return self.contents.line_counts.get(code, LineCount())

    def problems(self, limits: FileLimits, hidden: bool) -> tuple[Problem, ...]:
        """Return every problem, errors first, in the order of their first lines.

        For a hidden target, no problem depends on which queries or documents are judged.
        """
        if not self.contents.lines:
            return (EMPTY.problem(),)
        problems = [
            *self._line_errors(limits),
            *self._query_problems(hidden),
            *self._document_problems(),
            *self._order_problems(),
        ]
        return tuple(sorted(problems, key=lambda problem: (problem.severity, not problem.lines, problem.lines)))

    def _problem(self, code: ProblemCode, count: int | None = None, **values: object) -> Problem:
        """Return the problem with its registered texts, formatted with `values` and the counts of its lines.

        `quoted` in the texts is a quotation of the first line. `count` defaults to the number of lines.
        """
        line_count = self.line_count(code)
        values = {"lines": format_count(line_count.count, "line"), "quoted": self._quotation(code), **values}
        message, hint = code.message.format(**values), code.hint.format(**values)
        return code.problem(message, hint, line_count.count if count is None else count, line_count.lines)

    def _quotation(self, code: ProblemCode) -> str:
        return quotation(code, self.line_count(code).lines, self.contents.texts)

    def _line_errors(self, limits: FileLimits) -> Iterator[Problem]:
        """Yield the line errors, each quoting its first line.

        If the file does not look like a run, or its first line is a header, the message says so.
        """
        texts, first = self.contents.texts, self.contents.first_line
        for code in _LINE_ERRORS:
            count, lines = self.line_count(code).count, self.line_count(code).lines
            if not count:
                continue
            problem = self._problem(code, max_line=f"{limits.max_line_bytes:,}", max_id=limits.max_id_bytes)
            message, hint = problem.message + self._quotation(code), problem.hint
            quoted_lines = [texts[line] for line in lines if line in texts]
            if code == FIELDS and count >= self.contents.lines and (other_kind := recognize_other_kind(quoted_lines)):
                message += f"; the file looks like {other_kind[0]}, not like a run"
                hint = f"{other_kind[1]} {hint}"
            elif lines[:1] == (first,) and is_header(texts.get(first, b"")):
                message += f"; line {first:,} looks like a header"
                hint = "Remove the line of column names." + (f" {hint}" if count > 1 else "")
            yield replace(problem, message=message, hint=hint)

    def _query_problems(self, hidden: bool) -> Iterator[Problem]:
        """Yield the problem of unknown queries and that of missing queries, or only an error if no query is known."""
        unknown_lines = self.line_count(UNKNOWN_QUERIES)
        if self.expected_queries and not self.contents.known_queries:
            if unknown_lines.count:  # Otherwise, no line could be read, and the errors of lines explain this.
                has_unread_lines = any(self.line_count(code).count for code in _LINE_ERRORS)
                queries = "queries in the readable lines" if has_unread_lines else "run's queries"
                quoted, count = self._quotation(UNKNOWN_QUERIES), max(1, self.unknown_queries)
                problem = self._problem(NO_KNOWN_QUERY, count, queries=queries, quoted=quoted)
                yield replace(problem, lines=unknown_lines.lines)
            return
        if unknown_lines.count:
            queries = format_count(self.unknown_queries, "query", "queries")
            yield self._problem(UNKNOWN_QUERIES, self.unknown_queries, queries=queries)
        if self.missing_queries:
            queries = f"{self.missing_queries:,} of the {self.expected_queries:,}"
            ellipsis = " …" if self.missing_queries > len(self.missing_ids) else ""
            ids = f" ({', '.join(self.missing_ids)}{ellipsis})" if self.missing_ids else ""
            code = JUDGED_QUERIES_MISSING if self.expects_judged_only and not hidden else QUERIES_MISSING
            yield self._problem(code, self.missing_queries, queries=queries, ids=ids)

    def _document_problems(self) -> Iterator[Problem]:
        """Yield the problem of documents that are not in the corpus, if there are any.

        It is an error above the accepted share of the lines, otherwise a warning.
        """
        if not (count := self.line_count(UNKNOWN_DOCUMENTS).count):
            return
        share = count / max(1, self.contents.known_lines)
        hint, effect = "Check that the run was made from this version of the corpus", "; they count as not relevant"
        if too_many := share > UNKNOWN_DOCUMENTS_SHARE:
            limit = f"Up to {UNKNOWN_DOCUMENTS_SHARE:.0%} are accepted."
            hint, effect = f"{limit} {hint}, and that document ids are written as in its corpus file", ""
        problem = self._problem(UNKNOWN_DOCUMENTS, share=f"{share:.{1 if too_many else 2}%}", effect=effect)
        example = f", such as `{self.example_document}`" if too_many and self.example_document else ""
        yield replace(problem, hint=f"{hint}{example}.", severity="error" if too_many else "warning")

    def _order_problems(self) -> Iterator[Problem]:
        """Yield warnings about depth, ranks, ties, tags, and final texts."""
        contents, depth = self.contents, self.maximum_depth
        codes = (UNRETRIEVED_CITATIONS, CONFIDENCE_RANGE, RANK_ORDER)
        yield from (self._problem(code) for code in codes if self.line_count(code).count)
        if count := self.line_count(DEPTH).count:
            cut_lines = format_count(contents.cut_lines, "line")
            yield self._problem(DEPTH, queries=format_count(count, "query", "queries"), depth=depth, lines=cut_lines)
        if self.capped_measures:
            shares = [name for name in self.capped_measures if name.startswith(_SHARES)]
            decreasing = [name for name in self.capped_measures if name not in shares]
            changes = " and ".join(
                f"{', '.join(names)} may be {change}"
                for names, change in ((decreasing, "lower"), (shares, "higher or lower"))
                if names
            )
            longest = format_count(contents.depth, "document")
            yield self._problem(SHALLOW, len(self.capped_measures), longest=longest, changes=changes, depth=depth)
        if contents.has_many_ties:
            advice = (
                "Your scores differ by less than single precision represents, so more digits do not help. Spread "
                "them out, or derive them from ranks, as 1/rank."
                if contents.ties_differ
                else "If your scores differ beyond the digits in the file, write more digits."
            )
            yield self._problem(TIES, advice=advice)
        if (tags := self.line_count(SEVERAL_TAGS)).count > 1:
            or_more = " or more" if len(contents.tags) == MAX_TAGS else ""
            yield replace(self._problem(SEVERAL_TAGS, tags=f"{tags.count}{or_more}"), lines=tags.lines[1:])


_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def refusal(code: ProblemCode, **values: object) -> InvalidRun:
    """Return an error that stops reading, with the registered texts of a problem."""
    return InvalidRun.build(code.problem(code.message.format(**values), code.hint.format(**values)))


def refuse_binary(beginning: bytes) -> None:
    """Raise InvalidRun if a file is not text. UTF-16 and a few letters in Latin-1 count as text."""
    text = beginning[:4096].decode("utf-8", "replace")
    if text.count("\ufffd") + text.count("\0") <= 0.3 * len(text) or beginning.startswith(_UTF_16):
        return
    raise refusal(NOT_TEXT)
