"""What the reader counted in a run, said in sentences: every class of problem, errors first.

The kernel notes only the numbers of lines. A message quotes the first line of its problem, so the file is read a second
time, up to the last line wanted, and only where there is a problem.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import LINE_LENGTH, FileLimits
from evaluation.core.problems import InvalidRun, Problem, ProblemCode, number_of
from evaluation.kernel.layout import BLANK, MAX_TAGS, NOTED
from evaluation.runs.header import is_header, quotation, recognize_other, select_metadata

_TREC_LINE = "`query Q0 document rank score tag`"
_FileProblem = partial(ProblemCode, about="file")
#: Errors of lines, which the kernel counts.
ENCODING = _FileProblem(
    "encoding", "A line that is not UTF-8, has a NUL byte, or a file whose lines end in CR alone.",
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
    "duplicate", "A document that its query has already.",
    "Each document once per query; keep the line with the best score.", "q1 Q0 d17 1 9.1 mine … q1 Q0 d17 2 8.4 mine",
    message="{lines} with a document that its query has already",
    hint="Name each document once per query; keep the line with the best score.",
    quote="names {document} again for the query {query}",
)  # fmt: skip
#: Errors of the file as a whole.
QUERY_SIZE = _FileProblem(
    "query_size", "One query has more lines than can be held together.",
    "At most 1,000 documents a query are scored: leave out the rest.",
    message="one query has more than {most} of lines", hint="Keep at most {depth:,} documents per query.",
)  # fmt: skip
UNGROUPED = _FileProblem(
    "ungrouped", "The lines of a query are not together, and the file is too large to sort here.",
    "sort -s -k1,1 run.txt", message="the lines of a query are not together, and the file is over {most}",
    hint="Sort the file by query, for example with `sort -s -k1,1`.",
)  # fmt: skip
EMPTY = _FileProblem(
    "empty", "The file has no lines.",
    f"Send a line for each document retrieved, {_TREC_LINE}; check that it is the right file.",
    message="the file has no lines",
)  # fmt: skip
NOT_TEXT = _FileProblem(
    "not_text", "A file that is not text, such as a picture.",
    "Send a TREC run as text, plain or as .gz, .zst, or .bz2, a file in another listed format, or a zip of these.",
    message="the file is not text",
)  # fmt: skip
#: What a run lacks of its dataset, or has beside it.
NO_KNOWN_QUERY = _FileProblem(
    "no_known_query", "None of the run's queries is in the dataset.",
    "Choose the dataset that the run is for; write query ids as in its queries file.", "Q001 instead of 1",
    message="none of the {of} is in the dataset{quoted}",
    hint="Check that the run is for this dataset, and that query ids are written as in its queries file.",
)  # fmt: skip
UNKNOWN_QUERIES = _FileProblem(
    "unknown_queries", "Queries that are not among the dataset's queries to answer: ignored.",
    "Nothing to do, if the run was made for a larger set.",
    message="{queries} ({lines}) not among the dataset's queries to answer, ignored{quoted}",
    hint="Nothing to do, if the run was made for a larger set of queries.", quote="names the query {query}",
    severity="warning",
)  # fmt: skip
JUDGED_QUERIES_MISSING = _FileProblem(
    "judged_queries_missing", "Judged queries that the run does not have: they score 0.",
    "Retrieve documents for every query. (Said for open judgements only.)",
    message="{of} judged queries are missing; they score 0{named}",
    hint="Retrieve documents for every query, if that was not meant.", severity="warning",
)  # fmt: skip
QUERIES_MISSING = _FileProblem(
    "queries_missing", "Queries of the dataset that the run does not have; those that are judged score 0.",
    "Retrieve documents for every query.",
    message="{of} queries of the dataset are missing; those of them that are judged score 0{named}",
    hint="Retrieve documents for every query of the dataset.", severity="warning",
)  # fmt: skip
UNKNOWN_DOCUMENTS = _FileProblem(
    "unknown_documents", "Documents that the dataset does not have. A few are let pass and count as not relevant; "
    "above 5% of the lines the file is refused.", "Make the run from this version of the corpus.",
    "q1 Q0 no-such-id 1 9.1 mine",
    message="{lines} ({share}) with documents that are not in the dataset{effect}{quoted}",
    quote="names {document}", severity="error or warning",
)  # fmt: skip
#: The order of documents.
DEPTH = _FileProblem(
    "depth", "More than 1,000 documents for a query: the best 1,000 by score are kept.", "Nothing to do.",
    message="{queries} with more than {depth:,} documents; {cut} cut",
    hint="The best {depth:,} by score are kept, whatever their place in the file.", severity="warning",
)  # fmt: skip
SHALLOW = _FileProblem(
    "shallow", "The run has fewer documents for each query than a measure reads.",
    "Send up to 1,000 documents for each query, or compare by measures with smaller cutoffs.",
    "R@1000 of a run with 100 documents for each query",
    message="at most {longest} for a query: {changes} than with more documents",
    hint="Send up to {depth:,} documents a query, or compare by measures with smaller cutoffs.",
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
    "Write more digits. If the scores have enough digits, spread them further apart, so that your own order counts.",
    message="{lines} with the same score (in single precision) as an earlier line of the query",
    hint="Ties are ordered by document id, descending, as trec_eval does. {advice}", severity="warning",
)  # fmt: skip
SEVERAL_TAGS = _FileProblem(
    "several_tags", "More than one tag in the last column.", "Check that files were not mixed.",
    message="the run has {tags} different tags",
    hint="A run has one tag in its last column; check that files were not mixed.", severity="warning",
)  # fmt: skip

_LINE_ERRORS = (LINE_LENGTH, ENCODING, FIELDS, IDENTIFIER, SCORE, DUPLICATE)
#: A line of which one of these is noted is none of a known query.
UNREAD = (BLANK, LINE_LENGTH, ENCODING, FIELDS, IDENTIFIER, SCORE, UNKNOWN_QUERIES)
_WARNINGS = (UNKNOWN_DOCUMENTS, UNKNOWN_QUERIES, DEPTH, RANK_ORDER, TIES, SEVERAL_TAGS)


def check_registered(noted: Iterable[str], reported: Iterable[ProblemCode]) -> None:
    """Raise LookupError for problems that the kernel counts and no report names, or the other way round."""
    reported = list(reported)
    if unknown := set(noted) ^ {BLANK, *reported}:
        raise LookupError(
            f"counted in NOTED or reported in runs/problems.py, not both: {', '.join(sorted(unknown))}"
        )
    if incomplete := [code for code in reported if not code.message]:
        raise LookupError(f"register a message for reports of {', '.join(incomplete)}")


check_registered(NOTED, (*_LINE_ERRORS, *_WARNINGS))

#: Above this share of the lines of known queries, unknown documents are an error: such a run was made with another
#: version of the corpus, or with other ids. Below it, a few stray documents are counted as not relevant.
UNKNOWN_DOCUMENTS_SHARE = 0.05

#: Above this share of lines with the score of an earlier line of their query, the sender is told what decides ties.
TIES_SHARE = 0.1
#: Measures that divide by the number of documents retrieved, so that more documents can raise or lower them.
_SHARES = ("Hole", "Judged")


@dataclass(frozen=True, slots=True)
class LineCount:
    """How often something was seen in a run, and the first (at most five) lines."""

    count: int = 0
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunContents:
    """What a pass found. `query`, `rank`, `grade`: the judged documents retrieved, grouped by query, by rank;
    `seen` and `retrieved` (at most the maximum depth) are by query number."""

    counted: dict[str, LineCount]
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
    #: As `evaluation.runs.top_documents` reads them.
    first_documents: bytes = b""
    expanded_bytes: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    #: The number of the first line behind the header.
    first_line: int = 1
    #: By number the lines that messages quote.
    texts: dict[int, bytes] = field(default_factory=dict)
    #: Whether the file has different values for scores that are tied in single precision.
    ties_differ: bool = False

    def __post_init__(self) -> None:
        # here, where every form of run ends, so that no reader can forget it
        if self.metadata:
            object.__setattr__(self, "metadata", select_metadata(self.metadata))

    @property
    def known_queries(self) -> int:
        """Number of the dataset's queries that the run has."""
        return int(np.count_nonzero(self.seen))

    @property
    def depth(self) -> int:
        """Number of documents in the longest ranking of these queries."""
        return int(self.retrieved.max(initial=0))

    @property
    def has_many_ties(self) -> bool:
        """Whether enough scores are tied for a warning about their order."""
        return self.counted.get(TIES, LineCount()).count > TIES_SHARE * max(1, self.known_lines)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The contents of a run, and what they lack of the queries that were expected.

    `missing_ids` are the first ones that may be named, `capped` the measures that read more documents than there are.
    """

    contents: RunContents
    missing_queries: int
    missing_ids: tuple[str, ...]
    expected_queries: int
    judged_missing: bool
    maximum_depth: int
    capped: tuple[str, ...] = ()

    @property
    def unknown_queries(self) -> int:
        """Number of queries that are not the dataset's."""
        return self.contents.queries - self.contents.known_queries

    def noted(self, code: str) -> LineCount:
        """Return the count and first lines of a problem, empty if the pass found none."""
        return self.contents.counted.get(code, LineCount())

    def problems(self, limits: FileLimits, hidden: bool) -> tuple[Problem, ...]:
        """Return every class of problem. For hidden targets nothing here depends on what is judged."""
        if not self.contents.lines:
            return (EMPTY.problem(),)
        problems = [
            *self._line_errors(limits),
            *self._query_problems(hidden),
            *self._document_problems(),
            *self._order_problems(),
        ]
        return tuple(sorted(problems, key=lambda problem: problem.severity))

    def _problem(self, code: ProblemCode, count: int | None = None, **values: object) -> Problem:
        """Return the problem with its registered texts, filled in with `values` and, as `quoted`, its first line."""
        noted = self.noted(code)
        values = {"lines": number_of(noted.count, "line"), "quoted": self._quotation(code), **values}
        message, hint = code.message.format(**values), code.hint.format(**values)
        return code.problem(message, hint, noted.count if count is None else count, noted.lines)

    def _quotation(self, code: ProblemCode) -> str:
        return quotation(code, self.noted(code).lines, self.contents.texts)

    def _line_errors(self, limits: FileLimits) -> Iterator[Problem]:
        """Yield errors with their first line, and what that line or the file seems to be instead of a run's."""
        texts, first = self.contents.texts, self.contents.first_line
        for code in _LINE_ERRORS:
            count, lines = self.noted(code).count, self.noted(code).lines
            if not count:
                continue
            problem = self._problem(code, max_line=f"{limits.max_line_bytes:,}", max_id=limits.max_id_bytes)
            message, hint = problem.message + self._quotation(code), problem.hint
            quoted = [texts[line] for line in lines if line in texts]
            if code == FIELDS and count >= self.contents.lines and (other := recognize_other(quoted)):
                message += f"; the file looks like {other[0]}, not like a run"
                hint = f"{other[1]} {hint}"
            elif lines[:1] == (first,) and is_header(texts.get(first, b"")):
                message += f"; line {first:,} looks like a header"
                hint = "Leave out the line of column names." + (f" {hint}" if count > 1 else "")
            yield replace(problem, message=message, hint=hint)

    def _query_problems(self, hidden: bool) -> Iterator[Problem]:
        unknown = self.noted(UNKNOWN_QUERIES)
        if self.expected_queries and not self.contents.known_queries:
            if unknown.count:  # otherwise no line could be read, and the errors of the lines say why
                unread = any(self.noted(code).count for code in _LINE_ERRORS)
                of = "queries in the lines that can be read" if unread else "run's queries"
                quoted, count = self._quotation(UNKNOWN_QUERIES), max(1, self.unknown_queries)
                problem = self._problem(NO_KNOWN_QUERY, count, of=of, quoted=quoted)
                yield replace(problem, lines=unknown.lines)
            return
        if unknown.count:
            queries = number_of(self.unknown_queries, "query", "queries")
            yield self._problem(UNKNOWN_QUERIES, self.unknown_queries, queries=queries)
        if self.missing_queries:
            of = f"{self.missing_queries:,} of the {self.expected_queries:,}"
            more = " …" if self.missing_queries > len(self.missing_ids) else ""
            named = f" ({', '.join(self.missing_ids)}{more})" if self.missing_ids else ""
            code = JUDGED_QUERIES_MISSING if self.judged_missing and not hidden else QUERIES_MISSING
            yield self._problem(code, self.missing_queries, of=of, named=named)

    def _document_problems(self) -> Iterator[Problem]:
        unknown = self.noted(UNKNOWN_DOCUMENTS)
        if not unknown.count:
            return
        share = unknown.count / max(1, self.contents.known_lines)
        hint, effect = (
            "Check that the run was made from this version of the corpus",
            "; they count as not relevant",
        )
        if refused := share > UNKNOWN_DOCUMENTS_SHARE:
            allowed = f"Up to {UNKNOWN_DOCUMENTS_SHARE:.0%} are let pass."
            hint, effect = f"{allowed} {hint}, and that document ids are written as in its corpus file", ""
        text = f"{share:.1%}" if refused else f"{share:.2%}"
        problem = self._problem(UNKNOWN_DOCUMENTS, share=text, effect=effect)
        yield replace(problem, hint=f"{hint}.", severity="error" if refused else "warning")

    def _order_problems(self) -> Iterator[Problem]:
        """Yield warnings about depth, ranks, ties, and tags."""
        contents, depth = self.contents, self.maximum_depth
        if count := self.noted(DEPTH).count:
            cut = number_of(contents.cut_lines, "line")
            yield self._problem(DEPTH, queries=number_of(count, "query", "queries"), depth=depth, cut=cut)
        if self.capped:
            shares = [name for name in self.capped if name.startswith(_SHARES)]
            lower = [name for name in self.capped if name not in shares]
            changes = " and ".join(
                f"{', '.join(names)} may be {change}"
                for names, change in ((lower, "lower"), (shares, "higher or lower"))
                if names
            )
            longest = number_of(contents.depth, "document")
            yield self._problem(SHALLOW, len(self.capped), longest=longest, changes=changes, depth=depth)
        if self.noted(RANK_ORDER).count:
            yield self._problem(RANK_ORDER)
        if contents.has_many_ties:
            advice = (
                "Your scores differ by less than single precision can represent, so more digits do not help: spread "
                "them out, or write scores by rank, such as 1/rank."
                if contents.ties_differ
                else "If your scores differ beyond the digits in the file, write more digits."
            )
            yield self._problem(TIES, advice=advice)
        if (tags := self.noted(SEVERAL_TAGS)).count > 1:
            more = " or more" if len(contents.tags) == MAX_TAGS else ""
            yield replace(self._problem(SEVERAL_TAGS, tags=f"{tags.count}{more}"), lines=tags.lines[1:])


_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def refusal(code: ProblemCode, **values: object) -> InvalidRun:
    """Return the error for a run that cannot be read to its end, with the registered texts of a problem."""
    return InvalidRun.of(code.problem(code.message.format(**values), code.hint.format(**values)))


def refuse_binary(beginning: bytes) -> None:
    """Raise InvalidRun for a file that is not text. UTF-16, and a few letters in Latin-1, count as text."""
    shown = beginning[:4096].decode("utf-8", "replace")
    if shown.count("\ufffd") + shown.count("\0") <= 0.3 * len(shown) or beginning.startswith(_UTF_16):
        return
    raise refusal(NOT_TEXT)
