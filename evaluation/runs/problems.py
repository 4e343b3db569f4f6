"""What the reader counted in a run, said in sentences: every class of problem, errors first.

The kernel notes only the numbers of lines. A message quotes the first line of its problem, so the file is read a second
time, up to the last line wanted, and only where there is a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import LINE_LENGTH, FileLimits
from evaluation.core.errors import InvalidRun
from evaluation.core.problems import Problem, ProblemCode, Severity, number_of
from evaluation.kernel.layout import MAX_TAGS
from evaluation.runs.header import select_metadata
from evaluation.runs.quoting import is_header, quotation, recognize_other

ENCODING = ProblemCode("encoding", "A line that is not UTF-8, has a NUL byte, or a file whose lines end in CR alone.",
    "Save as UTF-8; end lines with LF or CR LF.", "q1 Q0 d\\xff 1 12.75 mine", about="file")  # fmt: skip
FIELDS = ProblemCode("fields", "A line without exactly six fields.", "“query Q0 document rank score tag”, separated "
    "by spaces or tabs; ids have no white space.", "q1 Q0 d17 1 12.75", about="file")  # fmt: skip
IDENTIFIER = ProblemCode("identifier", "An id is too long, empty, or has white space.", "Use the ids of the "
    "dataset's files.", about="file")  # fmt: skip
SCORE = ProblemCode("score", "A score that is not a finite number in single precision.", "ASCII digits such as "
    "12.75, -3 or 1.5e-7, below 3.4e38; no nan, inf or thousands separators.", "q1 Q0 d17 1 nan mine",
    about="file")  # fmt: skip
DUPLICATE = ProblemCode("duplicate", "A document that its query has already.", "Each document once per query; keep "
    "the line with the best score.", "q1 Q0 d17 1 9.1 mine … q1 Q0 d17 2 8.4 mine", about="file")  # fmt: skip
QUERY_SIZE = ProblemCode("query_size", "One query has more lines than can be held together.",
    "At most 1,000 documents a query are scored: leave out the rest.", about="file")  # fmt: skip
UNGROUPED = ProblemCode("ungrouped", "The lines of a query are not together, and the file is too large to sort here.",
    "sort -s -k1,1 run.txt", about="file")  # fmt: skip
_LINES = "Send a line for each document retrieved, `query Q0 document rank score tag`; check that it is the right file."
EMPTY = ProblemCode("empty", "The file has no lines.", _LINES, about="file")
_FORMS = "Send a TREC run as text, plain or as .gz, .zst, or .bz2, a file in another listed format, or a zip of these."
NOT_TEXT = ProblemCode("not_text", "A file that is not text, such as a picture.", _FORMS,
    about="file")  # fmt: skip
NO_KNOWN_QUERY = ProblemCode("no_known_query", "None of the run's queries is in the dataset.", "Choose the dataset "
    "that the run is for; write query ids as in its queries file.", "Q001 instead of 1", about="file")  # fmt: skip
UNKNOWN_QUERIES = ProblemCode("unknown_queries", "Queries that are not among the dataset's queries to answer: "
    "ignored.", "Nothing to do, if the run was made for a larger set.", about="file", severity="warning")  # fmt: skip
JUDGED_QUERIES_MISSING = ProblemCode("judged_queries_missing", "Judged queries that the run does not have: they "
    "score 0.", "Retrieve documents for every query. (Said for open judgements only.)", about="file",
    severity="warning")  # fmt: skip
QUERIES_MISSING = ProblemCode("queries_missing", "Queries of the dataset that the run does not have; those that are "
    "judged score 0.", "Retrieve documents for every query.", about="file", severity="warning")  # fmt: skip
UNKNOWN_DOCUMENTS = ProblemCode("unknown_documents", "Documents that the dataset does not have. A few are let pass "
    "and count as not relevant; above 5% of the lines the file is refused.", "Make the run from this version of the "
    "corpus.", "q1 Q0 no-such-id 1 9.1 mine", about="file", severity="error or warning")  # fmt: skip
DEPTH = ProblemCode("depth", "More than 1,000 documents for a query: the best 1,000 by score are kept.",
    "Nothing to do.", about="file", severity="warning")  # fmt: skip
SHALLOW = ProblemCode("shallow", "The run has fewer documents for each query than a measure reads.", "Send up to "
    "1,000 documents for each query, or compare by measures with smaller cutoffs.", "R@1000 of a run with 100 "
    "documents for each query", about="file", severity="warning")  # fmt: skip
RANK_ORDER = ProblemCode("rank_order", "Ranks that disagree with the scores. Ranks are ignored.",
    "Check that a higher score means a better document.", "q1 Q0 d17 2 9.1 mine · q1 Q0 d18 1 8.4 mine", about="file",
    severity="warning")  # fmt: skip
TIES = ProblemCode("ties", "Many equal scores within a query, in single precision.", "Write more digits. If the "
    "scores have enough digits, spread them further apart, so that your own order counts.", about="file",
    severity="warning")  # fmt: skip
SEVERAL_TAGS = ProblemCode("several_tags", "More than one tag in the last column.", "Check that files were not "
    "mixed.", about="file", severity="warning")  # fmt: skip

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


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What one pass over a run found, held against the queries that were expected."""

    contents: RunContents
    known_queries: int
    unknown_queries: int
    missing_queries: int
    #: The first of them that may be named.
    missing_ids: tuple[str, ...]
    expected_queries: int
    judged_missing: bool
    maximum_depth: int
    #: Number of documents in the longest ranking, and the measures that read more.
    depth: int = 0
    capped: tuple[str, ...] = ()


_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

_LINE_ERRORS = {
    LINE_LENGTH: ("{lines} longer than {max_line} bytes", "A line is `query Q0 document rank score tag`."),
    ENCODING: (
        "{lines} not UTF-8, or with a NUL byte",
        "Save the file as UTF-8 (not UTF-16).",
    ),
    FIELDS: (
        "{lines} without exactly six fields",
        "Write `query Q0 document rank score tag`, separated by spaces or tabs; ids have no white space.",
    ),
    IDENTIFIER: (
        "{lines} with a query or document id longer than {max_id} bytes",
        "Use the ids of the dataset's files.",
    ),
    SCORE: (
        "{lines} whose score is not a finite number in single precision",
        "Write scores like 12.75, -3 or 1.5e-7: ASCII digits, no thousands separators, no nan or inf, "
        "below 3.4e38.",
    ),
    DUPLICATE: (
        "{lines} with a document that its query has already",
        "Name each document once per query; keep the line with the best score.",
    ),
}  # fmt: skip


def no_lines() -> Problem:
    """What is said of an empty file."""
    return EMPTY.problem("the file has no lines", _LINES)


def refuse_binary(beginning: bytes) -> None:
    """Raise InvalidRun for a file that is no text. One in UTF-16, or with a few letters in Latin-1, is text."""
    shown = beginning[:4096].decode("utf-8", "replace")
    if shown.count("\ufffd") + shown.count("\0") <= 0.3 * len(shown) or beginning.startswith(_UTF_16):
        return
    raise InvalidRun.of(NOT_TEXT.problem("the file is not text", _FORMS))


def describe_problems(facts: RunFacts, limits: FileLimits, hidden: bool) -> tuple[Problem, ...]:
    """Every class of problem. For hidden targets nothing here depends on what is judged."""
    if not facts.contents.lines:
        return (no_lines(),)
    found = [
        *_line_errors(facts, limits),
        *_query_problems(facts, hidden),
        *_document_problems(facts),
        *_order(facts),
    ]
    return tuple(sorted(found, key=lambda problem: problem.severity))


def _line_errors(facts: RunFacts, limits: FileLimits) -> list[Problem]:
    problems = []
    for code, (message, hint) in _LINE_ERRORS.items():
        counted = facts.contents.counted.get(code, LineCount())
        if counted.count:
            lines = number_of(counted.count, "line")
            text = message.format(
                lines=lines, max_line=f"{limits.max_line_bytes:,}", max_id=limits.max_id_bytes
            )
            problems.append(_line_error(facts, code, counted, text, hint))
    return problems


def _line_error(facts: RunFacts, code: ProblemCode, counted: LineCount, message: str, hint: str) -> Problem:
    """The problem with its first line quoted, and what that line or the file seems to be instead of a run's."""
    texts, first = facts.contents.texts, facts.contents.first_line
    message += quotation(code, counted.lines, texts)
    quoted = [texts[line] for line in counted.lines if line in texts]
    if code == FIELDS and counted.count >= facts.contents.lines and (other := recognize_other(quoted)):
        message += f"; the file looks like {other[0]}, not like a run"
        hint = f"{other[1]} {hint}"
    elif counted.lines[:1] == (first,) and is_header(texts.get(first, b"")):
        message += f"; line {first:,} looks like a header"
        hint = "Leave out the line of column names." + (f" {hint}" if counted.count > 1 else "")
    return code.problem(message, hint, counted.count, counted.lines)


def _named(facts: RunFacts) -> str:
    """The first of the missing queries in brackets, ` (12, 17)`; nothing where they may not be named."""
    if not facts.missing_ids:
        return ""
    more = " …" if facts.missing_queries > len(facts.missing_ids) else ""
    return f" ({', '.join(facts.missing_ids)}{more})"


def _query_problems(facts: RunFacts, hidden: bool) -> Iterator[Problem]:
    unknown = facts.contents.counted.get(UNKNOWN_QUERIES, LineCount())
    quoted = quotation(UNKNOWN_QUERIES, unknown.lines, facts.contents.texts)
    if facts.expected_queries and facts.contents.lines and not facts.known_queries:
        if (
            unknown.count
        ):  # else no line could be read, and nothing is known of the queries; the lines' own errors say why
            unread = any(facts.contents.counted.get(code, LineCount()).count for code in _LINE_ERRORS)
            message = "queries in the lines that can be read" if unread else "run's queries"
            message = f"none of the {message} is in the dataset{quoted}"
            hint = "Check that the run is for this dataset, and that query ids are written as in its queries file."
            yield NO_KNOWN_QUERY.problem(message, hint, max(1, facts.unknown_queries), unknown.lines)
        return
    if unknown.count:
        queries, lines = (
            number_of(facts.unknown_queries, "query", "queries"),
            number_of(unknown.count, "line"),
        )
        message = f"{queries} ({lines}) not among the dataset's queries to answer, ignored{quoted}"
        hint = "Nothing to do, if the run was made for a larger set of queries."
        yield UNKNOWN_QUERIES.problem(message, hint, facts.unknown_queries, unknown.lines)
    if facts.missing_queries:
        of = f"{facts.missing_queries:,} of the {facts.expected_queries:,}"
        if facts.judged_missing and not hidden:
            message = f"{of} judged queries are missing; they score 0{_named(facts)}"
            hint = "Retrieve documents for every query, if that was not meant."
            yield JUDGED_QUERIES_MISSING.problem(message, hint, facts.missing_queries)
        else:
            message = f"{of} queries of the dataset are missing; those of them that are judged score 0{_named(facts)}"
            hint = "Retrieve documents for every query of the dataset."
            yield QUERIES_MISSING.problem(message, hint, facts.missing_queries)


def _document_problems(facts: RunFacts) -> Iterator[Problem]:
    unknown = facts.contents.counted.get(UNKNOWN_DOCUMENTS, LineCount())
    if not unknown.count:
        return
    share = unknown.count / max(1, facts.contents.known_lines)
    lines = number_of(unknown.count, "line")
    quoted = quotation(UNKNOWN_DOCUMENTS, unknown.lines, facts.contents.texts)
    severity: Severity = "error" if share > UNKNOWN_DOCUMENTS_SHARE else "warning"
    if severity == "error":
        message = f"{lines} ({share:.1%}) with documents that are not in the dataset{quoted}"
        hint = (
            f"Up to {UNKNOWN_DOCUMENTS_SHARE:.0%} are let pass. Check that the run was made from this version of the "
            "corpus, and that document ids are written as in its corpus file."
        )
    else:
        uncounted = "with documents that are not in the dataset; they count as not relevant"
        message = f"{lines} ({share:.2%}) {uncounted}{quoted}"
        hint = "Check that the run was made from this version of the corpus."
    yield UNKNOWN_DOCUMENTS.problem(message, hint, unknown.count, unknown.lines, severity)


def _order(facts: RunFacts) -> Iterator[Problem]:
    """Warnings about depth, ranks, ties and tags."""
    depth, ranks, ties, tags = (
        facts.contents.counted.get(code, LineCount()) for code in (DEPTH, RANK_ORDER, TIES, SEVERAL_TAGS)
    )
    if depth.count:
        queries, cut = number_of(depth.count, "query", "queries"), number_of(facts.contents.cut_lines, "line")
        message = f"{queries} with more than {facts.maximum_depth:,} documents; {cut} cut"
        hint = f"The best {facts.maximum_depth:,} by score are kept, whatever their place in the file."
        yield DEPTH.problem(message, hint, depth.count, depth.lines)
    if facts.capped:
        longest = number_of(facts.depth, "document")
        shares = [name for name in facts.capped if name.startswith(_SHARES)]
        lower = [name for name in facts.capped if name not in shares]
        changes = [
            f"{', '.join(names)} may be {change}"
            for names, change in ((lower, "lower"), (shares, "higher or lower"))
            if names
        ]
        message = f"at most {longest} for a query: {' and '.join(changes)} than with more documents"
        hint = f"Send up to {facts.maximum_depth:,} documents a query, or compare by measures with smaller cutoffs."
        yield SHALLOW.problem(message, hint, len(facts.capped))
    if ranks.count:
        message = (
            f"{number_of(ranks.count, 'line')} whose rank disagrees with the scores, or is not a whole number"
        )
        hint = (
            "Ranks are ignored: documents are ordered by score, as trec_eval does. Check that a higher score means a "
            "better document."
        )
        yield RANK_ORDER.problem(message, hint, ranks.count, ranks.lines)
    if has_many_ties(facts.contents):
        lines = number_of(ties.count, "line")
        message = f"{lines} with the same score (in single precision) as an earlier line of the query"
        hint = "Ties are ordered by document id, descending, as trec_eval does. " + (
            "Your scores differ by less than single precision can represent, so more digits do not help: spread them "
            "out, or write scores by rank, such as 1/rank."
            if facts.contents.ties_differ
            else "If your scores differ beyond the digits in the file, write more digits."
        )
        yield TIES.problem(message, hint, ties.count, ties.lines)
    if tags.count > 1:
        message = f"the run has {tags.count}{' or more' if len(facts.contents.tags) == MAX_TAGS else ''} different tags"
        hint = "A run has one tag in its last column; check that files were not mixed."
        yield SEVERAL_TAGS.problem(message, hint, tags.count, tags.lines[1:])


def has_many_ties(contents: RunContents) -> bool:
    """Return whether enough scores are tied for a warning about their order."""
    return contents.counted.get(TIES, LineCount()).count > TIES_SHARE * max(1, contents.known_lines)
