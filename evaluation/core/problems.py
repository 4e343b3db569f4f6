"""Problems of a file, worded once for the page, the API, and the command line, and the errors that carry them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, cast

Severity = Literal["error", "warning"]
#: What a code is about: the content of a run file, a request, or a model that was run.
About = Literal["file", "request", "model"]

#: How many line numbers a problem names. The first five are enough to find a pattern.
LINES_NAMED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One class of problem in a file.

    `count` is how often it occurs, `lines` are the first (at most five) 1-based line numbers, empty where the
    problem has no line. `message` says what is wrong, `hint` what would be right.
    """

    severity: Severity
    code: str
    count: int
    message: str
    hint: str
    lines: tuple[int, ...] = ()

    def sentences(self) -> str:
        """What is wrong and what would be right, as sentences. Names of files and measures stay as they are."""
        first = self.message.split(" ", 1)[0]
        begins = self.message[:1].upper() if first.isalpha() and first.islower() else self.message[:1]
        ends = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{begins}{self.message[1:]}{ends} {self.hint}".strip()

    def as_dict(self) -> dict[str, Any]:
        """The problem as it appears in JSON reports."""
        return {**asdict(self), "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """What was read: counts of lines, queries and distinct tags, sizes in bytes, header metadata.

    `known_queries` counts the queries that belong to the dataset, and `depth` is the number of documents in the longest
    of their rankings.
    """

    lines: int = 0
    queries: int = 0
    known_queries: int = 0
    depth: int = 0
    expanded_bytes: int = 0
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a file: every class of problem found, errors first, and what was read."""

    problems: tuple[Problem, ...] = ()
    statistics: RunStatistics = RunStatistics()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make the file unusable."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that the sender should know of, though the file is used."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    @property
    def valid(self) -> bool:
        """Whether the file may be scored."""
        return not self.errors

    def as_dict(self) -> dict[str, Any]:
        """The report as `check/` answers it."""
        return {
            "valid": self.valid,
            "problems": [problem.as_dict() for problem in self.problems],
            "statistics": asdict(self.statistics),
        }


class LineProblems:
    """The problems of a file's lines: how often each code occurs, and its first lines."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: dict[str, list[int]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def note(self, code: str, line: int) -> None:
        """Count one occurrence of the problem `code` on the 1-based `line`."""
        self.counts[code] += 1
        if len(self.lines[code]) < LINES_NAMED:
            self.lines[code].append(line)

    def report(self, texts: Mapping[str, tuple[str, str]], **values: object) -> tuple[Problem, ...]:
        """An error for each code; `texts` has the message and the hint of each, with places for `lines` and values."""
        return tuple(
            Problem(
                "error",
                code,
                count,
                texts[code][0].format(lines=number_of(count, "line"), **values),
                texts[code][1],
                tuple(self.lines[code]),
            )
            for code, count in sorted(self.counts.items())
        )


#: Every code that was registered, by itself.
PROBLEM_CODES: dict[str, ProblemCode] = {}


class ProblemCode(str):
    """A code of reports and refusals, registered with its explanation by the module that raises it.

    The page of formats has a row for each: `severity`, `meaning`, `remedy` and `example`, in the table of its `about`.
    A code that ends in … stands for several (`named`).

    `message` and `hint` are the texts of a report, if they are the same for every file; the hint defaults to the
    remedy. With `quote` a message ends with the first line concerned, and this description of it (`runs.header`).
    """

    severity: str
    meaning: str
    remedy: str
    example: str
    message: str
    hint: str
    quote: str | None
    about: About
    is_free: bool

    def __new__(
        cls, code: str, meaning: str, remedy: str, example: str = "", *,
        message: str = "", hint: str = "", quote: str | None = None,
        about: About = "request", severity: str = "error", is_free: bool = False,
    ) -> Self:  # fmt: skip
        """Register a code. Raises ValueError for one that is registered already."""
        if code in PROBLEM_CODES:
            raise ValueError(f"the problem code {code} is registered already")
        made = super().__new__(cls, code)
        made.meaning, made.remedy, made.example = meaning, remedy, example
        made.message, made.hint, made.quote = message, hint or (remedy if message else ""), quote
        made.about, made.severity, made.is_free = about, severity, is_free
        PROBLEM_CODES[code] = made
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # a copy is the text alone

    def named(self, name: str) -> str:
        """One of the codes that this one stands for."""
        return self.removesuffix("…") + name

    def problem(
        self, message: str = "", hint: str = "", count: int = 1, lines: tuple[int, ...] = (),
        severity: Severity | None = None,
    ) -> Problem:  # fmt: skip
        """Return a problem of this code, by default with its own texts; `severity` is for a code that may be either."""
        message, hint = message or self.message, hint or self.hint
        return Problem(severity or cast(Severity, self.severity), self, count, message, hint, lines)

    def refusal(self, message: str, hint: str, lines: tuple[int, ...] = ()) -> InvalidContent:
        """Return the error for a problem of this code."""
        return InvalidContent.of(self.problem(message, hint, lines=lines))


def is_free(code: str) -> bool:
    """Whether a refusal with the code counts as no verdict on a file: nothing in one was found to be wrong."""
    return code in PROBLEM_CODES and PROBLEM_CODES[code].is_free


def codes_about(about: About) -> list[ProblemCode]:
    """The codes of one table, in the order of the alphabet."""
    return sorted(code for code in PROBLEM_CODES.values() if code.about == about)


def at_lines(lines: Sequence[int], count: int = 0) -> str:
    """` (line 5)`, ` (lines 1, 2, 3 …)` where `count` says that there are more, nothing where there are none."""
    if not lines:
        return ""
    more = " …" if count > len(lines) else ""
    return f" (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}{more})"


def number_of(count: int, one: str, many: str | None = None) -> str:
    """`1 line`, `2,000 lines`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


class InvalidContent(Exception):
    """A file's content is not usable; `report` says where and why. Never raised for a fault of ours."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("; ".join(problem.message for problem in report.errors) or "invalid content")

    @classmethod
    def of(cls, *problems: Problem) -> Self:
        """The error for these problems."""
        return cls(Report(problems))

    @classmethod
    def of_text(cls, texts: Mapping[str, tuple[str, str]], code: str, **values: object) -> Self:
        """Return the error for one problem of a file as a whole; `texts` as in `LineProblems.report`."""
        message, hint = texts[code]
        return cls.of(Problem("error", code, 1, message.format(**values), hint))


class EndlessPattern(InvalidContent):
    """A pattern among the answers of queries takes too long to be searched: no run's fault, and its curator's to mend.

    The report names its line, and nothing of what it says.
    """

    HINT = "Repeat nothing that repeats itself, as (a+)+ does; or write plain strings as `answers`."

    def __init__(self, line: int, why: str) -> None:
        message = f"answers.jsonl, line {line}: a pattern {why}"
        super().__init__(Report((Problem("error", "endless_pattern", 1, message, self.HINT),)))


class InvalidRun(InvalidContent):
    """A run file cannot be scored."""


class KernelUnavailable(RuntimeError):
    """The compiled part of scoring cannot be made or kept on this machine; the message says what is missing."""


class ModelFailure(Exception):
    """A model cannot be used as it is: what it did is its owner's affair, not a fault of ours.

    `code` is stable and one of `evaluation.execution.failures.MODEL_FAILURES`; the message says what was found,
    in words of ours alone. Raised where a model is loaded or run.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, numpy's, CUDA's, or torch's on the CPU, which has no type of its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
