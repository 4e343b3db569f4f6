"""Errors whose cause is the input, told apart from faults of our own by their type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from evaluation.core.problems import Problem, Report


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
