"""Problem reports of the website, the API, and the command line, and the exceptions that contain them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, cast

Severity = Literal["error", "warning"]
#: Subject of a problem code: a run file, a request, or a model.
About = Literal["file", "request", "model"]

#: Maximum number of line numbers in a problem. Five are enough to recognize a pattern.
LINES_NAMED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One class of problem in a file.

    Attributes:
        severity: Whether the problem makes the file unusable.
        code: Stable identifier, one of `PROBLEM_CODES`.
        count: Number of occurrences.
        message: Description of the problem.
        hint: Advice on how to fix it.
        lines: First five 1-based line numbers; empty if the problem does not belong to a line.
    """

    severity: Severity
    code: str
    count: int
    message: str
    hint: str
    lines: tuple[int, ...] = ()

    def sentences(self) -> str:
        """Return message and hint as sentences, without capitalizing names of files and measures."""
        first_word = self.message.split(" ", 1)[0]
        capital = self.message[:1].upper() if first_word.isalpha() and first_word.islower() else self.message[:1]
        period = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{capital}{self.message[1:]}{period} {self.hint}".strip()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Counts and metadata that were collected while reading a run.

    `known_queries` counts the queries that belong to the dataset, and `depth` is the maximum number of documents
    ranked for one of them. `expanded_bytes` is the size after decompression.
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
    """The verdict on a file: its problems, errors first, and the statistics of its content."""

    problems: tuple[Problem, ...] = ()
    statistics: RunStatistics = RunStatistics()

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    @property
    def valid(self) -> bool:
        return not self.errors

    def drop_quotations(self) -> Report:
        """Return the report with registered texts of problems of files, for a file whose content must not be shown."""
        problems = tuple(
            replace(problem, message=code.meaning, hint=code.remedy, lines=()) if code.about == "file" else problem
            for problem, code in ((problem, PROBLEM_CODES[problem.code]) for problem in self.problems)
        )
        return Report(problems, replace(self.statistics, tags=(), metadata={}))

    def as_dict(self) -> dict[str, Any]:
        """Return the report in the format of the API's `check/` responses."""
        return {
            "valid": self.valid,
            "problems": [problem.as_dict() for problem in self.problems],
            "statistics": asdict(self.statistics),
        }


class LineProblems:
    """Collector of the problems of a file's lines: a count and the first line numbers for each code."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: dict[str, list[int]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def note(self, code: str, line: int) -> None:
        """Record one occurrence of a problem on a 1-based line."""
        self.counts[code] += 1
        if len(self.lines[code]) < LINES_NAMED:
            self.lines[code].append(line)

    def report(self, texts: Mapping[str, tuple[str, str]] | None = None, **values: object) -> tuple[Problem, ...]:
        """Return one error for each code, in the order of their first lines.

        `texts` maps codes to pairs of message and hint. None selects the registered texts. Messages are format strings
        with `lines` and `values` as fields.
        """
        return tuple(
            Problem(
                "error",
                code,
                count,
                message.format(lines=format_count(count, "line"), **values),
                hint,
                tuple(self.lines[code]),
            )
            for code, count in sorted(self.counts.items(), key=lambda item: (self.lines[item[0]], item[0]))
            for message, hint in (texts[code] if texts else (PROBLEM_CODES[code].message, PROBLEM_CODES[code].hint),)
        )


#: Registry of problem codes.
PROBLEM_CODES: dict[str, ProblemCode] = {}


class ProblemCode(str):
    """A problem code of reports and refusals, registered with its documentation by the module that raises it.

    The reference of problem codes lists each one with its `severity`, `meaning`, `remedy`, and `example`, in the table
    for its `about`. A code that ends in "…" is a family. `named` returns its members.

    `message` and `hint` are the texts of a report if they are the same for every file; the hint defaults to the remedy.
    If `quote` is set, messages end with the first affected line, introduced by this description (see `runs.header`).
    `is_free` codes do not count as a verdict on a file.
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
        cls,
        code: str,
        meaning: str,
        remedy: str,
        example: str = "",
        *,
        message: str = "",
        hint: str = "",
        quote: str | None = None,
        about: About = "request",
        severity: str = "error",
        is_free: bool = False,
    ) -> Self:
        """Register a code. Raises ValueError if it is registered already."""
        if code in PROBLEM_CODES:
            raise ValueError(f"the problem code {code} is registered already")
        instance = super().__new__(cls, code)
        instance.meaning, instance.remedy, instance.example = meaning, remedy, example
        instance.message, instance.hint, instance.quote = message, hint or (remedy if message else ""), quote
        instance.about, instance.severity, instance.is_free = about, severity, is_free
        PROBLEM_CODES[code] = instance
        return instance

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # Pickles and copies are plain strings.

    def named(self, name: str) -> str:
        return self.removesuffix("…") + name

    def problem(
        self,
        message: str = "",
        hint: str = "",
        count: int = 1,
        lines: tuple[int, ...] = (),
        severity: Severity | None = None,
    ) -> Problem:
        """Return a problem with this code, with the code's own texts and severity by default."""
        message, hint = message or self.message, hint or self.hint
        return Problem(severity or cast(Severity, self.severity), self, count, message, hint, lines)

    def refusal(self, message: str, hint: str, lines: tuple[int, ...] = ()) -> InvalidContent:
        return InvalidContent.build(self.problem(message, hint, lines=lines))


def is_free(code: str) -> bool:
    """Return whether a refusal with this code is unrelated to the content of a file."""
    return code in PROBLEM_CODES and PROBLEM_CODES[code].is_free


def codes_about(about: About) -> list[ProblemCode]:
    """Return the codes about a subject, sorted alphabetically."""
    return sorted(code for code in PROBLEM_CODES.values() if code.about == about)


def at_lines(lines: Sequence[int], count: int = 0) -> str:
    """Format line numbers as ` (line 5)` or ` (lines 1, 2, 3 …)`, or as "" if there are none.

    An ellipsis is added if `count` is greater than the number of lines.
    """
    if not lines:
        return ""
    ellipsis = " …" if count > len(lines) else ""
    return f" (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}{ellipsis})"


def format_count(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun, as in "1 line" and "2,000 lines"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


class InvalidContent(Exception):
    """The content of a file is unusable, as described by `report`. Never raised for internal errors."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("; ".join(problem.message for problem in report.errors) or "invalid content")

    @classmethod
    def build(cls, *problems: Problem) -> Self:
        return cls(Report(problems))

    @classmethod
    def from_text(cls, texts: Mapping[str, tuple[str, str]], code: str, **values: object) -> Self:
        """Return the error for one problem of a whole file. `texts` is described in `LineProblems.report`."""
        message, hint = texts[code]
        return cls.build(Problem("error", code, 1, message.format(**values), hint))


class EndlessPattern(InvalidContent):
    """A regular expression among a dataset's answers is too slow. The dataset's curator must fix it.

    The report names the line but does not reveal the pattern.
    """

    HINT = "Avoid nested repetitions such as (a+)+, or write plain strings as `answers`."

    def __init__(self, line: int, reason: str) -> None:
        message = f"answers.jsonl, line {line}: a pattern {reason}"
        super().__init__(Report((Problem("error", "endless_pattern", 1, message, self.HINT),)))


class InvalidRun(InvalidContent):
    """A run file cannot be scored."""


class KernelUnavailable(RuntimeError):
    """The compiled scoring kernel cannot be built or stored on this machine. The message names the missing part."""


class ModelFailure(Exception):
    """A submitted model cannot be loaded or run, for a reason that its owner must fix.

    `code` is stable and one of `evaluation.execution.failures.MODEL_FAILURES`. The message never contains text from
    the model's files.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, in Python, NumPy, CUDA, or PyTorch.

    PyTorch raises a plain RuntimeError if memory runs out on the CPU.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
